"""The journal export format, as `systemd-journal-upload` sends it: entries of fields, separated by empty lines.

A field with a printable text is a line `NAME=value`. Any other field begins with a line that has only its name. The
length of its value follows as a 64-bit integer in little-endian order, then the value, and then a line end.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from cordwood.ingest.formats.json import require_events
from cordwood.ingest.formats.syslog import SEVERITIES
from cordwood.ingest.items import too_many_items_fault
from cordwood.ingest.parsed_body import Body, ParsedBody, PostedEvent, RefusedItem

JOURNAL_MEDIA_TYPE: Final = "application/vnd.fdo.journal"

# Journald itself allows 1,024 fields in an entry.
_MAX_FIELDS_PER_ENTRY: Final = 1024
# The number of bytes that are stored of an entry that is too large.
_KEPT_BYTES_OF_LARGE_ENTRY: Final = 4096
_BINARY_LENGTH_PREFIX_BYTES: Final = 8
_MAX_FIELD_NAME_BYTES: Final = 64
_FIELD_NAME_PATTERN: Final = re.compile(rb"[A-Z0-9_]{1,64}")
_LEVELS_BY_PRIORITY: Final = {str(number): name for number, name in enumerate(SEVERITIES)}
# The fields that identify the sender, the most specific one first.
_SENDER_NAME_FIELDS: Final = ("SYSLOG_IDENTIFIER", "_SYSTEMD_UNIT", "_COMM")

_encode = msgspec.json.Encoder().encode


class JournalEntry(msgspec.Struct):
    """An entry of a journal. A field that was sent several times has a list of values.

    If the entry cannot be stored, `refusal_reason` is the reason, and `refused_text` is the text of the entry. If
    `is_truncated` is true, `refused_text` is only its beginning.
    """

    fields: dict[str, str | list[str]] = msgspec.field(default_factory=dict)
    field_count: int = 0
    refusal_reason: str = ""
    refused_text: str = ""
    is_truncated: bool = False

    @property
    def sender_name(self) -> str:
        """The name of the program or unit that wrote the entry, or an empty text."""
        entries = (self.fields.get(name) for name in _SENDER_NAME_FIELDS)
        return next((one for one in entries if isinstance(one, str) and one), "")

    def add_field(self, name: str, value: str) -> None:
        self.field_count += 1
        if self.field_count > _MAX_FIELDS_PER_ENTRY:
            self.refusal_reason = f"The entry has more than {_MAX_FIELDS_PER_ENTRY} fields."
            return
        held = self.fields.get(name)
        if held is None:
            self.fields[name] = value
        elif isinstance(held, list):
            held.append(value)
        else:
            self.fields[name] = [held, value]

    def add_to_body(self, parsed: ParsedBody, index: int) -> None:
        """Add the entry to a decoded body, either as an event or as a refused item.

        The event's id is the entry's cursor, which identifies an entry in journald.
        """
        if self.refusal_reason:
            parsed.refused_items.append(
                RefusedItem(index, self.refusal_reason, self.refused_text, is_truncated=self.is_truncated)
            )
            return
        fields = dict(self.fields)
        cursor, timestamp = (
            _first_value(fields.pop("__CURSOR", None)),
            _first_value(fields.pop("__REALTIME_TIMESTAMP", None)),
        )
        message, level = (
            _first_value(fields.pop("MESSAGE", None)),
            _LEVELS_BY_PRIORITY.get(_first_value(fields.get("PRIORITY")) or ""),
        )
        if level is not None:
            fields["level"] = level
        moment = int(timestamp) if timestamp is not None and _DIGITS_PATTERN.fullmatch(timestamp) else None
        metadata = _encode(fields)
        message = metadata.decode() if message is None else message
        parsed.add_event(PostedEvent(cursor, moment, message, metadata=msgspec.Raw(metadata)), index)


_DIGITS_PATTERN: Final = re.compile(r"\d{1,18}", re.ASCII)


def _first_value(value: str | list[str] | None) -> str | None:
    return value[0] if isinstance(value, list) else value


class JournalDecoder:
    """Decodes entries that arrive in chunks. An entry of more than `max_bytes` is refused and skipped."""

    def __init__(self, max_bytes: int) -> None:
        self._max_entry_bytes = max_bytes
        self._buffer = bytearray()
        # The positions in the buffer: where the current entry begins, and where its next field begins.
        self._start = self._at = 0
        self._line_end_search_position = 0
        self._skipped_bytes = 0
        self._is_skipping_line = False
        self._current_entry = JournalEntry()

    @property
    def buffered_bytes(self) -> int:
        """The number of buffered bytes, which belong to the incomplete entry."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[JournalEntry]:
        """Add a chunk of data; return the entries that it completes."""
        self._buffer += data
        entries: list[JournalEntry] = []
        while self._decode_next(entries):
            pass
        self._refuse_if_too_large(len(self._buffer))
        if self._current_entry.is_truncated:
            self._start = self._at
        del self._buffer[: self._start]
        self._at -= self._start
        self._line_end_search_position = max(0, self._line_end_search_position - self._start)
        self._start = 0
        return entries

    def finish(self) -> list[JournalEntry]:
        """Return the last entry, which the end of the data completes; return an empty list if there is none.

        If the data ends within a field, the entry is refused.
        """
        entries = self.feed(b"\n")
        if self._at < len(self._buffer) or self._skipped_bytes:
            self._refuse_entry("The data ends within a field.")
        if self._current_entry.refusal_reason or self._current_entry.fields:
            self._end_entry(entries, len(self._buffer))
        return entries

    def _decode_next(self, entries: list[JournalEntry]) -> bool:
        """Decode one field or line end; return False if the buffer has no complete one."""
        if self._skipped_bytes:
            skipped = min(self._skipped_bytes, len(self._buffer) - self._at)
            self._at += skipped
            self._skipped_bytes -= skipped
            return skipped > 0
        end = self._buffer.find(b"\n", max(self._at, self._line_end_search_position))
        self._line_end_search_position = len(self._buffer) if end < 0 else 0
        if end < 0:
            self._skip_rest_of_large_entry()
            return False
        if self._is_skipping_line:
            self._is_skipping_line = False
            self._at = end + 1
        elif end == self._at:
            if self._current_entry.fields or self._current_entry.refusal_reason:
                self._end_entry(entries, end)
            self._at = self._start = end + 1
        else:
            return self._read_field(end)
        return True

    def _skip_rest_of_large_entry(self) -> None:
        """Discard the buffered beginning of an incomplete line, if its entry is too large to be stored anyway."""
        if self._is_skipping_line or (
            self._current_entry.is_truncated and len(self._buffer) - self._at > _MAX_FIELD_NAME_BYTES
        ):
            self._is_skipping_line = True
            self._at = len(self._buffer)

    def _read_field(self, end: int) -> bool:
        line = bytes(self._buffer[self._at : end])
        name, equals, value = line.partition(b"=")
        if equals:
            if _FIELD_NAME_PATTERN.fullmatch(name):
                self._add_field(name, value)
            else:
                self._refuse_entry("The name of a field is not of A-Z, 0-9 and _.")
            self._at = end + 1
            return True
        if not _FIELD_NAME_PATTERN.fullmatch(name):
            self._refuse_entry("A line is neither NAME=value nor the name of a binary field.")
            self._at = end + 1
            return True
        return self._read_binary_field(name, end + 1)

    def _read_binary_field(self, name: bytes, position: int) -> bool:
        begin = position + _BINARY_LENGTH_PREFIX_BYTES
        if len(self._buffer) < begin:
            return False
        length = int.from_bytes(self._buffer[position:begin], "little")
        if length > self._max_entry_bytes:
            self._refuse_if_too_large(begin + length)
            self._at, self._skipped_bytes = begin, length + 1
            return True
        if len(self._buffer) <= begin + length:
            return False
        self._add_field(name, bytes(self._buffer[begin : begin + length]))
        if self._buffer[begin + length] != ord("\n"):
            self._refuse_entry("A binary field does not end with a line end.")
        self._at = begin + length + 1
        return True

    def _add_field(self, name: bytes, value: bytes) -> None:
        if not self._current_entry.refusal_reason:
            self._current_entry.add_field(name.decode(), value.decode("utf-8", "replace"))

    def _refuse_entry(self, problem: str, *, is_cut: bool = False) -> None:
        """Record the reason why the entry cannot be stored, unless it already has a reason."""
        entry = self._current_entry
        entry.refusal_reason = entry.refusal_reason or problem
        if is_cut and not entry.is_truncated:
            entry.is_truncated = True
            beginning = self._buffer[self._start : self._start + _KEPT_BYTES_OF_LARGE_ENTRY]
            entry.refused_text = beginning.decode("utf-8", "replace")
            entry.fields.clear()

    def _refuse_if_too_large(self, end: int) -> None:
        if end - self._start > self._max_entry_bytes:
            self._refuse_entry(f"The entry is larger than {self._max_entry_bytes} bytes.", is_cut=True)

    def _end_entry(self, entries: list[JournalEntry], end: int) -> None:
        self._refuse_if_too_large(end)
        entry = self._current_entry
        if entry.refusal_reason and not entry.is_truncated:
            entry.refused_text = self._buffer[self._start : end].decode("utf-8", "replace")
        entries.append(entry)
        self._current_entry = JournalEntry()


def read_journal(body: Body) -> ParsedBody:
    """Decode a body in the journal export format."""
    parsed = ParsedBody.create_empty_for_body(body)
    for index, entry in enumerate(_decode_entries(body)):
        if index >= body.max_items:
            raise too_many_items_fault(body.max_items)
        entry.add_to_body(parsed, index)
    return require_events(parsed)


_DECODED_CHUNK_BYTES: Final = 64 * 1024


def _decode_entries(body: Body) -> Iterator[JournalEntry]:
    decoder = JournalDecoder(body.max_item_bytes)
    for begin in range(0, len(body.data), _DECODED_CHUNK_BYTES):
        yield from decoder.feed(body.data[begin : begin + _DECODED_CHUNK_BYTES])
    yield from decoder.finish()
