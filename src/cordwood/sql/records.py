"""What lies at a path of a stream's events, as far as it has been seen."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind
from cordwood.sql.scope import Nature, Origin

_KEPT: Final = 256
_UNCLEAN: Final = re.compile(r"[^0-9a-z]")

Children = Mapping[Path, tuple[str, ...]]
# The keys below every path, kept for the shapes last asked about: making them costs as much as a compile.
_children_of: dict[int, tuple[Shape, Children]] = {}


class Records(msgspec.Struct):
    """Reads the shapes of streams; remembers which paths were asked for and never seen."""

    shapes: Mapping[str, Shape]
    unseen: dict[str, None] = msgspec.field(default_factory=dict)

    def kinds(self, nature: Nature) -> frozenset[ValueKind] | None:
        """None when nothing is known: some stream has no shape."""
        found: set[ValueKind] = set()
        for origin in nature.origins:
            shape = self.shapes.get(origin.stream)
            if shape is None:
                return None
            found |= shape.kinds.get(origin.path, frozenset())
        return frozenset(found)

    def keys(self, nature: Nature) -> tuple[str, ...]:
        """Every key seen in the objects there, in the order in which they were first seen."""
        found: dict[str, None] = {}
        for origin in nature.origins:
            found.update(dict.fromkeys(self._children(origin)))
        found.pop(ELEMENT, None)
        return tuple(found)

    def keys_for(self, nature: Nature, name: str, *, exact: bool) -> tuple[str, ...]:
        """The keys a name means: itself when seen or quoted, else those that only cleaning tells apart."""
        if exact:
            return (name,)
        keys = self.keys(nature)
        cleaned = _cleaned(name)
        alike = [key for key in keys if key != name and _cleaned(key) == cleaned]
        if name in keys:
            return (name, *alike)
        return tuple(sorted(alike, key=lambda key: key.lower() != name.lower()))

    def has(self, nature: Nature, name: str, *, exact: bool) -> bool:
        if exact:
            return name in self.keys(nature)
        return bool(self.keys_for(nature, name, exact=False))

    def is_blank(self, nature: Nature) -> bool:
        """Whether no object has been seen there, so that any name may be one of its keys."""
        return not self.keys(nature)

    def note_unseen(self, nature: Nature) -> None:
        kinds = self.kinds(nature)
        if kinds is not None and not kinds:
            self.unseen.update(dict.fromkeys(".".join(origin.path) for origin in sorted(nature.origins, key=str)))

    def _children(self, origin: Origin) -> tuple[str, ...]:
        shape = self.shapes.get(origin.stream)
        return _children(shape).get(origin.path, ()) if shape is not None else ()


def below(nature: Nature, steps: Iterable[str]) -> Nature:
    """The nature of what lies further down."""
    further = tuple(steps)
    return Nature(origins=frozenset(Origin(origin.stream, origin.path + further) for origin in nature.origins))


def elements(nature: Nature) -> Nature:
    """The nature of what a repeated record repeats: an object is an array of itself, an array its elements."""
    return Nature(origins=nature.origins | below(nature, (ELEMENT,)).origins)


def _children(shape: Shape) -> Children:
    kept = _children_of.get(id(shape))
    if kept is not None and kept[0] is shape:
        return kept[1]
    found: dict[Path, list[str]] = {}
    for path in shape.kinds:
        if path:
            siblings = found.setdefault(path[:-1], [])
            siblings.append(path[-1])
    children = {path: tuple(keys) for path, keys in found.items()}
    if len(_children_of) >= _KEPT:
        _children_of.clear()
    _children_of[id(shape)] = (shape, children)
    return children


@lru_cache(maxsize=8192)
def _cleaned(key: str) -> str:
    return _UNCLEAN.sub("_", key.lower()).lstrip("_")
