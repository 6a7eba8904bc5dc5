"""Walk the values of an event: its paths, the kinds of values at each, and the paths of its objects."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

import msgspec

from cordwood.ingest.json_scan import cut_below
from cordwood.model.event import ELEMENT, MAX_STEPS, Event, Path, ValueKind, is_listable

Found = dict[Path, set[ValueKind]]
Member = tuple[Path, object]

# One level more than is listed, to distinguish an object at the end of a path from a null.
_LEVELS: Final = MAX_STEPS + 1

_decode = msgspec.json.Decoder().decode


def collect_paths(event: Event, found: Found, objects: list[Path]) -> None:
    """Add the paths of an event and their kinds to `found`, except paths that are too long to be listed.

    A path with only null has no kind. The walk is iterative, because events may be nested as deep as the decoder
    allows.
    """
    waiting = [_fields(event)]
    while waiting:
        member = next(waiting[-1], None)
        if member is None:
            waiting.pop()
            continue
        path, value = member
        if not is_listable(path):
            continue
        kinds = found.setdefault(path, set())
        if value is None:
            continue
        kinds.add(_kind(value))
        if isinstance(value, dict):
            if ELEMENT not in path:
                objects.append(path)
            waiting.append(_members(path, value))
        elif isinstance(value, list):
            waiting.append(zip(repeat((*path, ELEMENT)), value, strict=False))


def _fields(event: Event) -> Iterator[Member]:
    if event.project is not None:
        yield ("project",), event.project
    if event.metadata is not None:
        yield ("metadata",), _value(event.metadata)
    if event.extras is not None:
        yield from _members((), _value(event.extras))


def _members(path: Path, record: object) -> Iterator[Member]:
    if isinstance(record, dict):
        for key, value in record.items():
            yield (*path, key), value


def texts_at(metadata: str | None, steps: Sequence[str]) -> Iterator[str]:
    """Yield the values at a path of the metadata as text, one for each record if records are in an array."""
    for value in values_at(_value(metadata) if metadata is not None else None, steps):
        if value is not None and not isinstance(value, dict):
            yield value if isinstance(value, str) else msgspec.json.encode(value).decode()


def values_at(value: object, steps: Sequence[str]) -> Iterator[object]:
    """Yield the values at a path. Arrays on the path or at its end are expanded to their elements.

    The walk is iterative, because arrays may be nested as deep as the decoder allows.
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


def _value(text: str) -> object:
    """Decode JSON text; if it is too deep for the decoder, only the levels that can be listed."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None
    except RecursionError:
        return _decode(cut_below(text, _LEVELS))


def _kind(value: object) -> ValueKind:
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
