"""CloudEvents over HTTP: attributes in `ce-` headers (binary mode) or in the object itself (structured mode)."""

import msgspec

from cordwood.ingest.documents import fields_of, items_of, mended
from cordwood.ingest.items import Fields, add_fields
from cordwood.ingest.posted import Body, Reading

_encode = msgspec.json.Encoder().encode


def read_cloud_events(body: Body) -> Reading:
    attributes = {
        name.removeprefix("ce-").replace("-", "_"): value
        for name, value in body.headers.items()
        if name.startswith("ce-")
    }
    reading = Reading.of(body)
    for index, item in enumerate(items_of(mended(body.text), body.most_items)):
        fields = fields_of(item, index, reading)
        if fields is not None:
            _add_attributes(fields, attributes)
            add_fields(fields, index, reading)
    return reading


def _add_attributes(fields: Fields, attributes: dict[str, str]) -> None:
    """Add the attributes.

    A `timestamp` field has precedence over the headers' time, and that over the object's `time`.
    """
    if attributes:
        fields["cloud_event"] = msgspec.Raw(_encode(attributes))
    time = msgspec.Raw(_encode(attributes["time"])) if "time" in attributes else fields.get("time")
    if "timestamp" not in fields and time is not None:
        fields["timestamp"] = time
