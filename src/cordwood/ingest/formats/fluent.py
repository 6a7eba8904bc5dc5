"""The Fluent Forward protocol: messages in MessagePack, each with a tag and a list of entries.

An entry is a time and a record. The layout of a message is `[tag, time, record, options]`, `[tag, entries, options]` or
`[tag, packed, options]`, where `packed` has the entries one after the other and may be compressed. msgspec decodes most
records. Records with invalid UTF-8, with keys that are not texts, or with binary values are decoded in Python, so that
no event is lost.
"""

import base64
import math
import re
import struct
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec

from cordwood.ingest.event_values import MAX_NESTING_LEVELS
from cordwood.ingest.items import TOO_DEEP_REASON
from cordwood.ingest.parsed_body import ParsedBody, PostedEvent

# The keys under which Fluentd, Fluent Bit and Docker store the message of a record, in order of precedence.
MESSAGE_KEYS: Final = ("message", "log", "msg")

_encode = msgspec.json.Encoder().encode

_EVENT_TIME_EXTENSION_TYPE: Final = 0
_NANOSECONDS_PER_SECOND: Final = 10**9
# Times from this number of seconds since 1970 on (in March 1973) are passed on as a number of nanoseconds, and earlier
# times as seconds with a fraction. Ingest infers the unit of a number from its size, and would take the nanoseconds of
# an earlier time for another unit.
_MIN_SECONDS_FOR_NANOSECOND_TIME: Final = 10**8
_ENTRY_EXCERPT_BYTES: Final = 256 * 1024
_MAX_TAG_LENGTH: Final = 256
_MAX_MESSAGE_ELEMENTS: Final = 4
_MAX_CHUNK_ID_LENGTH: Final = 256
_MAX_OPTION_BYTES: Final = 64 * 1024
# The limits of a slice of entries, which are decoded and stored at once: the number of entries, and the sum of their
# bytes.
_MAX_PARSED_BODY_ENTRIES: Final = 2000
_MAX_PARSED_BODY_BYTES: Final = 2**20


class NotForwardProtocolError(Exception):
    """Raised for bytes that are not a message of the protocol. The start of the next message is then unknown."""


class IncompleteData(Exception):
    """Raised when the data ends within a value."""


# The first byte of each kind of value that has a fixed size, with the number of bytes that follow it.
_SCALAR_SIZES_BY_FIRST_BYTE: Final = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4,
    0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
# The first bytes of texts, binary values and extensions. For each: the size of the length field, and the number of
# bytes for the type of an extension.
_LENGTH_FORMATS_BY_FIRST_BYTE: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
_TEXT_OR_BINARY_FIRST_BYTES: Final = frozenset(
    code for code, (_, extra) in _LENGTH_FORMATS_BY_FIRST_BYTE.items() if not extra
)
# The first bytes of arrays and maps. For each: the size of the length field, and the number of values per element (an
# element of a map is a key and a value).
_CONTAINER_FORMATS_BY_FIRST_BYTE: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


class MessagePackValueScanner:
    """Finds the end of the value at `position` in data that grows, without reading any byte twice."""

    def __init__(self, position: int = 0) -> None:
        self._position = position
        self._unscanned_value_count = 1

    def find_end(self, data: bytes | bytearray) -> int | None:
        """Return the end of the value, or None if the value is not complete yet."""
        position, left, size = self._position, self._unscanned_value_count, len(data)
        try:
            while left and position < size:
                after, values = _read_value_head(data, position)
                position = after
                left += values - 1
        except IncompleteData:
            pass
        self._position, self._unscanned_value_count = position, left
        return position if not left and position <= size else None


