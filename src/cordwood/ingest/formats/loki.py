"""Loki's push requests in JSON and protobuf.

A push has streams. Each stream has labels, and entries of a time, a line and metadata.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

import msgspec

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.formats.protobuf import (
    BadProtobuf,
    FieldTypes,
    decode_int64,
    decode_message,
    decode_text,
    decode_unsigned,
    iterate_fields,
    message_decoder,
)
from cordwood.ingest.items import raw_to_text, too_many_items_fault, without_unpaired_surrogates
from cordwood.ingest.parsed_body import Body, LabelledBody, MetadataBudget, ParsedBody, PostedEvent
from cordwood.model.event import SERVICE_NAME_LABELS
from cordwood.model.json_checks import describe_json_error

TENANT_HEADER: Final = "x-scope-orgid"
# The maximum number of protobuf fields of a body, divided by the maximum number of its entries. Fields of nested
# messages are counted, too.
_MAX_PROTOBUF_FIELDS_PER_ENTRY: Final = 16
# The maximum size of a stream's labels. It is limited, because the labels are copied into each event of the stream.
_MAX_LABELS_BYTES: Final = 64 * 1024
_EVENT_ID_BYTES: Final = 16

LabelPairs = Mapping[str, str]

_encode = msgspec.json.Encoder(order="sorted").encode
_EMPTY_JSON = msgspec.Raw(b"")
_NULL_JSON = msgspec.Raw(b"null")


class _PushEntry(msgspec.Struct, array_like=True, gc=False):
    time: str | int
    line: str
    metadata: msgspec.Raw = _EMPTY_JSON


class _PushStream(msgspec.Struct, gc=False):
    stream: msgspec.Raw
    values: list[_PushEntry] = []


class _PushBody(msgspec.Struct):
    streams: list[_PushStream]


class _RawEntryStream(msgspec.Struct, gc=False):
    stream: msgspec.Raw
    values: list[msgspec.Raw] = []


class _RawEntryPushBody(msgspec.Struct):
    streams: list[_RawEntryStream]


_push_decoder = msgspec.json.Decoder(_PushBody)
_raw_entry_push_decoder = msgspec.json.Decoder(_RawEntryPushBody)
_entry_decoder = msgspec.json.Decoder(_PushEntry)


class _LevelFields(msgspec.Struct):
    level: msgspec.Raw = _EMPTY_JSON
    detected_level: msgspec.Raw = _EMPTY_JSON


_labels_decoder = msgspec.json.Decoder(dict[str, str])
_levels_decoder = msgspec.json.Decoder(_LevelFields)


def read_quarantined_streams(body: Body) -> LabelledBody:
    """Decode an array of Loki streams, for a replay. A quarantined entry is stored in the form of such a stream."""
    return read_json_push(msgspec.structs.replace(body, data=b'{"streams":%b}' % body.data))


def read_json_push(body: Body) -> LabelledBody:
    """Decode a push request in JSON. Entries that cannot be decoded are quarantined."""
    _check_bracket_counts(body.data, body.max_items)
    reading = _PushReader(body)
    for stream, entries in _decode_streams(body):
        reading.begin_stream(_decode_labels(stream))
        for entry in entries:
            reading.add_json_entry(entry)
    return reading.labelled_body


def _decode_streams(body: Body) -> Iterable[tuple[msgspec.Raw, Iterable[_PushEntry | msgspec.Raw]]]:
    try:
        return [(one.stream, one.values) for one in _push_decoder.decode(body.data).streams]
    except (msgspec.DecodeError, RecursionError):
        plain = without_unpaired_surrogates(body.text)
    try:
        return [(one.stream, one.values) for one in _raw_entry_push_decoder.decode(plain).streams]
    except msgspec.ValidationError as problem:
        raise BadBody(f"The body is not a valid Loki push request: {problem}.") from problem
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, plain.encode())}.") from problem


# Matches everything up to the next opening bracket outside of strings, without backtracking.
_NEXT_BRACKET_PATTERN: Final = re.compile(rb'(?:[^"\[{]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[{])', re.DOTALL)


def _check_bracket_counts(data: bytes, limit: int) -> None:
    """Raise BodyTooLarge for a document with more arrays or objects than `limit` entries need.

    This check is made before the document is decoded. Each entry is an array, and its metadata an object. Each stream
    is an object that contains an object with labels and an array of entries.
    """
    arrays, objects = 2 * limit + 1, 3 * limit + 1
    if data.count(b"[") <= arrays and data.count(b"{") <= objects:
        return
    at = 0
    while bracket := _NEXT_BRACKET_PATTERN.match(data, at):
        at = bracket.end()
        if bracket[1] == b"[":
            arrays -= 1
        else:
            objects -= 1
        if arrays < 0 or objects < 0:
            raise too_many_items_fault(limit)


def _decode_labels(raw: msgspec.Raw) -> LabelPairs:
    written = bytes(raw).decode()
    if len(written) > _MAX_LABELS_BYTES:
        raise _labels_too_large_fault()
    try:
        return _labels_decoder.decode(without_unpaired_surrogates(written))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(
            "The body is not a valid Loki push request: the labels of a stream are not an object of texts."
        ) from problem


_LABEL_PAIR_FIELDS: FieldTypes = {1: ("name", decode_text, False), 2: ("value", decode_text, False)}
_TIMESTAMP_FIELDS: FieldTypes = {1: ("seconds", decode_int64, False), 2: ("nanos", decode_unsigned, False)}
_ENTRY_FIELDS: FieldTypes = {
    1: ("timestamp", message_decoder(_TIMESTAMP_FIELDS), False),
    2: ("line", decode_text, False),
    3: ("metadata", message_decoder(_LABEL_PAIR_FIELDS), True),
}
_STREAM_FIELDS: FieldTypes = {1: ("labels", decode_text, False), 2: ("entries", message_decoder(_ENTRY_FIELDS), True)}
_PUSH_REQUEST_FIELDS: FieldTypes = {1: ("streams", message_decoder(_STREAM_FIELDS), True)}


def read_protobuf_push(body: Body) -> LabelledBody:
    """Decode a push request in protobuf. The body was compressed with Snappy, and is already decompressed."""
    try:
        _check_protobuf_message_counts(body.data, body.max_items)
        request: Any = decode_message(body.data, _PUSH_REQUEST_FIELDS, body.max_items * _MAX_PROTOBUF_FIELDS_PER_ENTRY)
    except (BadProtobuf, RecursionError) as problem:
        raise BadBody(f"The body is not a valid Loki push request: {problem}.") from problem
    reading = _PushReader(body)
    for stream in request.get("streams", ()):
        reading.begin_stream(_parse_labels(stream.get("labels", "")))
        for entry in stream.get("entries", ()):
            reading.add_protobuf_entry(entry)
    return reading.labelled_body


def _check_protobuf_message_counts(data: bytes, limit: int) -> None:
    """Raise BodyTooLarge for more than `limit` streams or entries. Call this before decoding the body."""
    found = 0
    for number, (_, stream) in enumerate(iterate_fields(data), 1):
        if isinstance(stream, bytes):
            found += sum(1 for _ in islice(iterate_fields(stream), limit + 3))
        # `found` counts the fields of all streams so far. A stream has a field for each entry, and two others: its
        # labels and their hash.
        if number > limit or found > limit + 2 * number:
            raise too_many_items_fault(limit)


_LABEL_PATTERN: Final = re.compile(
    r'\s*+(?P<name>[^\s"=,{}]++|"(?:[^"\\]|\\.)*+")\s*+=\s*+(?P<value>"(?:[^"\\]|\\.)*+"|`[^`]*+`)\s*+(?:,|(?=\}))',
    re.DOTALL,
)


def _parse_labels(written: str) -> LabelPairs:
    """Parse labels in Prometheus's notation: {name="value", name="value"}."""
    if len(written) > _MAX_LABELS_BYTES:
        raise _labels_too_large_fault()
    labels: dict[str, str] = {}
    stripped = written.strip()
    at = 1
    while match := _LABEL_PATTERN.match(stripped, at):
        labels[_unquote_label_value(match["name"])] = _unquote_label_value(match["value"])
        at = match.end()
    if stripped[:1] != "{" or stripped[at:].strip() != "}":
        raise BadBody(
            f'The body is not a valid Loki push request: labels must be written {{name="value"}}, not {written[:100]!r}.'
        )
    return labels


