"""Events before they are stored, and shapes, which list the paths seen in a stream's events and the kinds of values."""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Optional

import msgspec

EventPath = tuple[str, ...]


class ValueKind(StrEnum):
    """The kind of a value at a path. The last two members are not kinds of values but marks on the path.

    `UNLISTED_DESCENDANTS` means that longer paths below this path were seen but are not listed. `UNSURE_KINDS` means
    that the path may have occurred before it was listed, so that values of kinds that are not listed may be stored.
    """

    OBJECT = "object"
    ARRAY = "array"
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"
    UNLISTED_DESCENDANTS = "unlisted"
    UNSURE_KINDS = "unsure"


ValueKindsByPath = Mapping[EventPath, frozenset[ValueKind]]

# The step of a path that stands for any element of an array.
ARRAY_ELEMENT_STEP = "[]"

# A path with more than `MAX_LISTED_PATH_STEPS` steps or `MAX_LISTED_PATH_CHARACTERS` characters is not listed. Without
# limits, a single event with deep nesting or long keys could make shapes and decoders very large.
MAX_LISTED_PATH_STEPS = 32
MAX_LISTED_PATH_CHARACTERS = 1_000

NO_VALUE_KINDS: frozenset[ValueKind] = frozenset()
_MARKER_KINDS = frozenset({ValueKind.UNLISTED_DESCENDANTS, ValueKind.UNSURE_KINDS})


class EventShape(msgspec.Struct, frozen=True):
    """The paths seen in a stream's events, with the kinds of the values at each path.

    A path is a tuple such as ("metadata", "request", "path"). The step `[]` stands for the elements of an array. The
    empty path stands for the whole event. `version` changes with every change of the shape. `unlisted` and `unsure`
    contain the paths that have these marks.

    In the shape of one project, `whole_shape` is the shape of the whole stream. A caller may see only names in the
    project's own paths, but the kinds of values at a path are those in the whole stream.
    """

    value_kinds_by_path: ValueKindsByPath = msgspec.field(default_factory=dict)
    version: int = 0
    paths_with_unlisted_descendants: frozenset[EventPath] = frozenset()
    paths_with_unsure_kinds: frozenset[EventPath] = frozenset()
    whole_shape: Optional["EventShape"] = None

    def merged_with_kinds(self, learnt: ValueKindsByPath) -> "EventShape":
        """Return a shape that also has the paths and kinds in `learnt`; return this shape itself if nothing is new."""
        new = {
            path: kinds
            for path, kinds in learnt.items()
            if not kinds <= self.kinds_with_markers(path) and is_listable(path)
        }
        if not new:
            return self
        merged = dict(self.value_kinds_by_path)
        for path, kinds in new.items():
            values = merged.get(path, NO_VALUE_KINDS) | (kinds - _MARKER_KINDS)
            if values:
                merged[path] = values
        unlisted = self.paths_with_unlisted_descendants.union(
            path for path, kinds in new.items() if ValueKind.UNLISTED_DESCENDANTS in kinds
        )
        unsure = self.paths_with_unsure_kinds.union(
            path for path, kinds in new.items() if ValueKind.UNSURE_KINDS in kinds
        )
        return EventShape(merged, self.version + 1, unlisted, unsure)

    def kinds_with_markers(self, path: EventPath) -> frozenset[ValueKind]:
        """Return the kinds of values at a path, and the marks on the path."""
        kinds = self.value_kinds_by_path.get(path, NO_VALUE_KINDS)
        if path in self.paths_with_unlisted_descendants:
            kinds |= {ValueKind.UNLISTED_DESCENDANTS}
        return kinds | {ValueKind.UNSURE_KINDS} if path in self.paths_with_unsure_kinds else kinds

    def stored_kinds(self, path: EventPath) -> frozenset[ValueKind] | None:
        """Return the kinds of values at a path in the whole stream; None if values of other kinds may be stored."""
        whole = self.whole_shape or self
        kinds = whole.value_kinds_by_path.get(path)
        if kinds is None:
            return None if whole.may_have_unlisted_path(path) else NO_VALUE_KINDS
        return None if path in whole.paths_with_unsure_kinds else kinds

    def may_have_unlisted_path(self, path: EventPath) -> bool:
        """Return whether a path may occur in events although the shape does not list it."""
        if not is_listable(path):
            return True
        return bool(self.paths_with_unlisted_descendants) and any(
            path[:length] in self.paths_with_unlisted_descendants for length in range(len(path))
        )


