"""Formats that store each object unchanged as an event's metadata: plain JSON, browser reports, Logpush, Vector."""

from collections.abc import Iterator

import msgspec

from cordwood.ingest.documents import fields_of, items_of, mended
from cordwood.ingest.formats.ndjson import lines_of, with_something
from cordwood.ingest.items import Fields, scalar_of, text_of
from cordwood.ingest.posted import Body, Posted, Reading

_encode = msgspec.json.Encoder().encode


def read_whole(body: Body) -> Reading:
    """Decode `/json` and `/browser/reports`: the message is the object's text, the time is that of receipt."""
    reading = Reading.of(body)
    for index, item in enumerate(items_of(mended(body.text), body.most_items)):
        if fields_of(item, index, reading) is not None:
            reading.add(Posted(event_message=item, metadata=msgspec.Raw(item.encode())), index)
    return reading


def read_logpush(body: Body) -> Reading:
    """Decode Cloudflare Logpush: one event for each line or item, at the time when the edge received the request."""
    reading = Reading.of(body)
    for index, item in _lines_or_items(body):
        fields = fields_of(item, index, reading)
        if fields is not None:
            timestamp = scalar_of(fields.get("EdgeStartTimestamp") or fields.get("Datetime") or fields.get("Timestamp"))
            event = Posted(timestamp=timestamp, event_message=item, metadata=msgspec.Raw(item.encode()))
            reading.add(event, index)
    return with_something(reading)


def read_vector(body: Body) -> Reading:
    """Decode Vector's events: `message` and `timestamp` are the event's, all other fields are metadata."""
    reading = Reading.of(body)
    for index, item in _lines_or_items(body):
        fields = fields_of(item, index, reading)
        if fields is not None:
            reading.add(_vector_event(fields), index)
    return with_something(reading)


def _vector_event(fields: Fields) -> Posted:
    message, timestamp = text_of(fields.pop("message", None)), scalar_of(fields.pop("timestamp", None))
    metadata = _encode(fields)
    return Posted(
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
