"""JSON: one event, an array of events, or an object whose `batch` is such an array."""

import msgspec

from cordwood.ingest.documents import items_of, mended
from cordwood.ingest.items import read_items
from cordwood.ingest.posted import Body, Posted, Reading


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch: list[Posted]


_array = msgspec.json.Decoder(list[Posted])
_batch = msgspec.json.Decoder(_Batch)


def read_json(body: Body) -> Reading:
    text = body.text
    try:
        return _read_straight(text)
    except (msgspec.DecodeError, RecursionError):
        return read_items(items_of(mended(text)))


def _read_straight(text: str) -> Reading:
    """The common forms, without a step in Python for each event."""
    if text.lstrip()[:1] == "[":
        return Reading(_array.decode(text))
    return Reading(_batch.decode(text).batch)