def _read_value_head(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the end of the head of the value at `position`, and the number of values that it contains directly.

    A value that contains no other values consists only of its head.
    """
    first = data[position]
    if first < 0x80 or first >= 0xE0:
        return position + 1, 0
    if first >= 0xA0 and first < 0xC0:
        return position + 1 + (first & 0x1F), 0
    if first < 0xA0:
        return position + 1, (first & 0x0F) * (2 if first < 0x90 else 1)
    if first in _SCALAR_SIZES_BY_FIRST_BYTE:
        return position + 1 + _SCALAR_SIZES_BY_FIRST_BYTE[first], 0
    if first in _LENGTH_FORMATS_BY_FIRST_BYTE:
        width, extra = _LENGTH_FORMATS_BY_FIRST_BYTE[first]
        return position + 1 + width + extra + _read_number(data, position + 1, width), 0
    if first in _CONTAINER_FORMATS_BY_FIRST_BYTE:
        width, values = _CONTAINER_FORMATS_BY_FIRST_BYTE[first]
        return position + 1 + width, values * _read_number(data, position + 1, width)
    raise NotForwardProtocolError(f"The byte {first:#x} does not begin a value of MessagePack.")


def _read_number(data: bytes | bytearray, position: int, width: int) -> int:
    if position + width > len(data):
        raise IncompleteData
    return int.from_bytes(data[position : position + width], "big")


class EventTime(msgspec.Struct, frozen=True):
    """A time with nanoseconds, which senders encode as type 0 of MessagePack's extension types."""

    seconds: int
    nanoseconds: int


class ValueTooDeep(Exception):
    """Raised for a value that is nested deeper than an event may be."""


_CONSTANT_VALUES_BY_BYTE: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBER_FORMATS_BY_FIRST_BYTE: Final = {
    code: struct.Struct(f">{form}")
    for code, form in zip((0xCA, 0xCB, *range(0xCC, 0xD4)), "fdBHIQbhiq", strict=True)
}  # fmt: skip


class _MessagePackDecoder:
    """Decodes MessagePack values from data that is complete."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def read_value(self, levels: int = MAX_NESTING_LEVELS) -> Any:
        """Return the next value. Binary values become texts, and invalid UTF-8 is replaced by U+FFFD."""
        data, position = self.data, self.position
        if position >= len(data):
            raise IncompleteData
        first = data[position]
        if first < 0x80 or first >= 0xE0:
            self.position = position + 1
            return first if first < 0x80 else first - 256
        if first in _CONSTANT_VALUES_BY_BYTE:
            self.position = position + 1
            return _CONSTANT_VALUES_BY_BYTE[first]
        if first in _NUMBER_FORMATS_BY_FIRST_BYTE:
            form = _NUMBER_FORMATS_BY_FIRST_BYTE[first]
            (found,) = form.unpack(self._read_bytes(position + 1, form.size))
            return found
        end, values = _read_value_head(data, position)
        if values or first < 0xA0 or first in _CONTAINER_FORMATS_BY_FIRST_BYTE:
            self.position = end
            is_map = first < 0x90 or first >= 0xDE
            return self._read_container(values, levels - 1, is_map=is_map)
        return self._read_text_or_extension(first, position, end)

    def _read_container(self, values: int, levels: int, *, is_map: bool) -> Any:
        if levels < 0:
            raise ValueTooDeep
        if values > len(self.data) - self.position:
            raise IncompleteData
        if not is_map:
            return [self.read_value(levels) for _ in range(values)]
        return {_map_key_text(self.read_value(levels)): self.read_value(levels) for _ in range(values // 2)}

    def _read_text_or_extension(self, first: int, position: int, end: int) -> Any:
        if first < 0xC0:
            return self._read_bytes(position + 1, end - position - 1).decode("utf-8", "replace")
        width, extra = _LENGTH_FORMATS_BY_FIRST_BYTE.get(first, (0, 1))
        begin = position + 1 + width
        content = self._read_bytes(begin, end - begin)
        return _decode_extension(content[0], content[1:]) if extra else content.decode("utf-8", "replace")

    def _read_bytes(self, position: int, size: int) -> bytes:
        content = self.data[position : position + size]
        if len(content) < size:
            raise IncompleteData
        self.position = position + size
        return content


def _map_key_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _encode(value).decode()


def _decode_extension(kind: int, content: bytes) -> Any:
    if kind == _EVENT_TIME_EXTENSION_TYPE and len(content) == 8:
        return EventTime(*struct.unpack(">II", content))
    return base64.b64encode(content).decode()


# The first bytes of binary values and of extensions. If an entry contains one of these bytes, the entry as msgspec
# decodes it is searched for binary values and times; if there are any, the entry is decoded in Python instead. There
# may be none, because the same bytes also occur within texts and numbers. The search begins after the time of the
# entry, because the time may itself be an extension.
_BINARY_MARKER_PATTERN: Final = re.compile(rb"[\xc4-\xc9\xd4-\xd8]")
_BINARY_MARKER_SEARCH_START: Final = 11
_decode_common_entry = msgspec.msgpack.Decoder(
    tuple[Any, dict[str, Any]], ext_hook=lambda kind, content: _decode_extension(kind, bytes(content))
).decode
_raw_array_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
# The maximum number of entries of a message, and the maximum of their bytes, that msgspec splits at once. Splitting
# more of them at once would take too much memory.
_MAX_ENTRIES_SPLIT_AT_ONCE: Final = 20_000
_MAX_BYTES_SPLIT_AT_ONCE: Final = 4 * 2**20


class ForwardMessage(msgspec.Struct):
    """A message of the protocol. Its entries are the bytes of `packed_entries` from `entries_start` to `entries_end`.

    `entry_count` is the number of entries, or None if it is unknown. `stated_entry_count` is the number of entries that
    the sender states in the options. `compression` names the compression of the entries, and is empty if there is none.
    `chunk_id` is the id that the sender expects in the acknowledgement.
    """

    tag: str
    packed_entries: bytes
    entries_start: int = 0
    entries_end: int | None = None
    entry_count: int | None = None
    stated_entry_count: int | None = None
    compression: str = ""
    chunk_id: str | None = None


def read_message(data: bytes) -> ForwardMessage | None:
    """Decode the structure of a complete message; return None for nil, which is a heartbeat."""
    if data == b"\xc0":
        return None
    if not 0x92 <= data[0] <= 0x90 + _MAX_MESSAGE_ELEMENTS:
        raise NotForwardProtocolError("A message is an array of two to four elements.")
    elements = data[0] & 0x0F
    try:
        reader = _MessagePackDecoder(data, 1)
        tag = reader.read_value()
        if not isinstance(tag, str) or len(tag) > _MAX_TAG_LENGTH:
            raise NotForwardProtocolError("A message begins with a tag.")
        return _read_entries_by_mode(reader, tag, elements)
    except (IncompleteData, ValueTooDeep) as problem:
        raise NotForwardProtocolError("The message is not one of the Forward protocol.") from problem


def _read_entries_by_mode(reader: _MessagePackDecoder, tag: str, elements: int) -> ForwardMessage:
    data, position = reader.data, reader.position
    if position >= len(data):
        raise IncompleteData
    first = data[position]
    after, values = _read_value_head(data, position)
    rest = elements - 2
    if 0x90 <= first < 0xA0 or first in (0xDC, 0xDD):
        reader.position = _find_value_end(data, position)
        message = ForwardMessage(tag, data, after, reader.position, values)
    elif 0xA0 <= first < 0xC0 or first in _TEXT_OR_BINARY_FIRST_BYTES:
        message = ForwardMessage(tag, _text_or_binary_content(data, position, after))
        reader.position = after
    else:
        # Encode the single event of this message as an entry, so that the entries of all messages are decoded in the
        # same way.
        reader.position = _find_value_end(data, _find_value_end(data, position))
        message = ForwardMessage(tag, b"\x92" + data[position : reader.position], entry_count=1)
        rest -= 1
    return _apply_options(message, _read_options(reader, rest))


def _read_options(reader: _MessagePackDecoder, elements: int) -> dict[str, Any]:
    if len(reader.data) - reader.position > _MAX_OPTION_BYTES:
        raise NotForwardProtocolError("The options of a message are too long.")
    options = reader.read_value() if elements == 1 else None
    if elements not in (0, 1) or not isinstance(options, dict | None):
        raise NotForwardProtocolError("The options of a message are a map.")
    return options or {}


def _text_or_binary_content(data: bytes, position: int, end: int) -> bytes:
    width = _LENGTH_FORMATS_BY_FIRST_BYTE.get(data[position], (0, 0))[0]
    return data[position + 1 + width : end]


def _find_value_end(data: bytes, position: int) -> int:
    """Return the end of the value at `position`, including the values that it contains."""
    left = 1
    while left:
        if position >= len(data):
            raise IncompleteData
        position, values = _read_value_head(data, position)
        left += values - 1
    return position


def _apply_options(message: ForwardMessage, options: dict[str, Any]) -> ForwardMessage:
    chunk, compression = options.get("chunk"), options.get("compressed")
    if isinstance(chunk, str):
        if len(chunk) > _MAX_CHUNK_ID_LENGTH:
            raise NotForwardProtocolError("The id of the chunk is too long.")
        message.chunk_id = chunk
    size = options.get("size")
    if isinstance(size, int) and not isinstance(size, bool):
        message.stated_entry_count = size
    if isinstance(compression, str) and compression != "text":
        message.compression = compression
    return message


def read_entries(message: ForwardMessage, item_bytes: int) -> Iterator[ParsedBody]:
    """Yield the decoded entries of a message in slices of bounded size, each of which can be stored on its own.

    If the entries are still compressed, because they could not be decompressed, they are refused. The id of each event
    is derived from the id of the chunk, from the event's position in the chunk, and from its content. So if the sender
    repeats a chunk, its events are recognised as duplicates.
    """
    parsed, held_bytes = ParsedBody(item_indexes=[], max_item_bytes=item_bytes), 0
    if message.compression:
        parsed.refuse_item(
            0,
            f"The entries cannot be inflated: they are not {message.compression[:20]}.",
            _entry_excerpt(message.packed_entries),
        )
        yield parsed
        return
    for index, entry in enumerate(_split_entries(message)):
        held_bytes += len(entry)
        if entry[:1] == _UNDECODABLE_DATA_PREFIX:
            parsed.refuse_item(index, "The rest of the chunk is not MessagePack.", _entry_excerpt(entry[1:]))
        elif len(entry) > item_bytes:
            parsed.refuse_item(index, f"The entry is larger than {item_bytes} bytes.", _entry_excerpt(entry))
        else:
            _add_entry(entry, index, message, parsed)
        if (
            held_bytes > _MAX_PARSED_BODY_BYTES
            or len(parsed.events) + len(parsed.refused_items) >= _MAX_PARSED_BODY_ENTRIES
        ):
            yield parsed
            parsed, held_bytes = ParsedBody(item_indexes=[], max_item_bytes=item_bytes), 0
    if parsed.events or parsed.refused_items:
        yield parsed


# No value of MessagePack begins with this byte. It marks the beginning of data that cannot be split into entries.
_UNDECODABLE_DATA_PREFIX: Final = b"\xc1"


def _split_entries(message: ForwardMessage) -> Iterator[bytes]:
    """Yield the entries of a message, each as bytes.

    If data is reached that cannot be split into entries, yield the beginning of this data, marked by
    `_UNDECODABLE_DATA_PREFIX`, and stop.
    """
    found = _split_with_msgspec(message)
    if found is not None:
        yield from map(bytes, found)
        return
    packed, position, count = message.packed_entries, message.entries_start, 0
    while position < len(packed) if message.entry_count is None else count < message.entry_count:
        try:
            end = _find_value_end(packed, position)
        except (IncompleteData, NotForwardProtocolError):
            end = 0
        if not position < end <= len(packed):
            yield _UNDECODABLE_DATA_PREFIX + packed[position : position + _ENTRY_EXCERPT_BYTES]
            return
        yield packed[position:end]
        position = end
        count += 1


def _split_with_msgspec(message: ForwardMessage) -> list[msgspec.Raw] | None:
    """Split the entries with msgspec; return None if their number is unknown, wrong or too large."""
    count = message.stated_entry_count if message.entry_count is None else message.entry_count
    if (
        count is None
        or not 0 <= count <= _MAX_ENTRIES_SPLIT_AT_ONCE
        or len(message.packed_entries) > _MAX_BYTES_SPLIT_AT_ONCE
    ):
        return None
    try:
        return _raw_array_decoder.decode(
            b"\xdd" + count.to_bytes(4, "big") + message.packed_entries[message.entries_start : message.entries_end]
        )
    except (msgspec.DecodeError, RecursionError):
        return None


def _add_entry(entry: bytes, index: int, message: ForwardMessage, parsed: ParsedBody) -> None:
    try:
        time, fields, event_message, written = _read_entry(entry, message.tag)
    except (ValueTooDeep, RecursionError):
        parsed.refuse_item(index, TOO_DEEP_REASON, _entry_excerpt(entry))
        return
    except ValueError as problem:
        parsed.refuse_item(index, f"The entry is not a time and a record: {problem}", _entry_excerpt(entry))
        return
    project = fields.get("project")
    parsed.add_event(
        PostedEvent(
            id=_derive_entry_id(message.chunk_id, index, entry),
            timestamp=_convert_timestamp(time),
            event_message=written.decode() if event_message is None else event_message,
            project=project if isinstance(project, str) else None,
            metadata=msgspec.Raw(written),
        ),
        index,
    )


def _read_entry(entry: bytes, tag: str) -> "tuple[Any, dict[str, Any], str | None, bytes]":
    """Return the time, the fields and the message of an entry, and the fields as JSON.

    The tag is one of the fields, unless the record has a field `tag` of its own.
    """
    try:
        decoded_entry = _decode_common_entry(entry)
        if _BINARY_MARKER_PATTERN.search(entry, _BINARY_MARKER_SEARCH_START) is None or not _has_bytes_or_time(
            decoded_entry[1]
        ):
            return _read_decoded_entry(decoded_entry, tag)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
        # msgspec cannot decode the entry, so it is decoded in Python below.
        pass
    return _read_decoded_entry(_MessagePackDecoder(entry).read_value(MAX_NESTING_LEVELS + 2), tag)


def _has_bytes_or_time(value: Any) -> bool:
    """Return whether a value contains bytes, or a datetime (msgspec's type for a time of MessagePack), at any depth."""
    if isinstance(value, dict):
        return any(map(_has_bytes_or_time, value.values()))
    if isinstance(value, list):
        return any(map(_has_bytes_or_time, value))
    return isinstance(value, bytes | datetime)


def _read_decoded_entry(entry: Any, tag: str) -> "tuple[Any, dict[str, Any], str | None, bytes]":
    time, metadata, record = _unpack_entry(entry)
    fields = _entry_fields(record, metadata, tag)
    event_message = _take_message(fields)
    return time, fields, event_message, _encode(fields)


def _unpack_entry(entry: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return the time, the metadata and the record of an entry, which is a pair of a time and a record.

    In place of the time, Fluent Bit may send a list of the time and the metadata.
    """
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        raise ValueError("it has not two elements.")
    time, record = entry
    if not isinstance(record, dict):
        raise ValueError("the record is not a map.")  # noqa: TRY004 - told in the quarantine
    if isinstance(time, list):
        return (time[0] if time else None), (time[1] if len(time) > 1 else None), record
    return time, None, record


def _entry_fields(record: dict[str, Any], metadata: Any, tag: str) -> dict[str, Any]:
    fields = dict(record)
    fields.setdefault("tag", tag)
    if isinstance(metadata, dict) and metadata:
        fields.setdefault("fluent_metadata", metadata)
    return fields


def _take_message(fields: dict[str, Any]) -> str | None:
    """Remove the message from the fields of a record, and return it without its last line end."""
    for name in MESSAGE_KEYS:
        value = fields.get(name)
        if isinstance(value, str):
            del fields[name]
            return value.removesuffix("\n")
    return None


def _convert_timestamp(time: Any) -> int | float | str | None:
    if isinstance(time, EventTime):
        if not time.nanoseconds:
            return time.seconds
        if time.seconds >= _MIN_SECONDS_FOR_NANOSECOND_TIME:
            return time.seconds * _NANOSECONDS_PER_SECOND + time.nanoseconds
        return time.seconds + time.nanoseconds / _NANOSECONDS_PER_SECOND
    if isinstance(time, float) and not math.isfinite(time):
        return None
    return time if isinstance(time, int | float | str) and not isinstance(time, bool) else None


def _derive_entry_id(chunk: str | None, index: int, entry: bytes) -> str | None:
    if chunk is None:
        return None
    digest = blake2b(b"%d " % index, digest_size=16, person=b"cordwood.fluent")
    digest.update(chunk.encode())
    digest.update(b"\0")
    digest.update(entry)
    return digest.hexdigest()


def _entry_excerpt(entry: bytes) -> str:
    return entry[:_ENTRY_EXCERPT_BYTES].decode("utf-8", "replace")
