"""JSON bodies: events and NDJSON, events with type casts, objects that are stored whole, Logpush, Vector, CloudEvents.

A JSON body is one event, an array of events, or an object with an array `batch`. NDJSON has one event per line. Lines
that cannot be decoded are quarantined, and the other lines are stored.
"""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import (
    TOO_DEEP_REASON,
    RawFields,
    add_event_from_fields,
    add_items,
    check_line_count,
    check_object_count,
    decode_fields,
    decode_json_value,
    raw_to_scalar,
    raw_to_text,
    split_items,
    too_many_items_fault,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, ParsedBody, PostedEvent

_event_decoder = msgspec.json.Decoder(PostedEvent)

# The first bracket of a body is searched only in this many characters. A body with more white space before the bracket
# is not expected, and is decoded in a slower way.
_MAX_LEADING_WHITESPACE = 64
_event_array_decoder = msgspec.json.Decoder(list[PostedEvent])
_encode = msgspec.json.Encoder().encode
_MAX_TYPECASTS = 1000
_PATH_EXCERPT_LENGTH = 200


def read_ndjson(body: Body) -> ParsedBody:
    parsed = ParsedBody.create_empty_for_body(body)
    for index, line in non_blank_lines(body.text, body.max_items):
        _add_event_of_line(line, index, parsed)
    return require_events(parsed)


def non_blank_lines(text: str, limit: int) -> Iterator[tuple[int, str]]:
    """Yield each line that is not blank, with its index from 0; raise BodyTooLarge for more than `limit` of them."""
    check_line_count(text, limit)
    found = 0
    for index, line in enumerate(text.split("\n")):
        if line and not line.isspace():
            found += 1
            if found > limit:
                raise too_many_items_fault(limit)
            yield index, line.rstrip("\r")


def require_events(parsed: ParsedBody) -> ParsedBody:
    """Return the decoded body; raise BadBody if it has refused items but no event."""
    if parsed.refused_items and not parsed.events:
        first = parsed.refused_items[0]
        raise BadBody(f"No line can be read. Line {first.index + 1}: {first.reason}")
    return parsed


def _add_event_of_line(line: str, index: int, parsed: ParsedBody) -> None:
    try:
        parsed.add_event(_event_decoder.decode(line), index)
    except (msgspec.DecodeError, RecursionError):
        fields = decode_fields(without_unpaired_surrogates(line), index, parsed)
        if fields is not None:
            add_event_from_fields(fields, index, parsed)


class _BatchDocument(msgspec.Struct, forbid_unknown_fields=True):
    batch: list[PostedEvent]


_batch_decoder = msgspec.json.Decoder(_BatchDocument)


def read_json_events(body: Body) -> ParsedBody:
    # Decode an ASCII body as bytes, because a string would double its memory.
    plain = body.data if body.data.isascii() else body.text
    check_object_count(plain, body.max_items)
    try:
        return _decode_common_layouts(plain)
    except (msgspec.DecodeError, RecursionError):
        return add_items(
            split_items(without_unpaired_surrogates(body.text), body.max_items), ParsedBody.create_empty_for_body(body)
        )


def _decode_common_layouts(text: bytes | str) -> ParsedBody:
    """Decode an array of events, or an object with `batch`; raise msgspec.DecodeError for any other text.

    No Python code runs for each event, so this is fast.
    """
    if text[:_MAX_LEADING_WHITESPACE].lstrip()[:1] in {"[", b"["}:
        return ParsedBody(_event_array_decoder.decode(text))
    return ParsedBody(_batch_decoder.decode(text).batch)


def read_events_with_typecasts(body: Body) -> ParsedBody:
    """Decode items such as `{"body": {…}, "typecasts": [{"path": […], "from": "string", "to": "float"}]}`.

    An item whose type casts fail is quarantined.
    """
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in enumerate(split_items(without_unpaired_surrogates(body.text), body.max_items)):
        fields = decode_fields(item, index, parsed)
        if fields is None:
            continue
        if {"body", "typecasts"} <= fields.keys():
            try:
                fields = decode_fields(_apply_typecasts(fields["body"], fields["typecasts"]), index, parsed)
            except ValueError as problem:
                parsed.refuse_item(index, str(problem), item)
                continue
        if fields is not None:
            add_event_from_fields(fields, index, parsed)
    return parsed


def _apply_typecasts(body: msgspec.Raw, typecasts: msgspec.Raw) -> str:
    """Return the event as JSON with its type casts applied; raise ValueError if one of them fails."""
    try:
        event, directions = decode_json_value(body), decode_json_value(typecasts)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(TOO_DEEP_REASON) from None
    if not isinstance(event, dict) or not isinstance(directions, list) or len(directions) > _MAX_TYPECASTS:
        raise ValueError(f"body is not an object, or typecasts not a list of at most {_MAX_TYPECASTS}.")
    for cast in directions:
        path = cast.get("path") if isinstance(cast, dict) else None
        if isinstance(path, list) and path and (cast.get("from"), cast.get("to")) == ("string", "float"):
            _cast_number_at_path(event, path)
    return _encode(event).decode()


def _cast_number_at_path(event: dict[str, Any], path: list[object]) -> None:
    """Convert the text at a path to a number, in every record to which the path leads.

    If there is no text at the path, nothing is changed.
    """
    *outer, last = (str(step) for step in path)
    records: list[Any] = [event]
    for step in outer:
        found = [record.get(step) for record in records if isinstance(record, dict)]
        records = [one for value in found for one in (value if isinstance(value, list) else [value])]
    for record in records:
        value = record.get(last) if isinstance(record, dict) else None
        if isinstance(value, str):
            record[last] = _cast_number(value, ".".join((*outer, last))[:_PATH_EXCERPT_LENGTH])


def _cast_number(text: str, path: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"The text at {path} is not a number.")
    return number


def read_objects_as_messages(body: Body) -> ParsedBody:
    """Decode objects for the routes `/json` and `/browser/reports`.

    The JSON text of an object becomes the message of an event, and the object itself the metadata. The time of the
    event is the time of receipt.
    """
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in enumerate(split_items(without_unpaired_surrogates(body.text), body.max_items)):
        if decode_fields(item, index, parsed) is not None:
            parsed.add_event(PostedEvent(event_message=item, metadata=msgspec.Raw(item.encode())), index)
    return parsed


def read_logpush(body: Body) -> ParsedBody:
    """Decode a body of Cloudflare Logpush, in which each line or each item of an array is an event.

    The time of an event is the time at which Cloudflare's edge received the request.
    """
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in _lines_or_items(body):
        fields = decode_fields(item, index, parsed)
        if fields is not None:
            timestamp = raw_to_scalar(
                fields.get("EdgeStartTimestamp") or fields.get("Datetime") or fields.get("Timestamp")
            )
            event = PostedEvent(timestamp=timestamp, event_message=item, metadata=msgspec.Raw(item.encode()))
            parsed.add_event(event, index)
    return require_events(parsed)


def read_vector(body: Body) -> ParsedBody:
    """Decode the events of Vector.

    `message` and `timestamp` become the event's message and time, other fields its metadata.
    """
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in _lines_or_items(body):
        fields = decode_fields(item, index, parsed)
        if fields is not None:
            parsed.add_event(_vector_event(fields), index)
    return require_events(parsed)


def _vector_event(fields: RawFields) -> PostedEvent:
    message, timestamp = raw_to_text(fields.pop("message", None)), raw_to_scalar(fields.pop("timestamp", None))
    metadata = _encode(fields)
    return PostedEvent(
        timestamp=timestamp,
        event_message=metadata.decode() if message is None else message,
        project=raw_to_text(fields.get("project")),
        metadata=msgspec.Raw(metadata),
    )


def _lines_or_items(body: Body) -> Iterator[tuple[int, str]]:
    """Yield the lines of a body with their index; if the body is an array or one JSON object, yield its items."""
    text = without_unpaired_surrogates(body.text)
    is_document = text.lstrip()[:1] == "[" or (body.media_type == "application/json" and "\n" not in text.strip())
    if is_document:
        yield from enumerate(split_items(text, body.max_items))
    else:
        yield from non_blank_lines(text, body.max_items)


def read_cloud_events(body: Body) -> ParsedBody:
    """Decode CloudEvents, whose attributes are `ce-` headers (binary mode) or members (structured mode)."""
    attributes = {
        name.removeprefix("ce-").replace("-", "_"): value
        for name, value in body.headers.items()
        if name.startswith("ce-")
    }
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in enumerate(split_items(without_unpaired_surrogates(body.text), body.max_items)):
        fields = decode_fields(item, index, parsed)
        if fields is not None:
            _add_cloud_event_attributes(fields, attributes)
            add_event_from_fields(fields, index, parsed)
    return parsed


def _add_cloud_event_attributes(fields: RawFields, attributes: dict[str, str]) -> None:
    """Add the attributes from the headers of a CloudEvent to the event's fields.

    The time of the event is its field `timestamp`, else the time in the headers, else its field `time`.
    """
    if attributes:
        fields["cloud_event"] = msgspec.Raw(_encode(attributes))
    time = msgspec.Raw(_encode(attributes["time"])) if "time" in attributes else fields.get("time")
    if "timestamp" not in fields and time is not None:
        fields["timestamp"] = time
