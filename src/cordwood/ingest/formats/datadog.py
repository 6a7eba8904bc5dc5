"""The format of Datadog's log intake: an array of objects, one object, or plain text with one event per line.

The message and the time of an object become those of the event. All other attributes become the event's metadata;
`project` is also the project of the event. The text `ddtags` (such as `env:prod,team:a`) is also split into the
metadata field `tags`. The labels of an event, by which its stream is chosen, are its service and its source.
"""

from collections.abc import Mapping

import msgspec

from cordwood.ingest.formats.json import non_blank_lines
from cordwood.ingest.items import (
    RawFields,
    decode_fields,
    raw_to_scalar,
    raw_to_text,
    split_items,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, LabelledBody, MetadataBudget, ParsedBody, PostedEvent, StreamLabels

_encode = msgspec.json.Encoder().encode

# The attributes that Datadog reads as the time of an event, in its order of precedence.
_TIME_ATTRIBUTES = ("@timestamp", "timestamp", "_timestamp", "Timestamp", "eventTime", "date", "published_date")
# The attributes that may also be sent as parameters of the URL. A parameter applies to every event of the body that
# lacks the attribute.
URL_PARAMETER_ATTRIBUTES = ("ddsource", "ddtags", "hostname", "service")


def read_logs(shared: Mapping[str, str], body: Body) -> LabelledBody:
    """Decode a body of Datadog's log intake.

    `shared` has the attributes from the URL, for events that lack them. An empty object is a connection test, and is
    skipped.
    """
    labelled, budget = LabelledBody(max_item_bytes=body.max_item_bytes), MetadataBudget(body)
    more = {name: msgspec.Raw(_encode(shared[name])) for name in URL_PARAMETER_ATTRIBUTES if shared.get(name)}
    if body.media_type == "text/plain":
        for index, line in non_blank_lines(body.text, body.max_items):
            _add_event({"message": msgspec.Raw(_encode(line)), **more}, index, labelled, budget)
        return labelled
    text, aside = without_unpaired_surrogates(body.text), ParsedBody.create_empty_for_body(body)
    for index, item in enumerate(split_items(text, body.max_items) if text.strip() else ()):
        fields = decode_fields(item, index, aside)
        if fields:
            _add_event({**more, **fields}, index, labelled, budget)
    labelled.add_refused_items(aside)
    return labelled


def _add_event(fields: RawFields, index: int, labelled: LabelledBody, budget: MetadataBudget) -> None:
    part, event = labelled.part_for_labels(*_stream_labels(fields)), _make_event(fields)
    budget.charge_metadata(event.metadata)
    part.add_event(event, index)


def _stream_labels(fields: RawFields) -> StreamLabels:
    found = (raw_to_text(fields.get(name)) for name in ("service", "ddsource"))
    return tuple(label for label in found if label)


def _make_event(fields: RawFields) -> PostedEvent:
    message = raw_to_text(fields.pop("message", None))
    time = next((name for name in _TIME_ATTRIBUTES if name in fields), None)
    timestamp = raw_to_scalar(fields.pop(time)) if time else None
    tags = raw_to_text(fields.get("ddtags"))
    if tags and "tags" not in fields:
        fields["tags"] = msgspec.Raw(_encode(_parse_tags(tags)))
    metadata = _encode(fields)
    return PostedEvent(
        timestamp=timestamp,
        event_message=metadata.decode() if message is None else message,
        project=raw_to_text(fields.get("project")),
        metadata=msgspec.Raw(metadata),
    )


def _parse_tags(text: str) -> Mapping[str, str | list[str]]:
    """Parse tags such as `env:prod,team:a`; return the values by name.

    A name that occurs several times gets a list of all its values. A tag without a value gets an empty text.
    """
    found: dict[str, list[str]] = {}
    for tag in text.split(","):
        name, _, value = tag.strip().partition(":")
        if name:
            found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
