"""Formats that store each object unchanged as an event's metadata: plain JSON, browser reports, Logpush, Vector."""

from collections.abc import Iterator

import msgspec

from cordwood.ingest.formats.json import lines_of, with_something
from cordwood.ingest.items import Fields, fields_of, items_of, mended, scalar_of, text_of
from cordwood.ingest.parsed_body import Body, ParsedBody, PostedEvent

_encode = msgspec.json.Encoder().encode


def read_whole(body: Body) -> ParsedBody:
    """Decode `/json` and `/browser/reports`: the message is the object's text, the time is that of receipt."""
    parsed = ParsedBody.of(body)
    for index, item in enumerate(items_of(mended(body.text), body.most_items)):
        if fields_of(item, index, parsed) is not None:
            parsed.add(PostedEvent(event_message=item, metadata=msgspec.Raw(item.encode())), index)
    return parsed


def read_logpush(body: Body) -> ParsedBody:
    """Decode Cloudflare Logpush: one event for each line or item, at the time when the edge received the request."""
    parsed = ParsedBody.of(body)
    for index, item in _lines_or_items(body):
        fields = fields_of(item, index, parsed)
        if fields is not None:
            timestamp = scalar_of(fields.get("EdgeStartTimestamp") or fields.get("Datetime") or fields.get("Timestamp"))
            event = PostedEvent(timestamp=timestamp, event_message=item, metadata=msgspec.Raw(item.encode()))
            parsed.add(event, index)
    return with_something(parsed)


def read_vector(body: Body) -> ParsedBody:
    """Decode Vector's events: `message` and `timestamp` are the event's, all other fields are metadata."""
    parsed = ParsedBody.of(body)
    for index, item in _lines_or_items(body):
        fields = fields_of(item, index, parsed)
        if fields is not None:
            parsed.add(_vector_event(fields), index)
    return with_something(parsed)


def _vector_event(fields: Fields) -> PostedEvent:
    message, timestamp = text_of(fields.pop("message", None)), scalar_of(fields.pop("timestamp", None))
    metadata = _encode(fields)
    return PostedEvent(
        timestamp=timestamp,
        event_message=metadata.decode() if message is None else message,
        project=text_of(fields.get("project")),
        metadata=msgspec.Raw(metadata),
    )


def _lines_or_items(body: Body) -> Iterator[tuple[int, str]]:
    """Yield lines, or the items of a document if the body is an array or a single JSON object."""
    text = mended(body.text)
    is_document = text.lstrip()[:1] == "[" or (body.media == "application/json" and "\n" not in text.strip())
    if is_document:
        yield from enumerate(items_of(text, body.most_items))
    else:
        yield from lines_of(text, body.most_items)
