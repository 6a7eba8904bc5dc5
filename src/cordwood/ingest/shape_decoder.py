"""Decoders generated from a shape: one validation decides whether an event has any new path or kind.

Projects with frequent events get decoders of their own, so that other projects' paths do not slow them down.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.ingest.event_paths import texts_at
from cordwood.model.event import Event, format_paths
from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind

_SCALARS: dict[ValueKind, Any] = {
    ValueKind.TEXT: str,
    # A larger integer fails validation, so that its event takes the slow path, where it may become a string.
    ValueKind.NUMBER: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float,
    ValueKind.BOOL: bool,
}
_DECODED: dict[ValueKind, tuple[type, ...]] = {
    ValueKind.TEXT: (str,),
    ValueKind.NUMBER: (int, float),
    ValueKind.BOOL: (bool,),
}


# Keys that msgspec cannot use as field names. An event with such a key always takes the slow path.
_UNNAMEABLE = re.compile(r'[\x00-\x1f"\\]')


_REMEMBERED = 10_000
# The bound on the values of all patterns that are cached for one record.
_REMEMBERED_VALUES = 100_000

# The decoded metadata and extras of an event that passed validation.
Records = tuple[Any, Any]


class _Node:
    """A step of a path: the kinds seen there and the steps below it."""

    __slots__ = ("bits", "children", "kinds", "objects", "patterns", "steps", "values")

    def __init__(self) -> None:
        self.kinds: frozenset[ValueKind] = frozenset()
        self.steps: dict[str, _Node] = {}
        # Attributes that may hold objects, each with the index of its path and its node.
        self.objects: list[tuple[str, int, _Node]] = []
        # The nodes of the record's fields, in the order of its attributes.
        self.children: list[_Node] = []
        # The bit that records the kind of a value at this path, by the Python type of the decoded value.
        self.bits: dict[type, int] = {}
        # Cache by the types of a record's values: the union of their bits, and the fields to descend into.
        self.patterns: dict[tuple[type, ...], tuple[int, tuple[tuple[int, _Node], ...]]] = {}
        self.values = 0

    def step(self, name: str) -> "_Node":
        return self.steps.setdefault(name, _Node())

    def bits_of(self, value: Any) -> int:
        """Return the bits of a value and of everything inside it."""
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


class ShapeDecoder:
    """A decoder for the shape of a stream. With `projects`, it also lists the paths and kinds of each event."""

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
        # Projects whose shape already has every path and kind of this decoder: their events need no inspection.
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
        """Return the paths of the event's objects; None if the event does not match the shape."""
        records = self.records(event, as_it_is=as_it_is)
        return None if records is None else self.written(records)

    def records(self, event: Event, *, as_it_is: bool = True) -> Records | None:
        """Return the decoded event if it matches the shape, else None.

        With `as_it_is` false, it also has to have a value at each needed path.
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
        """Return the paths of the objects in a decoded event."""
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
        """Return the paths and kinds of a decoded event as a bit set."""
        metadata, extras = records
        found = self._project_bit if event.project is not None else 0
        if metadata is not None:
            found |= self._inner.bits_of(metadata)
        if extras is not None:
            found |= self._top.bits_in(extras)
        return found

    def at(self, event: Event, records: Records, place: tuple[str, ...]) -> Iterable[str]:
        """Return the text at a path of the metadata; several if records are in an array."""
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
        written = self._written[key] = format_paths(self._paths[place] for place in key)
        return written

    def _type(self, node: _Node, path: Path) -> Any:
        """Return the union type of the kinds at this path. Null is always valid, because it has no kind."""
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
        attributes = {f"f{place}": name for place, name in enumerate(node.steps) if _is_field(name)}
        for attribute, name in attributes.items():
            if ValueKind.OBJECT in node.steps[name].kinds and ELEMENT not in path:
                node.objects.append((attribute, len(self._paths), node.steps[name]))
                self._paths.append((*path, name))
        node.children = [node.steps[name] for name in attributes.values()]
        fields = [
            (attribute, self._type(node.steps[name], (*path, name)), None) for attribute, name in attributes.items()
        ]
        return msgspec.defstruct("Record", fields, rename=attributes, forbid_unknown_fields=True, gc=False)


def _is_field(step: str) -> bool:
    """Return whether a step below a record is a field of its type.

    The step of array elements is none. As a field its node would be built a second time at each level of nested arrays.
    An event with the key `[]` therefore always takes the slow path.
    """
    return step != ELEMENT and not _UNNAMEABLE.search(step)


def _attributes(node: _Node, steps: Path) -> tuple[str, ...]:
    """Return the attributes along a path; an attribute that no record has if the path is unknown."""
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


# About 1.6 KB each.
_MOST_PATHS: Final = 12_000
_WORTH_IT: Final = 32
_COUNTED: Final = 20_000
# The largest share of time that is spent on generating decoders.
_BUILDING_PART: Final = 0.05

Key = tuple[str, int, tuple[Path, ...]]


class ProjectDecoders:
    """An LRU cache of decoders. Projects with equal shapes in one stream share a decoder."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, ShapeDecoder] = OrderedDict()
        self._paths = 0
        self._asked: dict[Key, int] = {}
        self._next_build = 0.0
        self._lock = threading.Lock()

    def find(
        self, key: Key, projects: ProjectShapes, nulls: Collection[Path], *, events: int = 1
    ) -> ShapeDecoder | None:
        """Return the decoder of a project's shape; None until enough events have used it to repay its generation."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
            if len(self._asked) > _COUNTED:
                self._asked.clear()
            self._asked[key] = asked = self._asked.get(key, 0) + events
            now = time.monotonic()
            if asked < _WORTH_IT or now < self._next_build:
                return None
            return self._build(key, projects, nulls, now)

    def _build(self, key: Key, projects: ProjectShapes, nulls: Collection[Path], now: float) -> ShapeDecoder:
        _, bits, needed = key
        kinds = projects.kinds(bits)
        decoder = ShapeDecoder(Shape().with_learnt(kinds), now, nulls, needed)
        self._next_build = time.monotonic() + (time.monotonic() - now) / _BUILDING_PART
        self._asked.pop(key, None)
        self._kept[key] = decoder
        self._paths += decoder.size
        while self._paths > _MOST_PATHS:
            self._paths -= self._kept.popitem(last=False)[1].size
        return decoder


class BatchDecoders:
    """The project decoders for the events of one batch."""

    def __init__(
        self,
        kept: ProjectDecoders,
        stream: str,
        needed: tuple[Path, ...],
        projects: ProjectShapes | None,
        nulls: Collection[Path],
    ) -> None:
        self._kept = kept
        self._stream = stream
        self._needed = needed
        self._projects = projects
        self._nulls = nulls
        self._found: dict[str, ShapeDecoder] = {}
        self._events: dict[str, int] = {}

    def of(self, project: str | None, of_stream: ShapeDecoder) -> ShapeDecoder | None:
        """Return the decoder of a project; None if it has none or is covered by the stream's decoder."""
        if project is None or self._projects is None or project in of_stream.covering:
            return None
        return self._found.get(project) or self._find(project, self._projects)

    def _find(self, project: str, projects: ProjectShapes) -> ShapeDecoder | None:
        events = self._events[project] = self._events.get(project, 0) + 1
        bits = projects.set_of(project)
        if not bits or (events > 1 and events % _WORTH_IT):
            return None
        found = self._kept.find((self._stream, bits, self._needed), projects, self._nulls, events=events)
        if found is not None:
            self._found[project] = found
        return found
