"""A shape made into a decoder: whether an event holds nothing new is one validation, not a step for each value."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.ingest.walk import texts_at
from cordwood.model.event import Event, written_paths
from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind

_SCALARS: dict[ValueKind, Any] = {
    ValueKind.TEXT: str,
    # A larger integer does not fit: such an event is looked at closely, and the number may become a text.
    ValueKind.NUMBER: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float,
    ValueKind.BOOL: bool,
}
_DECODED: dict[ValueKind, tuple[type, ...]] = {
    ValueKind.TEXT: (str,),
    ValueKind.NUMBER: (int, float),
    ValueKind.BOOL: (bool,),
}


# Keys that the decoder cannot be told of: an event that has one never fits, and is looked at closely.
_UNNAMEABLE = re.compile(r'[\x00-\x1f"\\]')


_REMEMBERED = 10_000
# How many values the patterns that are kept of one record may have together.
_REMEMBERED_VALUES = 100_000

# The decoded metadata and other keys of an event that fits.
Records = tuple[Any, Any]


class _Node:
    """One step of the paths, with the kinds seen there and the steps that follow."""

    __slots__ = ("bits", "children", "kinds", "objects", "patterns", "steps", "values")

    def __init__(self) -> None:
        self.kinds: frozenset[ValueKind] = frozenset()
        self.steps: dict[str, _Node] = {}
        # The attributes of the record that may hold objects, each with its place in the list of paths.
        self.objects: list[tuple[str, int, _Node]] = []
        # Of the record, in the order of its attributes.
        self.children: list[_Node] = []
        # The bit of each kind of value here, by the decoded value's type.
        self.bits: dict[type, int] = {}
        # What the types of a record's values tell: their bits, and which of them to look into.
        self.patterns: dict[tuple[type, ...], tuple[int, tuple[tuple[int, _Node], ...]]] = {}
        self.values = 0

    def step(self, name: str) -> "_Node":
        return self.steps.setdefault(name, _Node())

    def bits_of(self, value: Any) -> int:
        """The bits of a value, and of all that is in it."""
        found = self.bits.get(type(value), 0)
        if isinstance(value, msgspec.Struct):
            found |= self.bits_in(value)
        elif isinstance(value, list) and ELEMENT in self.steps:
            element = self.steps[ELEMENT]
            for one in value:
                found |= element.bits_of(one)
        return found

    def bits_in(self, record: msgspec.Struct) -> int:
        values = msgspec.structs.astuple(record)
        types = tuple(map(type, values))
        found, within = self.patterns.get(types) or self._pattern(types)
        for place, child in within:
            found |= child.bits_of(values[place])
        return found

    def _pattern(self, types: tuple[type, ...]) -> tuple[int, tuple[tuple[int, "_Node"], ...]]:
        found = 0
        within = []
        for place, (child, type_) in enumerate(zip(self.children, types, strict=True)):
            found |= child.bits.get(type_, 0)
            if type_ is list or issubclass(type_, msgspec.Struct):
                within.append((place, child))
        self.values += len(types)
        if self.values > _REMEMBERED_VALUES:
            self.patterns.clear()
            self.values = len(types)
        self.patterns[types] = found, tuple(within)
        return self.patterns[types]


class Fitting:
    """Made of a stream's shape; with `projects` it tells of an event that fits which paths and kinds it has."""

    def __init__(
        self,
        shape: Shape,
        built: float,
        nulls: Collection[Path] = (),
        needed: Collection[Path] = (),
        projects: ProjectShapes | None = None,
    ) -> None:
        self.made_of = (shape.version, len(nulls))
        self.built = built
        self.size = len(shape.kinds) + len(nulls)
        # Projects whose events need no look: their sets have every bit that an event that fits can have.
        self.covering: set[str] = set()
        self.everything = 0
        self._projects = projects
        self._paths: list[Path] = [("metadata",)]
        self._written: dict[tuple[int, ...], str] = {}
        root = _tree(shape, nulls)
        self._top = root
        self._inner = root.steps.pop("metadata", _Node())
        self._has_project = "project" in root.steps
        self._project_bit = self._bit(("project",), ValueKind.TEXT) if self._has_project else 0
        self._metadata = msgspec.json.Decoder(self._type(self._inner, ("metadata",)))
        self._extras = msgspec.json.Decoder(self._record(root, ()))
        self.needed = needed
        self._needed = [_attributes(self._inner, path[1:]) for path in needed]
        self._at: dict[tuple[str, ...], tuple[str, ...]] = {}

    def object_paths(self, event: Event, *, as_it_is: bool = True) -> str | None:
        """The paths of the event's objects when it fits; None when it does not, or they cannot be told."""
        records = self.records(event, as_it_is=as_it_is)
        return None if records is None else self.written(records)

    def records(self, event: Event, *, as_it_is: bool = True) -> Records | None:
        """The event's values when it fits, else None.

        Unless it is taken as it is, an event fits only with something at each path that is needed.
        """
        if event.project is not None and not self._has_project:
            return None
        try:
            metadata = None if event.metadata is None else self._metadata.decode(event.metadata)
            extras = None if event.extras is None else self._extras.decode(event.extras)
        except (msgspec.DecodeError, RecursionError):
            return None
        return (metadata, extras) if as_it_is or self._has_needed(metadata) else None

    def _has_needed(self, metadata: object) -> bool:
        return not self._needed or metadata is None or all(_has(metadata, way) for way in self._needed)

    def written(self, records: Records) -> str:
        """The paths of the objects there."""
        found: list[int] = []
        metadata, extras = records
        if isinstance(metadata, msgspec.Struct):
            found.append(0)
            _find(self._inner, metadata, found)
        if extras is not None:
            _find(self._top, extras, found)
        key = tuple(found)
        written = self._written.get(key)
        return self._write(key) if written is None else written

    def bits(self, event: Event, records: Records) -> int:
        """The paths and kinds of an event that fits, as the stream's projects list them."""
        metadata, extras = records
        found = self._project_bit if event.project is not None else 0
        if metadata is not None:
            found |= self._inner.bits_of(metadata)
        if extras is not None:
            found |= self._top.bits_in(extras)
        return found

    def at(self, event: Event, records: Records, place: tuple[str, ...]) -> Iterable[str]:
        """The text at a path inside the metadata: several where records stand in an array."""
        way = self._at.get(place)
        if way is None:
            way = self._at[place] = _attributes(self._inner, place)
        value = records[0]
        for attribute in way:
            if not isinstance(value, msgspec.Struct):
                break
            value = getattr(value, attribute, None)
        else:
            if isinstance(value, str):
                return (value,)
        return () if value is None else texts_at(event.metadata, place)

    def _bit(self, path: Path, kind: ValueKind) -> int:
        bit = self._projects.bit((path, kind)) if self._projects is not None else 0
        self.everything |= bit
        return bit

    def _write(self, key: tuple[int, ...]) -> str:
        if len(self._written) > _REMEMBERED:
            self._written.clear()
        written = self._written[key] = written_paths(self._paths[place] for place in key)
        return written

    def _type(self, node: _Node, path: Path) -> Any:
        """The union of what was seen there; null is always allowed, for it teaches nothing."""
        union: Any = None
        for kind in node.kinds:
            bit = self._bit(path, kind)
            if kind is ValueKind.OBJECT:
                record = self._record(node, path)
                node.bits[record] = bit
                union |= record
            elif kind is ValueKind.ARRAY:
                element = self._type(node.step(ELEMENT), (*path, ELEMENT))
                node.bits[list] = bit
                union |= list[element]  # type: ignore[valid-type]
            else:
                node.bits |= dict.fromkeys(_DECODED[kind], bit)
                union |= _SCALARS[kind]
        return union

    def _record(self, node: _Node, path: Path) -> Any:
        attributes = {f"f{place}": name for place, name in enumerate(node.steps) if not _UNNAMEABLE.search(name)}
        for attribute, name in attributes.items():
            if ValueKind.OBJECT in node.steps[name].kinds and ELEMENT not in path:
                node.objects.append((attribute, len(self._paths), node.steps[name]))
                self._paths.append((*path, name))
        node.children = [node.steps[name] for name in attributes.values()]
        fields = [
            (attribute, self._type(node.steps[name], (*path, name)), None) for attribute, name in attributes.items()
        ]
        return msgspec.defstruct("Record", fields, rename=attributes, forbid_unknown_fields=True, gc=False)


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
