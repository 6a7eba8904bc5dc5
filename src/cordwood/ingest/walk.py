"""Walks the values of one event: every path, the kinds found there, and the paths of its objects."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cordwood.model.event import Event
from cordwood.model.shape import ELEMENT, Path, ValueKind

Found = dict[Path, set[ValueKind]]

_decode = msgspec.json.Decoder().decode


def look(event: Event, found: Found, objects: list[Path]) -> None:
    """Add what the event holds to `found`; a path at which there is only null has no kind."""
    if event.project is not None:
        found.setdefault(("project",), set()).add(ValueKind.TEXT)
    if event.metadata is not None:
        _note(_value(event.metadata), ("metadata",), found, objects)
    if event.extras is not None:
        for key, value in _items(_value(event.extras)):
            _note(value, (key,), found, objects)


def texts_at(metadata: str | None, steps: Sequence[str]) -> Iterator[str]:
    """The values at a path inside the metadata, as text; of every record where records stand in an array."""
    return _texts(_value(metadata) if metadata is not None else None, steps)


def _texts(value: object, steps: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _texts(one, steps)
    elif steps:
        yield from _texts(value.get(steps[0]) if isinstance(value, dict) else None, steps[1:])
    elif value is not None and not isinstance(value, dict):
        yield value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _value(text: str) -> object:
    """Nothing is learnt from what cannot be read."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def _note(value: object, path: Path, found: Found, objects: list[Path]) -> None:
    kinds = found.setdefault(path, set())
    if value is None:
        return
    kinds.add(_kind(value))
    if isinstance(value, dict):
        if ELEMENT not in path:
            objects.append(path)
        for key, one in value.items():
            _note(one, (*path, key), found, objects)
    elif isinstance(value, list):
        for one in value:
            _note(one, (*path, ELEMENT), found, objects)


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
