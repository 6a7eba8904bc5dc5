"""The JSON values of an event: their paths and kinds, nesting depth, and numbers that engines cannot store exactly."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Final

import msgspec

from cordwood.model.event import ARRAY_ELEMENT_STEP, MAX_LISTED_PATH_STEPS, Event, EventPath, ValueKind, is_listable

MutableKindsByPath = dict[EventPath, set[ValueKind]]
PathAndValue = tuple[EventPath, object]

# One level more than the longest path that a shape lists. So an object at the end of such a path is decoded as an
# object, and only the objects inside it become null.
_MAX_DECODED_LEVELS: Final = MAX_LISTED_PATH_STEPS + 1

_decode = msgspec.json.Decoder().decode


def collect_paths(event: Event, found: MutableKindsByPath, objects: list[EventPath]) -> set[EventPath]:
    """Add the paths of an event to `found`, with the kinds of their values; append paths of objects to `objects`.

    Return the parents of paths that are too long to be listed. A path whose value is null gets no kind. Objects inside
    arrays are not appended to `objects`. The walk is iterative, because recursion would fail for events that are nested
    as deeply as the decoder allows.
    """
    waiting = [_top_level_values(event)]
    parents_of_too_long: set[EventPath] = set()
    while waiting:
        member = next(waiting[-1], None)
        if member is None:
            waiting.pop()
            continue
        path, value = member
        if not is_listable(path):
            parents_of_too_long.add(path[:-1])
            continue
        kinds = found.setdefault(path, set())
        if value is None:
            continue
        kinds.add(_value_kind(value))
        if isinstance(value, dict):
            if ARRAY_ELEMENT_STEP not in path:
                objects.append(path)
            waiting.append(_values_by_key(path, value))
        elif isinstance(value, list):
            waiting.append(zip(repeat((*path, ARRAY_ELEMENT_STEP)), value, strict=False))
    return parents_of_too_long


def _top_level_values(event: Event) -> Iterator[PathAndValue]:
    if event.project is not None:
        yield ("project",), event.project
    if event.metadata is not None:
        yield ("metadata",), _decode_json(event.metadata)
    if event.extras is not None:
        yield from _values_by_key((), _decode_json(event.extras))


def _values_by_key(path: EventPath, record: object) -> Iterator[PathAndValue]:
    if isinstance(record, dict):
        for key, value in record.items():
            yield (*path, key), value


def texts_at(metadata: str | None, steps: Sequence[str]) -> Iterator[str]:
    """Yield the values at a path of the metadata as texts; skip null and objects.

    There are several values if the path leads through an array of records.
    """
    for value in values_at(_decode_json(metadata) if metadata is not None else None, steps):
        if value is not None and not isinstance(value, dict):
            yield value if isinstance(value, str) else msgspec.json.encode(value).decode()


def values_at(value: object, steps: Sequence[str]) -> Iterator[object]:
    """Yield the values at a path; an array on the path or at its end yields the values of its elements.

    The walk is iterative, because recursion would fail for arrays that are nested as deeply as the decoder allows.
    """
    waiting = [(value, 0)]
    while waiting:
        one, place = waiting.pop()
        if isinstance(one, list):
            waiting += [(element, place) for element in reversed(one)]
        elif place == len(steps):
            yield one
        elif isinstance(one, dict):
            waiting.append((one.get(steps[place]), place + 1))


def _decode_json(text: str) -> object:
    """Decode JSON text; return None if it is invalid.

    If the text is nested too deeply for the decoder, anything deeper than the paths of a shape becomes null.
    """
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None
    except RecursionError:
        return _decode(replace_deep_values_with_null(text, _MAX_DECODED_LEVELS))


def _value_kind(value: object) -> ValueKind:
    match value:
        case bool():
            return ValueKind.BOOL
        case str():
            return ValueKind.TEXT
        case dict():
            return ValueKind.OBJECT
        case list():
            return ValueKind.ARRAY
        case _:
            return ValueKind.NUMBER


# The maximum nesting depth of an event's metadata and of its other fields. The time that DuckDB takes to store a
# VARIANT (its type for JSON values) grows with the square of the depth: 10 MB of events take 9 s of processor time at
# 100 levels, and minutes at 480. During that time, nothing else is stored and the process cannot stop.
MAX_NESTING_LEVELS: Final = 100

# An unclosed string matches up to the end, so that none of the escaped quotes in it is tried as the start of a string.
_STRING_PATTERN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET_OR_STRING_PATTERN: Final = re.compile(rf"{_STRING_PATTERN.pattern}|[\[\]{{}}]", re.DOTALL)
# To compute the nesting depth, each opening bracket becomes the byte 1 and each closing bracket the byte 0. This byte
# is the index of the change of depth in `_DEPTH_CHANGE_BY_BYTE`.
_DEPTH_CHANGE_BY_BYTE: Final = (-1, 1)
_BRACKET_TRANSLATION: Final = bytes.maketrans(b"[{]}", bytes((1, 1, 0, 0)))
_NON_BRACKET_BYTES: Final = bytes(set(range(256)) - set(b"[{]}"))


def is_too_deep(event: Event) -> bool:
    metadata, extras = event.metadata, event.extras
    return bool(
        (metadata is not None and len(metadata) > 2 * MAX_NESTING_LEVELS and _is_text_too_deep(metadata))
        or (extras is not None and len(extras) > 2 * MAX_NESTING_LEVELS and _is_text_too_deep(extras))
    )


def replace_deep_values_with_null(text: str, levels: int) -> str:
    """Return JSON text with null in place of every object and array that is nested deeper than `levels`."""
    result: list[str] = []
    end = 0
    for bracket, depth in _iterate_brackets(text):
        if depth == levels + 1 and bracket[0] in "[{":
            result += text[end : bracket.start()], "null"
        elif depth == levels and bracket[0] in "]}":
            end = bracket.end()
    return "".join((*result, text[end:]))


def _is_text_too_deep(text: str) -> bool:
    # The depth is at most the number of opening brackets, which is quick to count and small in most texts.
    if text.count("{") + text.count("[") <= MAX_NESTING_LEVELS:
        return False
    brackets = _STRING_PATTERN.sub("", text).encode().translate(_BRACKET_TRANSLATION, _NON_BRACKET_BYTES)
    return max(accumulate(map(_DEPTH_CHANGE_BY_BYTE.__getitem__, brackets)), default=0) > MAX_NESTING_LEVELS


def _iterate_brackets(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the brackets outside of strings, each with the nesting depth that follows the bracket."""
    depth = 0
    for token in _BRACKET_OR_STRING_PATTERN.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        else:
            continue
        yield token, depth


