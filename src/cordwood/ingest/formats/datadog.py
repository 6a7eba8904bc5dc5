"""Datadog's log intake: an array of objects, one object, or plain text with one event per line.

Message, time and `project` become those of the event; all other attributes become metadata, and `ddtags` is also split
into `tags`. The labels of an event are its service and its source.
"""

from collections.abc import Mapping

import msgspec

from cordwood.ingest.formats.json import lines_of
from cordwood.ingest.items import Fields, fields_of, items_of, scalar_of, text_of, without_unpaired_surrogates
from cordwood.ingest.parsed_body import Body, LabelledBody, Labels, MetadataBudget, ParsedBody, PostedEvent

_encode = msgspec.json.Encoder().encode

# The attributes that Datadog reads as the time of an event, in its order of precedence.
_TIME_ATTRIBUTES = ("@timestamp", "timestamp", "_timestamp", "Timestamp", "eventTime", "date", "published_date")
# Attributes that may also be parameters of the URL, for all events of the body.
URL_ATTRIBUTES = ("ddsource", "ddtags", "hostname", "service")


def read_logs(shared: Mapping[str, str], body: Body) -> LabelledBody:
    """Decode a body. `shared` has attributes for events that lack them. An empty object is a connection test."""
    labelled, budget = LabelledBody(item_bytes=body.item_bytes), MetadataBudget(body)
    more = {name: msgspec.Raw(_encode(shared[name])) for name in URL_ATTRIBUTES if shared.get(name)}
    if body.media_type == "text/plain":
        for index, line in lines_of(body.text, body.max_items):
            _add({"message": msgspec.Raw(_encode(line)), **more}, index, labelled, budget)
        return labelled
    text, aside = without_unpaired_surrogates(body.text), ParsedBody.of(body)
    for index, item in enumerate(items_of(text, body.max_items) if text.strip() else ()):
        fields = fields_of(item, index, aside)
        if fields:
            _add({**more, **fields}, index, labelled, budget)
    labelled.add_undecoded(aside)
    return labelled


def _add(fields: Fields, index: int, labelled: LabelledBody, budget: MetadataBudget) -> None:
    part, event = labelled.part(*_labels(fields)), _event(fields)
    budget.take(event.metadata)
    part.add(event, index)


def _labels(fields: Fields) -> Labels:
    found = (text_of(fields.get(name)) for name in ("service", "ddsource"))
    return tuple(label for label in found if label)


def _event(fields: Fields) -> PostedEvent:
    message = text_of(fields.pop("message", None))
    time = next((name for name in _TIME_ATTRIBUTES if name in fields), None)
    timestamp = scalar_of(fields.pop(time)) if time else None
    tags = text_of(fields.get("ddtags"))
    if tags and "tags" not in fields:
        fields["tags"] = msgspec.Raw(_encode(_tags(tags)))
    metadata = _encode(fields)
    return PostedEvent(
        timestamp=timestamp,
        event_message=metadata.decode() if message is None else message,
        project=text_of(fields.get("project")),
        metadata=msgspec.Raw(metadata),
    )


def _tags(text: str) -> Mapping[str, str | list[str]]:
    """Split `env:prod,team:a`. A repeated name has all of its values, a tag without a value an empty one."""
    found: dict[str, list[str]] = {}
    for tag in text.split(","):
        name, _, value = tag.strip().partition(":")
        if name:
            found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
