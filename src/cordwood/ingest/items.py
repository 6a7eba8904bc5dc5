"""Reads one JSON item into an event whatever its keys and types: slower than the straight way, and refuses nothing
but what is no object.
"""

from collections.abc import Sequence

import msgspec

from cordwood.ingest.posted import Posted, Reading, SetAside

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder()
_KNOWN = ("id", "timestamp", "event_message", "message", "project", "metadata")


def read_items(items: Sequence[msgspec.Raw]) -> Reading:
    reading = Reading([], indexes=[])
    for index, item in enumerate(items):
        read_item(item, index, reading)
    return reading


def read_item(item: msgspec.Raw, index: int, reading: Reading) -> None:
    try:
        fields = _fields.decode(item)
    except (msgspec.ValidationError, RecursionError):
        reading.set_aside.append(SetAside(index, "The item is not an object.", bytes(item).decode()))
        return
    add_fields(fields, index, reading)


def add_fields(fields: dict[str, msgspec.Raw], index: int, reading: Reading) -> None:
    known = {name: fields.pop(name) for name in _KNOWN if name in fields}
    posted = Posted(
        id=_text(known.get("id")),
        timestamp=_scalar(known.get("timestamp")),
        event_message=_text(known.get("event_message")),
        message=_text(known.get("message")),
        project=_text(known.get("project")),
        metadata=known.get("metadata", msgspec.Raw(b"")),
    )
    if fields:
        reading.extras[len(reading.events)] = fields
    reading.events.append(posted)
    if reading.indexes is not None:
        reading.indexes.append(index)


def _text(raw: msgspec.Raw | None) -> str | None:
    """A text as it is, another value as its JSON text, null as missing."""
    if raw is None:
        return None
    text = bytes(raw).decode()
    if text.startswith('"'):
        return str(_value.decode(raw))
    return None if text == "null" else text


def _scalar(raw: msgspec.Raw | None) -> str | int | float | None:
    if raw is None:
        return None
    try:
        value = _value.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode()
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None
