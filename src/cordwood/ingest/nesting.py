"""How deep JSON text is nested, found without decoding it: a decoder gives up at a depth that depends on its callers."""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from cordwood.model.event import Event

# Levels of objects and arrays that the metadata, or the other fields, of an event may have. DuckDB's work for a VARIANT
# grows with the square of its depth: 10 MB of events are stored in 9 s of the processor where they are 100 levels deep,
# and in minutes where they are 480; meanwhile nothing else is stored, and the process does not end.
MOST_LEVELS: Final = 100

_TEXT: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TOKEN: Final = re.compile(rf"{_TEXT.pattern}|[\[\]{{}}]", re.DOTALL)
# A bracket as the index of its step in `_STEPS`.
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
    """The same JSON with null in place of each object and array that lies deeper."""
    kept: list[str] = []
    end = 0
    for bracket, depth in _brackets(text):
        if depth == levels + 1 and bracket[0] in "[{":
            kept += text[end : bracket.start()], "null"
        elif depth == levels and bracket[0] in "]}":
            end = bracket.end()
    return "".join((*kept, text[end:]))


def _is_deeper(text: str) -> bool:
    # Most texts have fewer brackets, wherever these stand.
    if text.count("{") + text.count("[") <= MOST_LEVELS:
        return False
    brackets = _TEXT.sub("", text).encode().translate(_AS_STEPS, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MOST_LEVELS


def _brackets(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The brackets outside of texts, each with the depth after it."""
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
