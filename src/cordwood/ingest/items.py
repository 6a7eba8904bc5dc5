"""Convert decoded keys to events of any types: a string as it is, any other value as its JSON text."""

from collections.abc import Sequence

import msgspec

from cordwood.ingest.documents import fields_of
from cordwood.ingest.posted import Posted, Reading

_value = msgspec.json.Decoder()
_KNOWN = ("id", "timestamp", "event_message", "message", "project", "metadata")

Fields = dict[str, msgspec.Raw]


def read_items(items: Sequence[str], reading: Reading) -> Reading:
    """Add the items to an empty reading."""
    for index, item in enumerate(items):
        fields = fields_of(item, index, reading)
        if fields is not None:
            add_fields(fields, index, reading)
    return reading


def add_fields(fields: Fields, index: int, reading: Reading) -> None:
    known = {name: fields.pop(name) for name in _KNOWN if name in fields}
    posted = Posted(
        id=text_of(known.get("id")),
        timestamp=scalar_of(known.get("timestamp")),
        event_message=text_of(known.get("event_message")),
        message=text_of(known.get("message")),
        project=text_of(known.get("project")),
        metadata=known.get("metadata", msgspec.Raw(b"")),
    )
    reading.add(posted, index, fields)


def text_of(raw: msgspec.Raw | None) -> str | None:
    """Return a string as it is, any other value as its JSON text, and None for null."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if text.startswith('"'):
        return str(_value.decode(raw))
    return None if text == "null" else text


def scalar_of(raw: msgspec.Raw | None) -> str | int | float | None:
    if raw is None:
        return None
    try:
        value = _value.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw).decode()
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
