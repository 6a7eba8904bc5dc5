"""The format of Splunk's HTTP Event Collector (HEC): concatenated JSON objects, or raw lines.

If the member `event` is a text, it becomes the message. If it is an object, it is stored as `metadata.event`. The
labels of an event, by which its stream is chosen, are its index and its source type.
"""

from collections.abc import Mapping

import msgspec

from cordwood.errors import NoReadableItem
from cordwood.ingest.formats.json import non_blank_lines
from cordwood.ingest.items import (
    RawFields,
    decode_fields,
    raw_to_scalar,
    raw_to_text,
    split_items,
    split_objects,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, LabelledBody, MetadataBudget, ParsedBody, PostedEvent, StreamLabels

_encode = msgspec.json.Encoder().encode
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

EVENT_REQUIRED_MESSAGE = "Event field is required."
EVENT_BLANK_MESSAGE = "Event field cannot be blank."
NOT_JSON_MESSAGE = "The events end here with something that is not a JSON object."

# The fields that may also be sent as parameters of the URL. A parameter applies to every event of the body that lacks
# the field.
QUERY_PARAMETER_FIELDS = ("time", "host", "source", "sourcetype", "index")
_EMPTY_JSON = msgspec.Raw(b"")
_MESSAGE_FIELDS = ("message", "line", "log", "msg")


class HecBody(LabelledBody):
    """A decoded body.

    `first_undecodable_index` is the position of the first item that could not be decoded as a JSON object, or None. The
    body from this item on is lost.
    """

    event_count: int = 0
    first_undecodable_index: int | None = None


def read_events(shared: Mapping[str, str], body: Body) -> HecBody:
    """Decode concatenated JSON objects, or an array of them.

    `shared` has the fields from the URL, for events that lack them.
    """
    found, aside, budget = (
        HecBody(max_item_bytes=body.max_item_bytes),
        ParsedBody.create_empty_for_body(body),
        MetadataBudget(body),
    )
    more = _encode_shared_fields(shared)
    text = without_unpaired_surrogates(body.text)
    is_array = text[:64].lstrip()[:1] == "["
    for index, item in enumerate(
        split_items(text, body.max_items) if is_array else split_objects(text, body.max_items)
    ):
        if item is None:
            found.first_undecodable_index = index
            break
        found.event_count += 1
        fields = decode_fields(item, index, aside)
        if fields is not None:
            event = _add_event_or_refuse_item({**more, **fields}, index, item, found)
            budget.charge_metadata(event.metadata if event else _EMPTY_JSON)
    found.add_refused_items(aside)
    if found.first_undecodable_index is not None and not any(part.events for part in found.parts_by_labels.values()):
        raise NoReadableItem(found.first_undecodable_index, NOT_JSON_MESSAGE)
    return found


def read_raw_lines(shared: Mapping[str, str], body: Body) -> HecBody:
    """Decode raw text, with one event per line. `shared` has fields from the URL, which all events get."""
    found, budget = HecBody(max_item_bytes=body.max_item_bytes), MetadataBudget(body)
    more = _encode_shared_fields(shared)
    for index, line in non_blank_lines(body.text, body.max_items):
        found.event_count += 1
        event = _make_event({**more, "event": msgspec.Raw(_encode(line))})
        budget.charge_metadata(event.metadata)
        found.part_for_labels(*_stream_labels(more)).add_event(event, index)
    return found


def _encode_shared_fields(shared: Mapping[str, str]) -> RawFields:
    return {name: msgspec.Raw(_encode(shared[name])) for name in QUERY_PARAMETER_FIELDS if shared.get(name)}


def _add_event_or_refuse_item(fields: RawFields, index: int, item: str, found: HecBody) -> PostedEvent | None:
    """Add the event of an item to the part of the body that has its labels; return the event.

    If the item is not a valid event, quarantine it and return None.
    """
    part, sent = found.part_for_labels(*_stream_labels(fields)), bytes(fields.get("event", b"null"))
    if sent in (b"null", b'""'):
        part.refuse_item(index, EVENT_REQUIRED_MESSAGE if sent == b"null" else EVENT_BLANK_MESSAGE, item)
        return None
    event = _make_event(fields)
    part.add_event(event, index)
    return event


def _stream_labels(fields: RawFields) -> StreamLabels:
    found = (raw_to_text(fields.get(name)) for name in ("index", "sourcetype"))
    return tuple(label for label in found if label)


def _make_event(fields: RawFields) -> PostedEvent:
    event, timestamp = fields["event"], raw_to_scalar(fields.pop("time", None))
    inner, indexed = _decode_object_or_empty(event), _decode_object_or_empty(fields.get("fields"))
    if inner or not bytes(event).startswith(b'"'):
        spoken = next((raw_to_text(inner[name]) for name in _MESSAGE_FIELDS if name in inner), None)
        message = spoken or raw_to_text(event)
    else:
        message = raw_to_text(fields.pop("event"))
    return PostedEvent(
        timestamp=timestamp,
        event_message=message,
        project=raw_to_text(indexed.get("project")) or raw_to_text(inner.get("project")),
        metadata=msgspec.Raw(_encode(fields)),
    )


def _decode_object_or_empty(value: msgspec.Raw | None) -> RawFields:
    """Return the members of an object, or an empty dict for any other value."""
    if value is None or not bytes(value).startswith(b"{"):
        return {}
    try:
        return _fields_decoder.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return {}
