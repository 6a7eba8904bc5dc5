"""Learns what a stream's events look like before they can be asked for: every path, and the kinds found there."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from cordwood.model.event import Event
from cordwood.model.shape import ELEMENT, Kinds, Path, Shape, ValueKind

_decode = msgspec.json.Decoder().decode


class ShapeReader:
    def __init__(self, shapes: Callable[[], Mapping[str, Shape]]) -> None:
        self._shapes = shapes

    def learn(self, stream: str, events: Sequence[Event]) -> Kinds:
        """What is new to the stream in these events."""
        found: dict[Path, set[ValueKind]] = {}
        for event in events:
            if event.metadata is not None:
                _note(_decode(event.metadata), ("metadata",), found)
            if event.extras is not None:
                for key, value in _decode(event.extras).items():
                    _note(value, (key,), found)
            if event.project is not None:
                _see(("project",), ValueKind.TEXT, found)
        known = self._shapes().get(stream, Shape()).kinds
        return {path: frozenset(kinds) for path, kinds in found.items() if not kinds <= known.get(path, frozenset())}


def _note(value: object, path: Path, found: dict[Path, set[ValueKind]]) -> None:
    if value is None:
        return
    if isinstance(value, dict):
        _see(path, ValueKind.OBJECT, found)
        for key, one in value.items():
            _note(one, (*path, key), found)
    elif isinstance(value, list):
        _see(path, ValueKind.ARRAY, found)
        for one in value:
            _note(one, (*path, ELEMENT), found)
    else:
        _see(path, _scalar_kind(value), found)


def _see(path: Path, kind: ValueKind, found: dict[Path, set[ValueKind]]) -> None:
    found.setdefault(path, set()).add(kind)


def _scalar_kind(value: object) -> ValueKind:
    if isinstance(value, str):
        return ValueKind.TEXT
    return ValueKind.BOOL if isinstance(value, bool) else ValueKind.NUMBER
