"""The bound on the number of items of a body, checked before they are decoded.

Six kilobytes of gzip can hold three million items, and each costs some hundred bytes once it is decoded. The count is
first bounded from above by counting a separator, which takes a millisecond; only where that says little is it exact.
"""

import re
from typing import Final

import msgspec

from cordwood.errors import TooLarge

# To split a document costs a tenth of reading its items: so many more may be there before they are counted one by one.
_CHEAP_ITEMS: Final = 8
# JSON values of one item of a generic document.
_VALUES_OF_AN_ITEM: Final = 64
# Levels of brackets of an item that is passed over at once.
_MOST_LEVELS: Final = 32

_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)'


def _one_item(levels: int) -> str:
    """A pattern of one item, up to the comma or bracket behind it. It never gives back what it has matched."""
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
    """TooLarge when a JSON array, or the array `batch` of an object, has more than `most` objects."""
    if _count(document, "{") > most:
        _check_exactly(document, most)


def check_items(document: bytes | str, most: int) -> None:
    """TooLarge when to split a JSON array, or the array `batch` of an object, would take many times `most` items."""
    if _count(document, ",") > most * _CHEAP_ITEMS:
        _check_exactly(document, most)


def check_lines(text: str, most: int) -> None:
    """TooLarge for a text of many times `most` lines, the empty ones too."""
    if _count(text, "\n") > most * _CHEAP_ITEMS:
        raise too_many(most)


def check_values(document: bytes | str, most: int) -> None:
    """TooLarge for JSON with more values than `most` items have, whatever its form."""
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
    """One step an item, up to the first that is too many."""
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