def is_listable(path: EventPath) -> bool:
    """Return whether a path is short enough to be listed in a shape."""
    return len(path) <= MAX_LISTED_PATH_STEPS and sum(map(len, path)) <= MAX_LISTED_PATH_CHARACTERS


# What identifies an event in its stream: its project, or None, and its id.
EventKey = tuple[str | None, str]


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event, as an engine receives it. Times are in microseconds since 1970 UTC.

    `metadata` and `extras` (all other top-level keys) are JSON text. `object_paths` lists the paths at which the event
    has objects, in the form of `format_paths`; it is None if they are not known yet. `received_us` is set only for an
    imported event: it is the time at which the event was first received.
    """

    id: str
    timestamp_us: int
    event_message: str | None = None
    project: str | None = None
    metadata: str | None = None
    extras: str | None = None
    timestamp_inferred: bool = False
    object_paths: str | None = None
    received_us: int | None = None

    @property
    def key(self) -> EventKey:
        """What identifies the event in its stream: the project and the id.

        Senders choose ids. If an id alone identified an event, a sender could store an id in its own project first, and
        an event of another project with this id would then be dropped as a duplicate.
        """
        return self.project, self.id


# `STEP_SEPARATOR` stands between the steps of a path, `PATH_SEPARATOR` before and after each path. If a step contains a
# separator, the separator is escaped, so that different paths have different texts.
STEP_SEPARATOR = "\x1f"
PATH_SEPARATOR = "\n"
_ESCAPE_CHARACTER = "\x1e"
_ESCAPE_BY_SEPARATOR = {
    _ESCAPE_CHARACTER: _ESCAPE_CHARACTER + "e",
    STEP_SEPARATOR: _ESCAPE_CHARACTER + "s",
    PATH_SEPARATOR: _ESCAPE_CHARACTER + "n",
}


def format_path(steps: Sequence[str]) -> str:
    return PATH_SEPARATOR + STEP_SEPARATOR.join(map(_escape_separators, steps)) + PATH_SEPARATOR


def _escape_separators(step: str) -> str:
    """Escape the separators in a step, which can be any key that a sender chose."""
    if step.isprintable():
        return step
    return "".join(_ESCAPE_BY_SEPARATOR.get(character, character) for character in step)


def format_paths(paths: Iterable[Sequence[str]]) -> str:
    """Join paths to one text in which the result of `format_path` for a single path can be searched."""
    return "".join(format_path(steps) for steps in paths)


def encode_object_paths(event: Event) -> str:
    """Return the paths at which an event has objects, in the form of `format_paths`.

    If the event does not state them, they are read from its JSON.
    """
    if event.object_paths is not None:
        return event.object_paths
    paths: list[EventPath] = []
    for parent_path, text in ((("metadata",), event.metadata), ((), event.extras)):
        try:
            _collect_object_paths(json.loads(text) if text else None, parent_path, paths)
        except (ValueError, RecursionError):
            continue
    return format_paths(path for path in paths if path)


def _collect_object_paths(value: object, path: EventPath, paths: list[EventPath]) -> None:
    if isinstance(value, dict):
        paths.append(path)
        for key, child in value.items():
            _collect_object_paths(child, (*path, key), paths)


class ReceivedEventBatch(msgspec.Struct, frozen=True):
    """Events of one stream that were received together.

    `learnt` has the paths and kinds that are new in the stream; `by_project` has those that are new in each project.
    """

    stream: str
    events: Sequence[Event]
    received_us: int
    learnt: Mapping[EventPath, frozenset[ValueKind]] = msgspec.field(default_factory=dict)
    by_project: Mapping[str, Mapping[EventPath, frozenset[ValueKind]]] = msgspec.field(default_factory=dict)


# The labels from which Loki takes the name of a service. The first one that an entry has is used.
SERVICE_NAME_LABELS: Final = (
    "service_name service app application app_name name app_kubernetes_io_name container container_name"
    " k8s_container_name component workload job k8s_job_name"
).split()
