"""A shape made into a decoder: whether an event holds nothing new is one validation, not a step for each value."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cordwood.model.event import Event, written_paths
from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind

_SCALARS: dict[ValueKind, Any] = {
    ValueKind.TEXT: str,
    # A larger integer does not fit: such an event is looked at closely, and the number may become a text.
    ValueKind.NUMBER: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float,
    ValueKind.BOOL: bool,
}


# Keys that the decoder cannot be told of: an event that has one never fits, and is looked at closely.
_UNNAMEABLE = re.compile(r'[\x00-\x1f"\\]')


_REMEMBERED = 10_000


class _Node:
    """One step of the paths, with the kinds seen there and the steps that follow."""

    __slots__ = ("kinds", "objects", "steps")

    def __init__(self) -> None:
        self.kinds: frozenset[ValueKind] = frozenset()
        self.steps: dict[str, _Node] = {}
        # The attributes of the record that may hold objects, each with its place in the list of paths.
        self.objects: list[tuple[str, int, _Node]] = []

    def step(self, name: str) -> "_Node":
        return self.steps.setdefault(name, _Node())


class Fitting:
    """With `is_full` keys that are not in the shape are passed over: they would not be learnt."""

    def __init__(
        self, shape: Shape, built: float, nulls: Collection[Path] = (), needed: Collection[Path] = (), *, is_full: bool
    ) -> None:
        self.made_of = (shape.version, len(nulls))
        self.built = built
        self._is_full = is_full
        self._paths: list[Path] = [("metadata",)]
        self._written: dict[tuple[int, ...], str] = {}
        root = _tree(shape, nulls)
        self._top = root
        self._inner = root.steps.pop("metadata", _Node())
        self._has_project = "project" in root.steps
        self._metadata = msgspec.json.Decoder(self._type(self._inner, ("metadata",)))
        self._extras = msgspec.json.Decoder(self._record(root, ()))
        self.needed = needed
        self._needed = [_attributes(self._inner, path[1:]) for path in needed]

    def object_paths(self, event: Event, *, as_it_is: bool = True) -> str | None:
        """The paths of the event's objects when it fits; None when it does not, or they cannot be told.

        Unless it is taken as it is, an event fits only with something at each path that is needed.
        """
        if self._is_full or (event.project is not None and not self._has_project):
            return None
        try:
            key = self._objects(event, () if as_it_is else self._needed)
        except (msgspec.DecodeError, RecursionError):
            return None
        if key is None:
            return None
        written = self._written.get(key)
        return self._write(key) if written is None else written

    def _objects(self, event: Event, needed: Iterable[Sequence[str]]) -> tuple[int, ...] | None:
        """The places of the event's objects in the list of paths; None when something lacks that is needed."""
        found: list[int] = []
        if event.metadata is not None:
            metadata = self._metadata.decode(event.metadata)
            if not all(_has(metadata, attributes) for attributes in needed):
                return None
            if isinstance(metadata, msgspec.Struct):
                found.append(0)
                _find(self._inner, metadata, found)
        if event.extras is not None:
            _find(self._top, self._extras.decode(event.extras), found)
        return tuple(found)

    def _write(self, key: tuple[int, ...]) -> str:
        if len(self._written) > _REMEMBERED:
            self._written.clear()
        written = self._written[key] = written_paths(self._paths[place] for place in key)
        return written

    def _type(self, node: _Node, path: Path) -> Any:
        """The union of what was seen there; null is always allowed, for it teaches nothing."""
        union: Any = None
        for kind in node.kinds:
            if kind is ValueKind.OBJECT:
                union |= self._record(node, path)
            elif kind is ValueKind.ARRAY:
                element = self._type(node.steps.get(ELEMENT, _Node()), (*path, ELEMENT))
                union |= list[element]  # type: ignore[valid-type]
            else:
                union |= _SCALARS[kind]
        return union

    def _record(self, node: _Node, path: Path) -> Any:
        attributes = {f"f{place}": name for place, name in enumerate(node.steps) if not _UNNAMEABLE.search(name)}
        for attribute, name in attributes.items():
            if ValueKind.OBJECT in node.steps[name].kinds and ELEMENT not in path:
                node.objects.append((attribute, len(self._paths), node.steps[name]))
                self._paths.append((*path, name))
        fields = [
            (attribute, self._type(node.steps[name], (*path, name)), None) for attribute, name in attributes.items()
        ]
        return msgspec.defstruct("Record", fields, rename=attributes, forbid_unknown_fields=not self._is_full, gc=False)


def _attributes(node: _Node, steps: Path) -> tuple[str, ...]:
    """The way to a value through records; an attribute that no record has where the path is not known."""
    attributes = []
    for step in steps:
        place = list(node.steps).index(step) if step in node.steps else -1
        attributes.append(f"f{place}")
        node = node.steps.get(step, _Node())
    return tuple(attributes)


def _has(record: object, attributes: Sequence[str]) -> bool:
    for attribute in attributes:
        record = getattr(record, attribute, None)
    return record is not None


def _find(node: _Node, record: Any, found: list[int]) -> None:
    for attribute, place, child in node.objects:
        value = getattr(record, attribute)
        if isinstance(value, msgspec.Struct):
            found.append(place)
            if child.objects:
                _find(child, value, found)


def _tree(shape: Shape, nulls: Collection[Path]) -> _Node:
    root = _Node()
    for path in (*nulls, *shape.kinds):
        node = root
        for name in path:
            node = node.step(name)
        node.kinds = shape.kinds.get(path, frozenset())
    return root
