"""JSON bodies: one event, an array of events, or an object with a `batch` array."""

import msgspec

from cordwood.ingest.documents import items_of, mended
from cordwood.ingest.item_count import check_objects
from cordwood.ingest.items import read_items
from cordwood.ingest.posted import Body, Posted, Reading

# More white space before the first bracket is not expected.
_BLANKS = 64


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    batch: list[Posted]


_array = msgspec.json.Decoder(list[Posted])
_batch = msgspec.json.Decoder(_Batch)


def read_json(body: Body) -> Reading:
    # Decode ASCII from the body itself: a string would double its memory.
    plain = body.data if body.data.isascii() else body.text
    check_objects(plain, body.most_items)
    try:
        return _read_straight(plain)
    except (msgspec.DecodeError, RecursionError):
        return read_items(items_of(mended(body.text), body.most_items), Reading.of(body))


def _read_straight(text: bytes | str) -> Reading:
    """Decode the common forms without any Python code for single events."""
    if text[:_BLANKS].lstrip()[:1] in {"[", b"["}:
        return Reading(_array.decode(text))
    return Reading(_batch.decode(text).batch)