# Only a text that this pattern matches (19 digits in a row, or an exponent of three digits) can contain a number that
# is out of range.
_POSSIBLY_INEXACT_NUMBER_PATTERN = re.compile(r"\d{19}|\d[eE]\+?\d{3}")
_NUMBER_OR_STRING_PATTERN = re.compile(rf"{_STRING_PATTERN.pattern}|-?\d[\d.eE+-]*", re.DOTALL)
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_MAX_INTEGER_DIGITS = 20


def quote_inexact_numbers(event: Event) -> Event:
    """Return the event with out-of-range numbers as strings; 64-bit integers and finite doubles stay numbers."""
    metadata, extras = _quote_inexact_numbers_in_text(event.metadata), _quote_inexact_numbers_in_text(event.extras)
    if metadata is event.metadata and extras is event.extras:
        return event
    return msgspec.structs.replace(event, metadata=metadata, extras=extras)


def _quote_inexact_numbers_in_text(text: str | None) -> str | None:
    if text is None or not _POSSIBLY_INEXACT_NUMBER_PATTERN.search(text):
        return text
    result = _NUMBER_OR_STRING_PATTERN.sub(_quote_if_inexact, text)
    return text if result == text else result


def _quote_if_inexact(token: re.Match[str]) -> str:
    written = token[0]
    return written if written[0] == '"' or _is_exact(written) else f'"{written}"'


def _is_exact(number: str) -> bool:
    if not number.lstrip("-").isdecimal():
        return math.isfinite(float(number))
    return len(number.lstrip("-")) <= _MAX_INTEGER_DIGITS and _MIN_INTEGER <= int(number) <= _MAX_INTEGER
