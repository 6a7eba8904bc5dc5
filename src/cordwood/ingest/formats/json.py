"""JSON: one event, an array of events, or an object whose `batch` is such an array."""

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import add_fields, read_items
from cordwood.ingest.posted import Posted, Reading


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch: list[Posted]


_array = msgspec.json.Decoder(list[Posted])
_batch = msgspec.json.Decoder(_Batch)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder(msgspec.Raw)


def read_json(text: str) -> Reading:
    try:
        return _read_straight(text)
    except msgspec.ValidationError:
        return _read_any(text)
    except msgspec.DecodeError as problem:
        raise BadBody(f"The body is not JSON: {problem}.") from problem
    except RecursionError:
        raise BadBody("The body is nested too deeply.") from None


def _read_straight(text: str) -> Reading:
    """The common forms, without a step in Python for each event."""
    if text.lstrip()[:1] == "[":
        return Reading(_array.decode(text))
    return Reading(_batch.decode(text).batch)


def _read_any(text: str) -> Reading:
    if text.lstrip()[:1] == "[":
        return read_items(_items.decode(text))
    if text.lstrip()[:1] != "{":
        return read_items([_any.decode(text)])
    fields = _object.decode(text)
    batch = fields.get("batch")
    if batch is not None and bytes(batch).startswith(b"["):
        return read_items(_items.decode(batch))
    reading = Reading([])
    add_fields(fields, 0, reading)
    return reading
