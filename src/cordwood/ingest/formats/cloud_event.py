"""CloudEvents over HTTP: attributes in `ce-` headers (binary mode) or in the object itself (structured mode)."""

import msgspec

from cordwood.ingest.items import Fields, add_fields, fields_of, items_of, mended
from cordwood.ingest.parsed_body import Body, ParsedBody

_encode = msgspec.json.Encoder().encode


def read_cloud_events(body: Body) -> ParsedBody:
    attributes = {
        name.removeprefix("ce-").replace("-", "_"): value
        for name, value in body.headers.items()
        if name.startswith("ce-")
    }
    parsed = ParsedBody.of(body)
    for index, item in enumerate(items_of(mended(body.text), body.most_items)):
        fields = fields_of(item, index, parsed)
        if fields is not None:
            _add_attributes(fields, attributes)
            add_fields(fields, index, parsed)
    return parsed


def _add_attributes(fields: Fields, attributes: dict[str, str]) -> None:
    """Add the attributes.

    A `timestamp` field has precedence over the headers' time, and that over the object's `time`.
    """
    if attributes:
        fields["cloud_event"] = msgspec.Raw(_encode(attributes))
    time = msgspec.Raw(_encode(attributes["time"])) if "time" in attributes else fields.get("time")
    if "timestamp" not in fields and time is not None:
        fields["timestamp"] = time
