"""The events of Splunk's HTTP Event Collector: concatenated JSON objects, or raw lines.

An event that is a text is the message; one that is an object is stored as `metadata.event`. The labels of an event are
its index and its source type.
"""

from collections.abc import Mapping

import msgspec

from cordwood.errors import NoReadableItem
from cordwood.ingest.formats.json import lines_of
from cordwood.ingest.items import (
    Fields,
    fields_of,
    items_of,
    objects_of,
    scalar_of,
    text_of,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, LabelledBody, Labels, MetadataBudget, ParsedBody, PostedEvent

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

EVENT_REQUIRED = "Event field is required."
EVENT_BLANK = "Event field cannot be blank."
NOT_JSON = "The events end here with something that is not a JSON object."

# Fields that may also be parameters of the URL, for all events of the body.
URL_FIELDS = ("time", "host", "source", "sourcetype", "index")
_EMPTY = msgspec.Raw(b"")
_MESSAGES = ("message", "line", "log", "msg")


class HecBody(LabelledBody):
    """A decoded body. `broken_at` is the position of the event at which decoding had to stop; the rest is lost."""

    count: int = 0
    broken_at: int | None = None


def read_events(shared: Mapping[str, str], body: Body) -> HecBody:
    """Decode concatenated JSON objects, or an array of them. `shared` has fields for events that lack them."""
    found, aside, budget = HecBody(item_bytes=body.item_bytes), ParsedBody.of(body), MetadataBudget(body)
    more = _shared(shared)
    text = without_unpaired_surrogates(body.text)
    is_array = text[:64].lstrip()[:1] == "["
    for index, item in enumerate(items_of(text, body.max_items) if is_array else objects_of(text, body.max_items)):
        if item is None:
            found.broken_at = index
            break
        found.count += 1
        fields = fields_of(item, index, aside)
        if fields is not None:
            event = _add({**more, **fields}, index, item, found)
            budget.take(event.metadata if event else _EMPTY)
    found.add_undecoded(aside)
    if found.broken_at is not None and not any(part.events for part in found.parts.values()):
        raise NoReadableItem(found.broken_at, NOT_JSON)
    return found


def read_raw(shared: Mapping[str, str], body: Body) -> HecBody:
    """Decode raw text, with one event per line."""
    found, budget = HecBody(item_bytes=body.item_bytes), MetadataBudget(body)
    more = _shared(shared)
    for index, line in lines_of(body.text, body.max_items):
        found.count += 1
        event = _event({**more, "event": msgspec.Raw(_encode(line))})
        budget.take(event.metadata)
        found.part(*_labels(more)).add(event, index)
    return found


def _shared(shared: Mapping[str, str]) -> Fields:
    return {name: msgspec.Raw(_encode(shared[name])) for name in URL_FIELDS if shared.get(name)}


def _add(fields: Fields, index: int, item: str, found: HecBody) -> PostedEvent | None:
    """Add an event to the part of its labels; return None after quarantining an item that is not an event."""
    part, sent = found.part(*_labels(fields)), bytes(fields.get("event", b"null"))
    if sent in (b"null", b'""'):
        part.refuse(index, EVENT_REQUIRED if sent == b"null" else EVENT_BLANK, item)
        return None
    event = _event(fields)
    part.add(event, index)
    return event


def _labels(fields: Fields) -> Labels:
    found = (text_of(fields.get(name)) for name in ("index", "sourcetype"))
    return tuple(label for label in found if label)


def _event(fields: Fields) -> PostedEvent:
    event, timestamp = fields["event"], scalar_of(fields.pop("time", None))
    inner, indexed = _object(event), _object(fields.get("fields"))
    if inner or not bytes(event).startswith(b'"'):
        spoken = next((text_of(inner[name]) for name in _MESSAGES if name in inner), None)
        message = spoken or text_of(event)
    else:
        message = text_of(fields.pop("event"))
    return PostedEvent(
        timestamp=timestamp,
        event_message=message,
        project=text_of(indexed.get("project")) or text_of(inner.get("project")),
        metadata=msgspec.Raw(_encode(fields)),
    )


def _object(value: msgspec.Raw | None) -> Fields:
    """Return the members of an object, or none for any other value."""
    if value is None or not bytes(value).startswith(b"{"):
        return {}
    try:
        return _fields.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return {}
