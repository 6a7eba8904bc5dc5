"""Scans of JSON text without decoding: its nesting depth, and numbers that no engine can store exactly."""

import math
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import msgspec

from cordwood.model.event import Event

# The maximum nesting depth of an event's metadata and of its other fields. The time that DuckDB takes for a VARIANT
# grows with the square of its depth: 10 MB of events take 9 s of processor time at 100 levels, and minutes at 480.
# During that time nothing else is stored and the process cannot stop.
MAX_LEVELS: Final = 100

_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKET_OR_STRING: Final = re.compile(rf"{_STRING.pattern}|[\[\]{{}}]", re.DOTALL)
# Brackets are translated to indexes of `_STEPS`.
_STEPS: Final = (-1, 1)
_BRACKETS_AS_BITS: Final = bytes.maketrans(b"[{]}", bytes((1, 1, 0, 0)))
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


def is_too_deep(event: Event) -> bool:
    metadata, extras = event.metadata, event.extras
    return bool(
        (metadata is not None and len(metadata) > 2 * MAX_LEVELS and _is_deeper(metadata))
        or (extras is not None and len(extras) > 2 * MAX_LEVELS and _is_deeper(extras))
    )


def cut_below(text: str, levels: int) -> str:
    """Return the JSON text with null in place of every object and array below a depth."""
    result: list[str] = []
    end = 0
    for bracket, depth in _brackets(text):
        if depth == levels + 1 and bracket[0] in "[{":
            result += text[end : bracket.start()], "null"
        elif depth == levels and bracket[0] in "]}":
            end = bracket.end()
    return "".join((*result, text[end:]))


def _is_deeper(text: str) -> bool:
    # The number of all brackets is a quick upper bound, which most texts do not reach.
    if text.count("{") + text.count("[") <= MAX_LEVELS:
        return False
    brackets = _STRING.sub("", text).encode().translate(_BRACKETS_AS_BITS, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_LEVELS


def _brackets(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the brackets outside of strings, with the depth after each."""
    depth = 0
    for token in _BRACKET_OR_STRING.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        else:
            continue
        yield token, depth


# Only a text with many digits or a large exponent can contain such a number.
_POSSIBLY_INEXACT_NUMBER = re.compile(r"\d{19}|\d[eE]\+?\d{3}")
_NUMBER_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*')
_MIN_INTEGER, _MOST = -(2**63), 2**64 - 1
_MAX_DIGITS = 20


def with_exact_numbers(event: Event) -> Event:
    """Return the event with out-of-range numbers as strings; 64-bit integers and finite doubles stay numbers."""
    metadata, extras = _with_exact_numbers(event.metadata), _with_exact_numbers(event.extras)
    if metadata is event.metadata and extras is event.extras:
        return event
    return msgspec.structs.replace(event, metadata=metadata, extras=extras)


def _with_exact_numbers(text: str | None) -> str | None:
    if text is None or not _POSSIBLY_INEXACT_NUMBER.search(text):
        return text
    result = _NUMBER_OR_STRING.sub(_as_text_if_needed, text)
    return text if result == text else result


def _as_text_if_needed(token: re.Match[str]) -> str:
    written = token[0]
    return written if written[0] == '"' or _is_exact(written) else f'"{written}"'


def _is_exact(number: str) -> bool:
    if not number.lstrip("-").isdecimal():
        return math.isfinite(float(number))
    return len(number.lstrip("-")) <= _MAX_DIGITS and _MIN_INTEGER <= int(number) <= _MOST
