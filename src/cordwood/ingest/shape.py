"""Learns what a stream's events look like before they can be asked for: every path, and the kinds found there."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from cordwood.ingest.fitting import Fitting
from cordwood.model.event import Event
from cordwood.model.shape import ELEMENT, Kinds, Path, Shape, ValueKind

# Past this many paths a stream's new ones stay unlisted: they can be queried, but are not known beforehand.
MAX_PATHS = 5_000
_REBUILD_SECONDS = 1.0

_decode = msgspec.json.Decoder().decode

Found = dict[Path, set[ValueKind]]


class ShapeReader:
    """Looks closely only at events that do not fit what is known: the rest cost a validation each."""

    def __init__(self, shapes: Callable[[], Mapping[str, Shape]]) -> None:
        self._shapes = shapes
        self._fittings: dict[str, Fitting] = {}

    def learn(self, stream: str, events: Sequence[Event]) -> Kinds:
        """What is new to the stream in these events."""
        shape = self._shapes().get(stream, Shape())
        fitting = self._fitting(stream, shape)
        found: Found = {}
        for event in events:
            if not fitting.fits(event):
                _look(event, found)
        return _new(found, shape.kinds)

    def _fitting(self, stream: str, shape: Shape) -> Fitting:
        known = self._fittings.get(stream)
        now = time.monotonic()
        if known is None or (known.version != shape.version and now - known.built > _REBUILD_SECONDS):
            known = Fitting(shape, now, is_full=len(shape.kinds) >= MAX_PATHS)
            self._fittings[stream] = known
        return known


def _look(event: Event, found: Found) -> None:
    if event.project is not None:
        found.setdefault(("project",), set()).add(ValueKind.TEXT)
    if event.metadata is not None:
        _note(_value(event.metadata), ("metadata",), found)
    if event.extras is not None:
        for key, value in _items(_value(event.extras)):
            _note(value, (key,), found)


def _value(text: str) -> object:
    """Nothing is learnt from a number that no engine can hold."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def _note(value: object, path: Path, found: Found) -> None:
    if value is None:
        return
    kind = _kind(value)
    found.setdefault(path, set()).add(kind)
    if isinstance(value, dict):
        for key, one in value.items():
            _note(one, (*path, key), found)
    elif isinstance(value, list):
        for one in value:
            _note(one, (*path, ELEMENT), found)


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


def _new(found: Found, known: Kinds) -> Kinds:
    """New kinds always; new paths while there is room, the shortest first."""
    room = MAX_PATHS - len(known)
    new: dict[Path, frozenset[ValueKind]] = {}
    for path in sorted(found, key=len):
        kinds = frozenset(found[path]) - known.get(path, frozenset())
        if kinds and (path in known or room > 0):
            new[path] = kinds
            room -= path not in known
    return new
