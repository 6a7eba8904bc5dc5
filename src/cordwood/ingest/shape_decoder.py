"""Decoders generated from a shape, which reject events with a path or a kind of value that the shape does not have.

Projects with frequent events have decoders of their own, so that paths of other projects do not slow these decoders
down.
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
from cordwood.ingest.event_values import texts_at
from cordwood.model.event import ARRAY_ELEMENT_STEP, Event, EventPath, EventShape, ValueKind, format_paths

_DECODER_TYPES_BY_KIND: dict[ValueKind, Any] = {
    ValueKind.TEXT: str,
    # An integer beyond 64 bits fails validation. Its event is then inspected value by value, which may turn the integer
    # into a string.
    ValueKind.NUMBER: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float,
    ValueKind.BOOL: bool,
}
_PYTHON_TYPES_BY_KIND: dict[ValueKind, tuple[type, ...]] = {
    ValueKind.TEXT: (str,),
    ValueKind.NUMBER: (int, float),
    ValueKind.BOOL: (bool,),
}


# Keys that msgspec cannot use as field names. An event with such a key fails validation, and is inspected value by
# value.
_UNSUPPORTED_KEY_PATTERN = re.compile(r'[\x00-\x1f"\\]')


_MAX_CACHED_PATH_LISTS = 10_000
# The maximum total length of all type patterns that a node caches. A type pattern is the tuple of the types of a
# record's values.
_MAX_CACHED_VALUE_TYPES_PER_NODE = 100_000

# The decoded metadata and extras of an event that passed the validation.
DecodedMetadataAndExtras = tuple[Any, Any]


class _PathNode:
    """A node of the tree of paths: the kinds of values at one path, and the steps below it."""

    __slots__ = (
        "bits_and_children_by_value_types",
        "cached_value_type_count",
        "children_by_step",
        "kinds",
        "path_kind_bit_by_python_type",
        "possible_object_attributes",
        "record_field_nodes",
    )

    def __init__(self) -> None:
        self.kinds: frozenset[ValueKind] = frozenset()
        self.children_by_step: dict[str, _PathNode] = {}
        # For each attribute of the decoded record that may be an object: the attribute's name, the index of its path in
        # `ShapeDecoder._object_paths`, and its node.
        self.possible_object_attributes: list[tuple[str, int, _PathNode]] = []
        # The nodes of the fields of the record, in the order of its attributes.
        self.record_field_nodes: list[_PathNode] = []
        # By the Python type of a decoded value: the bit that stands for this path with this kind of value.
        self.path_kind_bit_by_python_type: dict[type, int] = {}
        # A cache by type pattern, which is the tuple of the types of a record's values. It has the union of the values'
        # bits, and the fields whose values contain further values.
        self.bits_and_children_by_value_types: dict[
            tuple[type, ...], tuple[int, tuple[tuple[int, _PathNode], ...]]
        ] = {}
        self.cached_value_type_count = 0

    def get_or_add_child(self, name: str) -> "_PathNode":
        return self.children_by_step.setdefault(name, _PathNode())

    def path_kind_bits_of_value(self, value: Any) -> int:
        """Return the bit mask of the pairs of path and kind found in a value, including all values inside it."""
        found = self.path_kind_bit_by_python_type.get(type(value), 0)
        if isinstance(value, msgspec.Struct):
            found |= self.path_kind_bits_of_record(value)
        elif isinstance(value, list) and ARRAY_ELEMENT_STEP in self.children_by_step:
            element = self.children_by_step[ARRAY_ELEMENT_STEP]
            for one in value:
                found |= element.path_kind_bits_of_value(one)
        return found

    def path_kind_bits_of_record(self, record: msgspec.Struct) -> int:
        values = msgspec.structs.astuple(record)
        types = tuple(map(type, values))
        found, within = self.bits_and_children_by_value_types.get(types) or self._cache_bits_for_value_types(types)
        for place, child in within:
            found |= child.path_kind_bits_of_value(values[place])
        return found

    def _cache_bits_for_value_types(self, types: tuple[type, ...]) -> tuple[int, tuple[tuple[int, "_PathNode"], ...]]:
        found = 0
        within = []
        for place, (child, type_) in enumerate(zip(self.record_field_nodes, types, strict=True)):
            found |= child.path_kind_bit_by_python_type.get(type_, 0)
            if type_ is list or issubclass(type_, msgspec.Struct):
                within.append((place, child))
        self.cached_value_type_count += len(types)
        if self.cached_value_type_count > _MAX_CACHED_VALUE_TYPES_PER_NODE:
            self.bits_and_children_by_value_types.clear()
            self.cached_value_type_count = len(types)
        self.bits_and_children_by_value_types[types] = found, tuple(within)
        return self.bits_and_children_by_value_types[types]


class ShapeDecoder:
    """A decoder that accepts the events that match a shape.

    If `projects` is given, the decoder can also find which (path, kind) pairs occur in an event.
    """

    def __init__(
        self,
        shape: EventShape,
        built: float,
        nulls: Collection[EventPath] = (),
        needed: Collection[EventPath] = (),
        projects: ProjectShapes | None = None,
    ) -> None:
        self.shape_version_and_null_path_count = (shape.version, len(nulls))
        self.built_at = built
        self.path_count = len(shape.value_kinds_by_path) + len(nulls)
        # The projects whose shape has every path and kind of this decoder. An event of such a project adds nothing to
        # the project's shape, so it is not inspected.
        self.projects_having_all_decoded_paths: set[str] = set()
        # The union of the bits that stand for the paths and kinds of this decoder. The bits come from `projects`.
        self.all_path_kind_bits = 0
        self._project_shapes = projects
        self._object_paths: list[EventPath] = [("metadata",)]
        self._formatted_paths_by_object_indexes: dict[tuple[int, ...], str] = {}
        root = _build_path_tree(shape, nulls)
        self._extras_root = root
        self._metadata_root = root.children_by_step.pop("metadata", _PathNode())
        self._accepts_project_field = "project" in root.children_by_step
        self._project_path_kind_bit = (
            self._register_bit(("project",), ValueKind.TEXT) if self._accepts_project_field else 0
        )
        self._metadata_decoder = msgspec.json.Decoder(self._build_value_type(self._metadata_root, ("metadata",)))
        self._extras_decoder = msgspec.json.Decoder(self._build_record_type(root, ()))
        self.required_paths = needed
        self._required_attribute_paths = [_attribute_names_on_path(self._metadata_root, path[1:]) for path in needed]
        self._attribute_names_by_path: dict[tuple[str, ...], tuple[str, ...]] = {}

    def object_paths(self, event: Event, *, is_complete: bool = True) -> str | None:
        """Return the paths of the event's objects, or None if the event does not match the shape.

        `is_complete` has the same meaning as in `decode`.
        """
        records = self.decode(event, is_complete=is_complete)
        return None if records is None else self.object_paths_of_records(records)

    def decode(self, event: Event, *, is_complete: bool = True) -> DecodedMetadataAndExtras | None:
        """Return the decoded event if it matches the shape, else None.

        If `is_complete` is false, the derived fields of the event may still have to be filled. Therefore, also return
        None if one of their paths (`required_paths`) has no value.
        """
        if event.project is not None and not self._accepts_project_field:
            return None
        try:
            metadata = None if event.metadata is None else self._metadata_decoder.decode(event.metadata)
            extras = None if event.extras is None else self._extras_decoder.decode(event.extras)
        except (msgspec.DecodeError, RecursionError):
            return None
        return (metadata, extras) if is_complete or self._has_required_values(metadata) else None

    def _has_required_values(self, metadata: object) -> bool:
        return (
            not self._required_attribute_paths
            or metadata is None
            or all(_has_value(metadata, way) for way in self._required_attribute_paths)
        )

    def object_paths_of_records(self, records: DecodedMetadataAndExtras) -> str:
        """Return the paths of the objects in a decoded event."""
        found: list[int] = []
        metadata, extras = records
        if isinstance(metadata, msgspec.Struct):
            found.append(0)
            _collect_object_indexes(self._metadata_root, metadata, found)
        if extras is not None:
            _collect_object_indexes(self._extras_root, extras, found)
        key = tuple(found)
        written = self._formatted_paths_by_object_indexes.get(key)
        return self._format_object_paths(key) if written is None else written

    def path_kind_bits(self, event: Event, records: DecodedMetadataAndExtras) -> int:
        """Return the paths and kinds of a decoded event as a bit set, with a bit for each pair of path and kind."""
        metadata, extras = records
        found = self._project_path_kind_bit if event.project is not None else 0
        if metadata is not None:
            found |= self._metadata_root.path_kind_bits_of_value(metadata)
        if extras is not None:
            found |= self._extras_root.path_kind_bits_of_record(extras)
        return found

    def texts_at_path(self, event: Event, records: DecodedMetadataAndExtras, path: tuple[str, ...]) -> Iterable[str]:
        """Return the texts at a path of the metadata: several texts if the path leads through an array of records."""
        way = self._attribute_names_by_path.get(path)
        if way is None:
            way = self._attribute_names_by_path[path] = _attribute_names_on_path(self._metadata_root, path)
        value = records[0]
        for attribute in way:
            if not isinstance(value, msgspec.Struct):
                break
            value = getattr(value, attribute, None)
        else:
            if isinstance(value, str):
                return (value,)
        return () if value is None else texts_at(event.metadata, path)

    def _register_bit(self, path: EventPath, kind: ValueKind) -> int:
        bit = self._project_shapes.find_or_add_bit((path, kind)) if self._project_shapes is not None else 0
        self.all_path_kind_bits |= bit
        return bit

    def _format_object_paths(self, key: tuple[int, ...]) -> str:
        if len(self._formatted_paths_by_object_indexes) > _MAX_CACHED_PATH_LISTS:
            self._formatted_paths_by_object_indexes.clear()
        written = self._formatted_paths_by_object_indexes[key] = format_paths(
            self._object_paths[place] for place in key
        )
        return written

    def _build_value_type(self, node: _PathNode, path: EventPath) -> Any:
        """Return the union type of the kinds at this path. Null is always valid, because it has no kind."""
        union: Any = None
        for kind in node.kinds:
            bit = self._register_bit(path, kind)
            if kind is ValueKind.OBJECT:
                record = self._build_record_type(node, path)
                node.path_kind_bit_by_python_type[record] = bit
                union |= record
            elif kind is ValueKind.ARRAY:
                element = self._build_value_type(node.get_or_add_child(ARRAY_ELEMENT_STEP), (*path, ARRAY_ELEMENT_STEP))
                node.path_kind_bit_by_python_type[list] = bit
                union |= list[element]  # type: ignore[valid-type]
            else:
                node.path_kind_bit_by_python_type |= dict.fromkeys(_PYTHON_TYPES_BY_KIND[kind], bit)
                union |= _DECODER_TYPES_BY_KIND[kind]
        return union

    def _build_record_type(self, node: _PathNode, path: EventPath) -> Any:
        attributes = {f"f{place}": name for place, name in enumerate(node.children_by_step) if _can_be_field(name)}
        for attribute, name in attributes.items():
            if ValueKind.OBJECT in node.children_by_step[name].kinds and ARRAY_ELEMENT_STEP not in path:
                node.possible_object_attributes.append(
                    (attribute, len(self._object_paths), node.children_by_step[name])
                )
                self._object_paths.append((*path, name))
        node.record_field_nodes = [node.children_by_step[name] for name in attributes.values()]
        fields = [
            (attribute, self._build_value_type(node.children_by_step[name], (*path, name)), None)
            for attribute, name in attributes.items()
        ]
        return msgspec.defstruct("Record", fields, rename=attributes, forbid_unknown_fields=True, gc=False)


def _can_be_field(step: str) -> bool:
    """Return whether a step below a record becomes a field of the record's type.

    The step `[]` to the elements of an array does not: as a field, the type of the elements would be built a second
    time at each level of nested arrays. Nor does a key that msgspec does not support. Therefore an event with such a
    key fails validation, and is inspected value by value.
    """
    return step != ARRAY_ELEMENT_STEP and not _UNSUPPORTED_KEY_PATTERN.search(step)


def _attribute_names_on_path(node: _PathNode, steps: EventPath) -> tuple[str, ...]:
    """Return the names of the attributes along a path.

    An unknown step gets a name that no record has, so that nothing is found there.
    """
    attributes = []
    for step in steps:
        place = list(node.children_by_step).index(step) if step in node.children_by_step else -1
        attributes.append(f"f{place}")
        node = node.children_by_step.get(step, _PathNode())
    return tuple(attributes)


def _has_value(record: object, attributes: Sequence[str]) -> bool:
    for attribute in attributes:
        record = getattr(record, attribute, None)
    return record is not None


def _collect_object_indexes(node: _PathNode, record: Any, found: list[int]) -> None:
    for attribute, place, child in node.possible_object_attributes:
        value = getattr(record, attribute)
        if isinstance(value, msgspec.Struct):
            found.append(place)
            if child.possible_object_attributes:
                _collect_object_indexes(child, value, found)


def _build_path_tree(shape: EventShape, nulls: Collection[EventPath]) -> _PathNode:
    root = _PathNode()
    for path in (*nulls, *shape.value_kinds_by_path):
        node = root
        for name in path:
            node = node.get_or_add_child(name)
        node.kinds = shape.value_kinds_by_path.get(path, frozenset())
    return root


# The maximum number of paths in all cached decoders. Each path takes about 1.6 KB.
_MAX_PATHS_IN_CACHED_DECODERS: Final = 12_000
_MIN_EVENTS_TO_BUILD_DECODER: Final = 32  # the number of events of a project after which its decoder is generated
_MAX_COUNTED_DECODER_KEYS: Final = 20_000
# The maximum share of the time that may be spent on generating decoders.
_MAX_BUILD_TIME_SHARE: Final = 0.05

DecoderKey = tuple[str, int, tuple[EventPath, ...]]


class ProjectDecoderCache:
    """An LRU cache of decoders. Projects of a stream with equal shapes share a decoder."""

    def __init__(self) -> None:
        self._decoders_by_key: OrderedDict[DecoderKey, ShapeDecoder] = OrderedDict()
        self._cached_path_count = 0
        self._event_counts_by_key: dict[DecoderKey, int] = {}
        self._next_build_at = 0.0
        self._lock = threading.Lock()

    def find_or_build(
        self, key: DecoderKey, projects: ProjectShapes, nulls: Collection[EventPath], *, events: int = 1
    ) -> ShapeDecoder | None:
        """Return the decoder for a project's shape, or None if it has not been generated yet.

        The decoder is generated once enough events have this shape; a call counts `events` more of them. Generation is
        postponed while generating decoders would take too large a share of the time.
        """
        with self._lock:
            known = self._decoders_by_key.get(key)
            if known is not None:
                self._decoders_by_key.move_to_end(key)
                return known
            if len(self._event_counts_by_key) > _MAX_COUNTED_DECODER_KEYS:
                self._event_counts_by_key.clear()
            self._event_counts_by_key[key] = uses = self._event_counts_by_key.get(key, 0) + events
            now = time.monotonic()
            if uses < _MIN_EVENTS_TO_BUILD_DECODER or now < self._next_build_at:
                return None
            return self._build_decoder(key, projects, nulls, now)

    def _build_decoder(
        self, key: DecoderKey, projects: ProjectShapes, nulls: Collection[EventPath], now: float
    ) -> ShapeDecoder:
        _, bits, needed = key
        kinds = projects.kinds_of_bit_set(bits)
        decoder = ShapeDecoder(EventShape().merged_with_kinds(kinds), now, nulls, needed)
        self._next_build_at = time.monotonic() + (time.monotonic() - now) / _MAX_BUILD_TIME_SHARE
        self._event_counts_by_key.pop(key, None)
        self._decoders_by_key[key] = decoder
        self._cached_path_count += decoder.path_count
        while self._cached_path_count > _MAX_PATHS_IN_CACHED_DECODERS:
            self._cached_path_count -= self._decoders_by_key.popitem(last=False)[1].path_count
        return decoder


class ProjectDecodersForBatch:
    """The shape decoders of the projects that occur in one batch of events."""

    def __init__(
        self,
        kept: ProjectDecoderCache,
        stream: str,
        needed: tuple[EventPath, ...],
        projects: ProjectShapes | None,
        nulls: Collection[EventPath],
    ) -> None:
        self._cache = kept
        self._stream = stream
        self._required_paths = needed
        self._project_shapes = projects
        self._null_paths = nulls
        self._decoders_by_project: dict[str, ShapeDecoder] = {}
        self._event_counts_by_project: dict[str, int] = {}

    def find_decoder_for_project(self, project: str | None, stream_decoder: ShapeDecoder) -> ShapeDecoder | None:
        """Return the decoder of a project, or None if the stream's decoder is to be used for the project's events."""
        if (
            project is None
            or self._project_shapes is None
            or project in stream_decoder.projects_having_all_decoded_paths
        ):
            return None
        return self._decoders_by_project.get(project) or self._find_or_build(project, self._project_shapes)

    def _find_or_build(self, project: str, projects: ProjectShapes) -> ShapeDecoder | None:
        events = self._event_counts_by_project[project] = self._event_counts_by_project.get(project, 0) + 1
        bits = projects.bit_set_of_project(project)
        if not bits or (events > 1 and events % _MIN_EVENTS_TO_BUILD_DECODER):
            return None
        found = self._cache.find_or_build(
            (self._stream, bits, self._required_paths), projects, self._null_paths, events=events
        )
        if found is not None:
            self._decoders_by_project[project] = found
        return found