_ESCAPE_PATTERN: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_CHARACTERS_BY_ESCAPE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MAX_CODE_POINT: Final = 0x10FFFF


def _unquote_label_value(written: str) -> str:
    """Return the text of a string literal in Go's notation; return a text without quotes unchanged."""
    if written[:1] == "`":
        return written[1:-1]
    return _ESCAPE_PATTERN.sub(_replace_escape, written[1:-1]) if written[:1] == '"' else written


def _replace_escape(match: re.Match[str]) -> str:
    kind, digits = match[1][:1], match[1][1:]
    if not digits:
        return _CHARACTERS_BY_ESCAPE.get(kind, kind)
    number = int(digits, 16) if kind in "xuU" else int(match[1], 8)
    is_character = number <= _MAX_CODE_POINT and not 0xD800 <= number <= 0xDFFF
    return chr(number) if is_character else "\ufffd"


def _labels_too_large_fault() -> BodyTooLarge:
    return BodyTooLarge(f"The labels of a stream take more than {_MAX_LABELS_BYTES // 1024} KiB.", hint="Send fewer.")


class _PushReader:
    """Makes events of the entries of a push request.

    Its attributes hold the values that all entries of the current stream share.
    """

    def __init__(self, body: Body) -> None:
        self.labelled_body = LabelledBody(max_item_bytes=body.max_item_bytes)
        self._body = body
        self._metadata_budget = MetadataBudget(body)
        self._tenant = body.headers.get(TENANT_HEADER, "")
        self._event_id_counts: Counter[str] = Counter()
        self._next_entry_position = 0
        # The following attributes hold values of the current stream.
        self._current_body_part = ParsedBody()
        self._stream_metadata_fields: dict[str, object] = {}
        self._stream_project: str | None = None
        self._stream_level: str | None = None
        self._stream_metadata_prefix = b""
        self._stream_metadata = _EMPTY_JSON
        self._stream_digest = blake2b(digest_size=_EVENT_ID_BYTES)

    def begin_stream(self, labels: LabelPairs) -> None:
        """Begin a stream. Entries that are added next belong to it and get its labels."""
        service = next((labels[name] for name in SERVICE_NAME_LABELS if labels.get(name)), None)
        self._current_body_part = self.labelled_body.part_for_labels(
            *(label for label in (self._tenant, service) if label)
        )
        self._stream_project = labels.get("project")
        self._stream_level = _find_level_in_labels(labels)
        self._stream_metadata_fields = {"labels": labels} | ({"tenant": self._tenant} if self._tenant else {})
        self._stream_metadata_prefix = _encode(self._stream_metadata_fields)[:-1]
        self._stream_metadata = self._make_event_metadata(_EMPTY_JSON, self._stream_level)
        self._stream_digest = blake2b(
            _encode([self._body.pinned_project, self._stream_metadata_fields]), digest_size=_EVENT_ID_BYTES
        )

    def add_json_entry(self, entry: _PushEntry | msgspec.Raw) -> None:
        """Add an entry as an event, or quarantine it if it cannot be decoded."""
        if isinstance(entry, msgspec.Raw):
            given = bytes(entry)
            try:
                entry = _entry_decoder.decode(given)
            except (msgspec.DecodeError, RecursionError):
                self._quarantine_entry("The entry is not [time, line] or [time, line, metadata].", given)
                return
        level, metadata = self._stream_level, entry.metadata
        if metadata == _NULL_JSON:
            metadata = _EMPTY_JSON
        elif metadata is not _EMPTY_JSON:
            reason, own_level = self._find_metadata_fault_and_level(metadata)
            if reason is not None:
                self._quarantine_entry(reason, _encode(entry))
                return
            level = own_level or level
        self._add_event(_parse_nanoseconds(entry.time), entry.line, metadata, level)

    def add_protobuf_entry(self, entry: Mapping[str, Any]) -> None:
        moment = entry.get("timestamp", {})
        time = moment.get("seconds", 0) * 10**9 + moment.get("nanos", 0)
        pairs = {pair.get("name", ""): pair.get("value", "") for pair in entry.get("metadata", ())}
        metadata = msgspec.Raw(_encode(pairs)) if pairs else _EMPTY_JSON
        self._add_event(time, entry.get("line", ""), metadata, _find_level_in_labels(pairs) or self._stream_level)

    def _find_metadata_fault_and_level(self, metadata: msgspec.Raw) -> tuple[str | None, str | None]:
        """Check the metadata of an entry.

        Return the reason why the metadata cannot be stored, or None; and the log level that the metadata names, or
        None.
        """
        if memoryview(metadata).nbytes > self._body.max_item_bytes:
            return f"The metadata of the entry is larger than {self._body.max_item_bytes} bytes.", None
        try:
            levels = _levels_decoder.decode(metadata)
            return None, _find_level_in_labels(
                {"level": raw_to_text(levels.level), "detected_level": raw_to_text(levels.detected_level)}
            )
        except (msgspec.DecodeError, RecursionError):
            return "The metadata of the entry is not an object, or its level is not a text.", None

    def _add_event(self, time: int | str, line: str, metadata: msgspec.Raw, level: str | None) -> None:
        stored = self._stream_metadata if metadata is _EMPTY_JSON else self._make_event_metadata(metadata, level)
        self._metadata_budget.charge_metadata(stored)
        event = PostedEvent(
            id=self._derive_event_id(time, line, metadata),
            timestamp=time,
            event_message=line,
            project=self._stream_project,
            metadata=stored,
        )
        self._current_body_part.add_event(event, self._take_next_position())

    def _quarantine_entry(self, reason: str, entry: bytes) -> None:
        """Quarantine an entry as a Loki stream that has the same labels and contains only this entry."""
        stream = {"stream": self._stream_metadata_fields["labels"], "values": [msgspec.Raw(entry)]}
        text = _encode(stream)
        self._metadata_budget.charge_metadata(msgspec.Raw(text))
        self._current_body_part.refuse_item(self._take_next_position(), reason, text.decode())

    def _take_next_position(self) -> int:
        """Return the position of the next entry in the request; raise BodyTooLarge if there are too many entries."""
        if self._next_entry_position >= self._body.max_items:
            raise too_many_items_fault(self._body.max_items)
        self._next_entry_position += 1
        return self._next_entry_position - 1

    def _make_event_metadata(self, metadata: msgspec.Raw, level: str | None) -> msgspec.Raw:
        """Return the metadata of an event, made of its stream's labels, its own metadata, and its log level."""
        own = b',"structured_metadata":' + bytes(metadata) if metadata is not _EMPTY_JSON else b""
        named = b',"level":' + _encode(level) if level else b""
        return msgspec.Raw(self._stream_metadata_prefix + own + named + b"}")

    def _derive_event_id(self, time: int | str, line: str, metadata: msgspec.Raw) -> str | None:
        """Return an id that is the same if the push is repeated, or None for an entry without a valid time.

        If equal entries occur in one push, the ids of all but the first end in a number, so that none of them counts as
        a duplicate.
        """
        if not isinstance(time, int) or time <= 0:
            return None
        digest = self._stream_digest.copy()
        digest.update(b"%d %b\0" % (time, line.encode()))
        digest.update(bytes(metadata))
        found = digest.hexdigest()
        self._event_id_counts[found] += 1
        number = self._event_id_counts[found]
        return found if number == 1 else f"{found}-{number}"


_MAX_TIME_DIGITS: Final = 20


def _parse_nanoseconds(time: str | int) -> int | str:
    """Return a time that is written in digits as a number; return any other value unchanged."""
    if isinstance(time, str) and len(time) <= _MAX_TIME_DIGITS and time.isascii() and time.isdecimal():
        return int(time)
    return time


def _find_level_in_labels(pairs: Mapping[str, str | None]) -> str | None:
    found = pairs.get("level") or pairs.get("detected_level")
    return found.lower() if found else None
