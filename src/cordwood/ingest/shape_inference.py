"""Infer the shape of a stream: all paths of its events, and the kinds of their values.

New paths and kinds are added to the shape before the new events become visible to queries. They are also added to the
shape of each project, within limits for each project.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from cordwood.engines.project_shapes import (
    MAX_PATH_KINDS_PER_PROJECT,
    OTHER_PROJECTS_KEY,
    KindsByProject,
    PathAndKind,
    ProjectShapes,
    set_bit_positions,
)
from cordwood.ingest.derived_fields import NO_DERIVED_FIELDS, DerivedFields
from cordwood.ingest.event_values import MutableKindsByPath, collect_paths, quote_inexact_numbers, texts_at
from cordwood.ingest.shape_decoder import (
    DecodedMetadataAndExtras,
    ProjectDecoderCache,
    ProjectDecodersForBatch,
    ShapeDecoder,
)
from cordwood.model.definitions import Stream
from cordwood.model.event import NO_VALUE_KINDS, Event, EventPath, EventShape, ValueKind, ValueKindsByPath, format_paths

_UNLISTED_PATHS_MARKER_PAIR: Final[PathAndKind] = ((), ValueKind.UNLISTED_DESCENDANTS)


class ProjectShapeAdditions:
    """The paths and kinds that the events of one batch add to the shapes of projects.

    An event belongs to its own project, and to every project that its metadata names at `project_path`.
    """

    def __init__(self, shapes: ProjectShapes, project_path: Sequence[str], max_of_an_event: int) -> None:
        self.project_shapes = shapes
        self._max_new_pairs_per_event = max_of_an_event
        self._project_field_path = tuple(project_path)
        self._known_path_kind_bits_by_project: dict[str, int] = {}
        self._added_path_kind_bits_by_project: dict[str, int] = {}

    @property
    def kinds_by_project(self) -> KindsByProject:
        return {
            project: self.project_shapes.kinds_of_bit_set(bits)
            for project, bits in self._added_path_kind_bits_by_project.items()
            if bits
        }

    def add_matching_event(
        self,
        event: Event,
        records: DecodedMetadataAndExtras,
        matching_decoder: ShapeDecoder,
        stream_decoder: ShapeDecoder,
    ) -> None:
        """Add the paths of an event that matches the stream's shape to the shapes of its projects, if they lack them.

        If the event matched the decoder of its own project, the shape of that project already has all of its paths.
        """
        project = event.project
        if (
            matching_decoder is stream_decoder
            and project not in matching_decoder.projects_having_all_decoded_paths
            and project is not None
        ):
            self._add_event_unless_covered(project, event, records, matching_decoder)
        if self._project_field_path:
            for other in matching_decoder.texts_at_path(event, records, self._project_field_path):
                if other != project and other not in stream_decoder.projects_having_all_decoded_paths:
                    self._add_event_to_other_project(other, event, stream_decoder)

    def _add_event_to_other_project(self, project: str, event: Event, stream_decoder: ShapeDecoder) -> None:
        records = stream_decoder.decode(event)
        if records is not None:
            self._add_event_unless_covered(project, event, records, stream_decoder)

    def add_mismatching_event(
        self, event: Event, event_kinds: MutableKindsByPath, is_listed: Callable[[EventPath], bool]
    ) -> MutableKindsByPath:
        """Add the paths of an event to the shapes of its projects; return those that the stream's shape may list.

        The event does not match the stream's shape. A path may be listed if it is listed already, or if a project of
        the event lists it. If the event has no project, all its paths may be listed.
        """
        projects = self._projects_of_event(event)
        if not projects:
            return event_kinds
        known_bits = 0
        for project in projects:
            known_bits |= self._add_path_kind_pairs(project, event_kinds)
        return {
            path: kinds
            for path, kinds in event_kinds.items()
            if is_listed(path) or self._is_listed_for_project(known_bits, path, kinds)
        }

    def _projects_of_event(self, event: Event) -> set[str]:
        projects = set(texts_at(event.metadata, self._project_field_path)) if self._project_field_path else set()
        return projects if event.project is None else projects | {event.project}

    def _add_event_unless_covered(
        self, project: str, event: Event, records: DecodedMetadataAndExtras, decoder: ShapeDecoder
    ) -> None:
        if decoder.all_path_kind_bits & ~self.project_shapes.bit_set_of_project(project):
            self._add_decoded_bits(project, decoder.path_kind_bits(event, records))
        else:
            decoder.projects_having_all_decoded_paths.add(project)

    def _add_decoded_bits(self, project: str, decoded_bits: int) -> None:
        key, known_bits = self._shape_key_and_bits(project)
        new = decoded_bits & ~known_bits
        if self._is_shape_full(known_bits):
            return
        if new.bit_count() > self._max_new_pairs(known_bits):
            new = self._bits_of_shortest_paths(
                [self.project_shapes.path_kind_pairs[place] for place in set_bit_positions(new)], known_bits
            )
        self._add_bits_to_project(key, known_bits, new)

    def _add_path_kind_pairs(self, project: str, event_kinds: MutableKindsByPath) -> int:
        key, known_bits = self._shape_key_and_bits(project)
        if self._is_shape_full(known_bits):
            return known_bits
        pairs = [(path, kind) for path, kinds in event_kinds.items() for kind in kinds]
        new = [pair for pair in pairs if not known_bits & self.project_shapes.find_bit(pair)]
        return self._add_bits_to_project(key, known_bits, self._bits_of_shortest_paths(new, known_bits))

    def _shape_key_and_bits(self, project: str) -> tuple[str, int]:
        key = project if self.project_shapes.can_store_project(project) else OTHER_PROJECTS_KEY
        known_bits = self._known_path_kind_bits_by_project.get(key)
        return key, self.project_shapes.bit_set_of_project(key) if known_bits is None else known_bits

    def _is_shape_full(self, known_bits: int) -> bool:
        return known_bits.bit_count() >= MAX_PATH_KINDS_PER_PROJECT and bool(
            known_bits & self.project_shapes.find_bit(_UNLISTED_PATHS_MARKER_PAIR)
        )

    def _max_new_pairs(self, known_bits: int) -> int:
        return max(0, min(MAX_PATH_KINDS_PER_PROJECT - known_bits.bit_count(), self._max_new_pairs_per_event))

    def _bits_of_shortest_paths(self, new: Sequence[PathAndKind], known_bits: int) -> int:
        """Return the bits of as many of the new pairs (path, kind) as the limit allows, the shortest paths first.

        If some pairs are left out, include the bit that marks the shape as incomplete.
        """
        limit = self._max_new_pairs(known_bits)
        selected = (
            new if len(new) <= limit else [_UNLISTED_PATHS_MARKER_PAIR, *sorted(new, key=_depth_sort_key)[:limit]]
        )
        bits = 0
        for pair in selected:
            bits |= self.project_shapes.find_or_add_bit(pair)
        return bits

    def _add_bits_to_project(self, key: str, known_bits: int, bits: int) -> int:
        if bits & ~known_bits:
            self._known_path_kind_bits_by_project[key] = known_bits | bits
            self._added_path_kind_bits_by_project[key] = self._added_path_kind_bits_by_project.get(key, 0) | (
                bits & ~known_bits
            )
        return known_bits | bits

    def _is_listed_for_project(self, known_bits: int, path: EventPath, kinds: Collection[ValueKind]) -> bool:
        return not kinds or any(self.project_shapes.find_bit((path, kind)) & known_bits for kind in kinds)


def _depth_sort_key(pair: PathAndKind) -> tuple[int, PathAndKind]:
    return len(pair[0]), pair


# The maximum number of paths in a shape. Further paths are not listed: queries can read them, but the compiler does not
# know that they exist.
MAX_PATHS_PER_SHAPE = 5_000
# The limits on the new paths of one event, and on the paths directly below one parent. They prevent a single event, or
# an object whose keys are data (ids, addresses), from using up all paths.
MAX_NEW_PATHS_PER_EVENT = 500
MAX_PATHS_BELOW_PARENT = 1_000
# The number of paths that had only null values is limited, because each such path makes every decoder larger.
MAX_NULL_PATHS_PER_STREAM = 1_000
MAX_NEW_NULL_PATHS_PER_BATCH = 100
_MIN_SECONDS_BETWEEN_REBUILDS = 1.0
# After these numbers of mismatching events in a batch, the decoder is rebuilt with the paths that they added.
_MISMATCH_COUNTS_FOR_REBUILD = frozenset({16, 128, 1024})

_UNLISTED, _UNSURE = frozenset({ValueKind.UNLISTED_DESCENDANTS}), frozenset({ValueKind.UNSURE_KINDS})


class InferredShapes(msgspec.Struct, frozen=True):
    """The events in their stored form, and what they add to the shapes of their stream and its projects."""

    events: list[Event]
    stream_kinds: ValueKindsByPath
    kinds_by_project: KindsByProject


class ShapeInferrer:
    """Infers the shapes of streams and of their projects.

    Only events that the decoder of the shape rejects are inspected value by value.
    """

    def __init__(
        self,
        shapes: Callable[[], Mapping[str, EventShape]],
        projects: Callable[[], Mapping[str, ProjectShapes]] = dict,
    ) -> None:
        self._get_shapes_by_stream = shapes
        self._get_project_shapes_by_stream = projects
        self._decoder_by_stream: dict[str, ShapeDecoder] = {}
        self._project_decoder_cache = ProjectDecoderCache()
        # By stream, the paths that had only null values. They are not listed in the shape, but decoders must accept
        # them.
        self._null_paths_by_stream: dict[str, set[EventPath]] = {}

    def infer_shapes(
        self, stream: Stream, events: Sequence[Event], derived_fields: DerivedFields = NO_DERIVED_FIELDS
    ) -> InferredShapes:
        """Return the events, each with the paths of its objects, and the paths and kinds that are new."""
        projects = self._get_project_shapes_by_stream().get(stream.name)
        additions = (
            ProjectShapeAdditions(projects, stream.project_at, MAX_NEW_PATHS_PER_EVENT)
            if projects is not None
            else None
        )
        inspect, kinds = self._infer_with_additions(stream.name, events, derived_fields, additions)
        return InferredShapes(inspect, kinds, additions.kinds_by_project if additions is not None else {})

    def infer_stream_shape(
        self, stream: str, events: Sequence[Event], derived_fields: DerivedFields = NO_DERIVED_FIELDS
    ) -> tuple[list[Event], ValueKindsByPath]:
        """Infer the shape as `infer_shapes` does, but not the shapes of projects."""
        return self._infer_with_additions(stream, events, derived_fields, None)

    def _infer_with_additions(
        self,
        stream: str,
        events: Sequence[Event],
        derived_fields: DerivedFields,
        additions: ProjectShapeAdditions | None,
    ) -> tuple[list[Event], ValueKindsByPath]:
        mismatches = _MismatchingEvents(self._get_shapes_by_stream().get(stream, EventShape()), additions)
        decoder = self._current_decoder(stream, mismatches.stream_shape, derived_fields.paths)
        projects = None if additions is None else additions.project_shapes
        batch_decoders = ProjectDecodersForBatch(
            self._project_decoder_cache,
            stream,
            derived_fields.paths,
            projects,
            self._null_paths_by_stream.get(stream, ()),
        )
        inspect = []
        for posted in events:
            event, matching_decoder, records = _decode_with_derived_fields(
                posted, batch_decoders.find_decoder_for_project(posted.project, decoder), decoder, derived_fields
            )
            if records is not None:
                inspect.append(_record_matching_event(event, matching_decoder, records, decoder, additions))
                continue
            inspect.append(mismatches.add_event(event))
            if mismatches.event_count in _MISMATCH_COUNTS_FOR_REBUILD:
                decoder = self._rebuild_decoder(mismatches, stream, decoder)
        self._add_null_paths_within_limits(stream, mismatches.null_paths)
        return inspect, mismatches.new_kinds()

    def _rebuild_decoder(self, mismatches: "_MismatchingEvents", stream: str, before: ShapeDecoder) -> ShapeDecoder:
        """Return a decoder for the rest of the batch, which accepts the new paths as well.

        Other batches see the new paths once this batch is stored.
        """
        new = mismatches.new_kinds()
        if not new and not mismatches.null_paths:
            return before
        nulls = self._null_paths_by_stream.get(stream, set()) | mismatches.null_paths
        return ShapeDecoder(
            mismatches.stream_shape.merged_with_kinds(new),
            before.built_at,
            nulls,
            before.required_paths,
            self._get_project_shapes_by_stream().get(stream),
        )

    def _add_null_paths_within_limits(self, stream: str, found: set[EventPath]) -> None:
        nulls = self._null_paths_by_stream.setdefault(stream, set())
        room = min(MAX_NULL_PATHS_PER_STREAM - len(nulls), MAX_NEW_NULL_PATHS_PER_BATCH)
        nulls.update(sorted(found - nulls, key=len)[: max(0, room)])

    def _current_decoder(self, stream: str, shape: EventShape, needed: tuple[EventPath, ...]) -> ShapeDecoder:
        decoder = self._decoder_by_stream.get(stream)
        nulls = self._null_paths_by_stream.get(stream, set())
        now = time.monotonic()
        is_old = decoder is not None and decoder.shape_version_and_null_path_count != (shape.version, len(nulls))
        if (
            decoder is None
            or decoder.required_paths != needed
            or (is_old and now - decoder.built_at > _MIN_SECONDS_BETWEEN_REBUILDS)
        ):
            decoder = ShapeDecoder(shape, now, set(nulls), needed, self._get_project_shapes_by_stream().get(stream))
            self._decoder_by_stream[stream] = decoder
        return decoder


def _decode_with_derived_fields(
    posted: Event, project_decoder: ShapeDecoder | None, stream_decoder: ShapeDecoder, derived_fields: DerivedFields
) -> tuple[Event, ShapeDecoder, DecodedMetadataAndExtras | None]:
    """Return the event with its derived fields, the decoder that it matches, and its decoded records.

    The decoder of the project is tried before that of the stream. The records are None if the event matches neither.
    """
    decoders = (stream_decoder,) if project_decoder is None else (project_decoder, stream_decoder)
    matching_decoder, records = _first_matching_decoder(posted, decoders, is_complete=False)
    if records is not None or not derived_fields.paths:
        return posted, matching_decoder, records
    event = derived_fields.fill_missing_fields(posted)
    return event, *_first_matching_decoder(event, decoders, is_complete=True)


def _first_matching_decoder(
    event: Event, decoders: Sequence[ShapeDecoder], *, is_complete: bool
) -> tuple[ShapeDecoder, DecodedMetadataAndExtras | None]:
    for decoder in decoders:
        records = decoder.decode(event, is_complete=is_complete)
        if records is not None:
            return decoder, records
    return decoders[-1], None


def _record_matching_event(
    event: Event,
    matching_decoder: ShapeDecoder,
    records: DecodedMetadataAndExtras,
    stream_decoder: ShapeDecoder,
    additions: ProjectShapeAdditions | None,
) -> Event:
    if additions is not None:
        additions.add_matching_event(event, records, matching_decoder, stream_decoder)
    return msgspec.structs.replace(event, object_paths=matching_decoder.object_paths_of_records(records))


class _MismatchingEvents:
    """The events of a batch that do not match the stream's shape, and the paths that they add to this shape."""

    def __init__(self, shape: EventShape, additions: ProjectShapeAdditions | None) -> None:
        self.stream_shape = shape
        self.event_count = 0
        self._project_shape_additions = additions
        self._found_kinds_by_path: MutableKindsByPath = {}
        # The parents of paths that were not listed. Such a path is too long, or was beyond the limit of its event or
        # project.
        self._parents_of_unlisted_paths: set[EventPath] = set()

    @property
    def null_paths(self) -> set[EventPath]:
        return {path for path, kinds in self._found_kinds_by_path.items() if not kinds}

    def add_event(self, event: Event) -> Event:
        """Collect the new paths of an event; return the event with the list of the paths of its objects.

        Objects at unlisted paths are left out of the list: no query reads them by path, and the list could become much
        longer than the event.
        """
        self.event_count += 1
        event = quote_inexact_numbers(event)
        event_kinds: MutableKindsByPath = {}
        objects: list[EventPath] = []
        self._parents_of_unlisted_paths |= collect_paths(event, event_kinds, objects)
        allowed = (
            event_kinds
            if self._project_shape_additions is None
            else self._project_shape_additions.add_mismatching_event(event, event_kinds, self._is_listed)
        )
        added = {path: allowed[path] for path in self._paths_within_limit(allowed)}
        for path, kinds in added.items():
            self._found_kinds_by_path.setdefault(path, set()).update(kinds)
        if len(added) < len(event_kinds):
            refused = event_kinds.keys() - added.keys()
            self._parents_of_unlisted_paths.update(path[:-1] for path in refused if path[:-1] not in refused)
        return msgspec.structs.replace(event, object_paths=format_paths(path for path in objects if path in added))

    def new_kinds(self) -> ValueKindsByPath:
        """Return the kinds and paths that are to be added to the shape, within its limits.

        If a new path exceeds the limits, its nearest ancestor in the shape is marked instead. The mark says that paths
        below the ancestor are not listed.
        """
        known_kinds = self.stream_shape.value_kinds_by_path
        new = {
            path: frozenset(kinds) - known_kinds.get(path, NO_VALUE_KINDS)
            for path, kinds in self._found_kinds_by_path.items()
        }
        unknown = [path for path, kinds in new.items() if kinds and path not in known_kinds]
        listed = set(_select_within_limits(unknown, known_kinds))
        learnt = {path: kinds for path, kinds in new.items() if kinds and (path in known_kinds or path in listed)}
        marked = self._nearest_listed_ancestors(listed, unknown)
        unsure = {
            path: _UNSURE
            for path in listed
            if _is_below_any(path, marked | self.stream_shape.paths_with_unlisted_descendants)
        }
        return _merge_kinds(
            learnt, unsure, dict.fromkeys(marked - self.stream_shape.paths_with_unlisted_descendants, _UNLISTED)
        )

    def _nearest_listed_ancestors(self, listed: Collection[EventPath], unknown: Iterable[EventPath]) -> set[EventPath]:
        """Return the paths to mark: the nearest listed ancestor of each path that the limits keep out of the shape."""
        below = self._parents_of_unlisted_paths.union(path[:-1] for path in unknown if path not in listed)
        return {_nearest_listed_path(path, listed, self.stream_shape.value_kinds_by_path) for path in below}

    def _is_listed(self, path: EventPath) -> bool:
        return path in self.stream_shape.value_kinds_by_path or bool(self._found_kinds_by_path.get(path))

    def _paths_within_limit(self, event_kinds: MutableKindsByPath) -> Iterable[EventPath]:
        if len(event_kinds) <= MAX_NEW_PATHS_PER_EVENT:
            return event_kinds
        new = [
            path
            for path in event_kinds
            if path not in self.stream_shape.value_kinds_by_path and path not in self._found_kinds_by_path
        ]
        too_many = frozenset(sorted(new, key=len)[MAX_NEW_PATHS_PER_EVENT:])
        return [path for path in event_kinds if path not in too_many]


