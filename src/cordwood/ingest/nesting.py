"""The nesting depth of JSON text, found without decoding it, since a decoder's limit depends on the call stack."""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from cordwood.model.event import Event

# The nesting levels that the metadata, or the other fields, of an event may have. The time that DuckDB takes for a
# VARIANT grows with the square of its depth: 10 MB of events take 9 s of processor time at 100 levels, and minutes at
# 480. Meanwhile nothing else is stored and the process cannot stop.
MOST_LEVELS: Final = 100

_TEXT: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TOKEN: Final = re.compile(rf"{_TEXT.pattern}|[\[\]{{}}]", re.DOTALL)
# Brackets are mapped to indexes into `_STEPS`.
_STEPS: Final = (-1, 1)
_AS_STEPS: Final = bytes.maketrans(b"[{]}", bytes((1, 1, 0, 0)))
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


def is_too_deep(event: Event) -> bool:
    metadata, extras = event.metadata, event.extras
    return bool(
        (metadata is not None and len(metadata) > 2 * MOST_LEVELS and _is_deeper(metadata))
        or (extras is not None and len(extras) > 2 * MOST_LEVELS and _is_deeper(extras))
    )


def cut_below(text: str, levels: int) -> str:
    """Return the JSON text with null in place of every object and array below a depth."""
    kept: list[str] = []
    end = 0
    for bracket, depth in _brackets(text):
        if depth == levels + 1 and bracket[0] in "[{":
            kept += text[end : bracket.start()], "null"
        elif depth == levels and bracket[0] in "]}":
            end = bracket.end()
    return "".join((*kept, text[end:]))


def _is_deeper(text: str) -> bool:
    # A quick upper bound: most texts have fewer brackets in all.
    if text.count("{") + text.count("[") <= MOST_LEVELS:
        return False
    brackets = _TEXT.sub("", text).encode().translate(_AS_STEPS, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MOST_LEVELS


def _brackets(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the brackets outside of strings with the depth after each."""
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        else:
            continue
        yield token, depth
