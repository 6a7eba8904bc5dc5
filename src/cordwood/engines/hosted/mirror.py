"""The serving process's copy of the streams' shapes and counts, which the engine's messages keep up to date."""

import threading
from collections.abc import Mapping, Sequence

from cordwood.engines.engine import BatchAppendResult, StreamStats
from cordwood.engines.hosted.messages import StreamCounts, StreamState
from cordwood.engines.project_shapes import ProjectShapes, set_bit_positions
from cordwood.model.event import EventShape, ReceivedEventBatch, ValueKind


def kinds_by_path_of_shape(shape: EventShape) -> dict[tuple[str, ...], frozenset[ValueKind]]:
    """Return all paths and kinds of a shape, in the form that `Shape.merged_with_kinds` takes."""
    return {
        path: shape.kinds_with_markers(path)
        for path in {*shape.value_kinds_by_path, *shape.paths_with_unlisted_descendants, *shape.paths_with_unsure_kinds}
    }


class StateMirror:
    """The copied shapes, project shapes and counts by stream; safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shapes: dict[str, EventShape] = {}
        self._project_shapes: dict[str, ProjectShapes] = {}
        self._counts: dict[str, StreamCounts] = {}

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        return self._shapes

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return self._project_shapes

    def stream_stats(self) -> Mapping[str, StreamStats]:
        return {name: counts.stats for name, counts in dict(self._counts).items()}

    def next_event_numbers(self) -> Mapping[str, int]:
        """Return the sequence number of each stream's next event: the number after its last acknowledged event."""
        return {name: counts.next_event_number for name, counts in dict(self._counts).items()}

    def newest_receipt_us(self) -> int | None:
        """Return the receive time of the newest acknowledged event of all streams."""
        return max((counts.newest_receipt_us or 0 for counts in dict(self._counts).values()), default=0)

    def update_states(self, states: Mapping[str, StreamState]) -> None:
        """Copy the states of streams from the engine's process, and keep paths and kinds that were copied earlier."""
        with self._lock:
            shapes, projects = dict(self._shapes), dict(self._project_shapes)
            for name, state in states.items():
                shapes[name] = shapes.get(name, EventShape(version=1)).merged_with_kinds(state.kinds_by_path)
                _merge_project_shapes(projects.setdefault(name, ProjectShapes()), state)
                self._counts[name] = state.counts
            self._shapes, self._project_shapes = shapes, projects

    def apply_append(
        self,
        batches: Sequence[ReceivedEventBatch],
        appended: Sequence[BatchAppendResult],
        counts: Mapping[str, StreamCounts],
    ) -> None:
        """Update shapes and counts as the engine did; add the paths of a batch only if one of its events was stored."""
        with self._lock:
            shapes = dict(self._shapes)
            for batch, result in zip(batches, appended, strict=True):
                if result.accepted and batch.stream in shapes:
                    shapes[batch.stream] = shapes[batch.stream].merged_with_kinds(batch.learnt)
                    for project, kinds in batch.by_project.items():
                        self._project_shapes[batch.stream].add_kinds(project, kinds)
            self._shapes = shapes
            self._replace_older_counts(counts)

    def update_counts(self, counts: Mapping[str, StreamCounts]) -> None:
        with self._lock:
            self._replace_older_counts(counts)

    def _replace_older_counts(self, counts: Mapping[str, StreamCounts]) -> None:
        for name, stream_counts in counts.items():
            if name not in self._counts or stream_counts.version > self._counts[name].version:
                self._counts[name] = stream_counts


def _merge_project_shapes(projects: ProjectShapes, state: StreamState) -> None:
    """Convert the projects' bit sets in `state` to those of `projects`, and add them to `projects`.

    The conversion is needed, because the same bit may stand for different pairs of path and kind in the two objects.
    Equal bit sets are converted only once.
    """
    translated: dict[int, int] = {}
    for project, bits in state.project_bit_sets.items():
        if bits not in translated:
            pairs = [state.path_kind_pairs[position] for position in set_bit_positions(bits)]
            translated[bits] = 0
            for path, kind in pairs:
                translated[bits] |= projects.find_or_add_bit((path, ValueKind(kind)))
        projects.add_bit_set(project, translated[bits])