def _merge_kinds(learnt: ValueKindsByPath, *more: ValueKindsByPath) -> ValueKindsByPath:
    merged = dict(learnt)
    for one in more:
        for path, kinds in one.items():
            merged[path] = merged.get(path, NO_VALUE_KINDS) | kinds
    return merged


def _is_below_any(path: EventPath, marked: Collection[EventPath]) -> bool:
    return bool(marked) and any(path[:length] in marked for length in range(len(path)))


def _nearest_listed_path(path: EventPath, listed: Collection[EventPath], known_kinds: ValueKindsByPath) -> EventPath:
    """Return the path itself if it is listed, else its nearest listed ancestor."""
    while path and path not in listed and path not in known_kinds:
        path = path[:-1]
    return path


def _select_within_limits(unknown: Sequence[EventPath], known_kinds: ValueKindsByPath) -> Sequence[EventPath]:
    """Return the shortest unknown paths within the limits. Paths below a path that is not listed are left out."""
    if not unknown:
        return ()
    steps_below = Counter(path[:-1] for path in known_kinds)
    selected, refused = [], set()
    for path in sorted(unknown, key=len):
        steps_below[path[:-1]] += 1
        if path[:-1] in refused or steps_below[path[:-1]] > MAX_PATHS_BELOW_PARENT:
            refused.add(path)
        else:
            selected.append(path)
    return selected[: max(0, MAX_PATHS_PER_SHAPE - len(known_kinds))]
