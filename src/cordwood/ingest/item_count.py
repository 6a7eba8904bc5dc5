"""Bounds on the number of items of a body, checked before they are decoded.

Six kilobytes of gzip can hold three million items, each of which takes a hundred bytes once it is decoded. A cheap
upper bound is the count of a separator, which takes a millisecond; an exact count follows only beyond it.
"""

import re
from typing import Final

import msgspec

from cordwood.errors import TooLarge

# Splitting an item costs a tenth of decoding it, so this many times the limit may be split before exact counting.
_CHEAP_ITEMS: Final = 8
# The bound on the JSON values of one item, in a document of any structure.
_VALUES_OF_AN_ITEM: Final = 64
# The nesting depth of an item that the pattern can skip.
_MOST_LEVELS: Final = 32

_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'


def _one_item(levels: int) -> str:
    """Return a possessive (never backtracking) pattern of one item, up to the comma or bracket after it."""
    inner = rf"(?:[^\"\[\]{{}}]++|{_TEXT})"
    nested = inner
    for _ in range(levels - 1):
        nested = rf"(?:[^\"\[\]{{}}]++|{_TEXT}|[\[{{]{nested}*+[\]}}])"
    return rf"(?:[^\"\[\]{{}},]++|{_TEXT}|[\[{{]{nested}*+[\]}}])*+"


_ITEM: Final = re.compile(_one_item(_MOST_LEVELS).encode(), re.DOTALL)


class _Batch(msgspec.Struct, gc=False):
    batch: msgspec.Raw


_batch = msgspec.json.Decoder(_Batch)


def check_objects(document: bytes | str, most: int) -> None:
    """Raise TooLarge if a JSON array, or the array `batch` of an object, has more than `most` objects."""
    if _count(document, "{") > most:
        _check_exactly(document, most)


def check_items(document: bytes | str, most: int) -> None:
    """Raise TooLarge if an array, or the array `batch` of an object, would be split into far more than `most` items."""
    if _count(document, ",") > most * _CHEAP_ITEMS:
        _check_exactly(document, most)


def check_lines(text: str, most: int) -> None:
    """Raise TooLarge if a text has far more than `most` lines, with empty ones."""
    if _count(text, "\n") > most * _CHEAP_ITEMS:
        raise too_many(most)


def check_values(document: bytes | str, most: int) -> None:
    """Raise TooLarge if a JSON document has more values than `most` items can have."""
    if _count(document, ",") > most * _VALUES_OF_AN_ITEM:
        raise too_many(most)


def too_many(most: int) -> TooLarge:
    return TooLarge(f"The body holds more than {most} items.", hint="Send fewer at once.")


def _count(text: bytes | str, mark: str) -> int:
    return text.count(mark) if isinstance(text, str) else text.count(mark.encode())


def _check_exactly(document: bytes | str, most: int) -> None:
    data = document.encode() if isinstance(document, str) else document
    start = data[:64].lstrip()[:1]
    if start == b"{":
        try:
            data = bytes(_batch.decode(data).batch)
        except (msgspec.DecodeError, RecursionError):
            return
        start = data[:1]
    if start == b"[":
        _count_array(data, data.index(b"[") + 1, most)


def _count_array(data: bytes, at: int, most: int) -> None:
    """Count items one by one, up to the first one beyond the limit."""
    for _ in range(most):
        item = _ITEM.match(data, at)
        at = item.end() if item else at
        after = data[at : at + 1]
        if after in (b"]", b""):
            return
        if after != b",":
            raise TooLarge(
                f"The body has an item of more than {_MOST_LEVELS} levels, and too much beside it.",
                hint="Send less at once.",
            )
        at += 1
    raise too_many(most)
