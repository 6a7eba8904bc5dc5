"""Events before they are stored, and shapes: the paths seen in a stream's events, with the kinds of values at each."""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Optional

import msgspec

EventPath = tuple[str, ...]


class ValueKind(StrEnum):
    """The kind of a value at a path. The last two members are not kinds, but marks on the path itself.

    `UNLISTED` means that paths below this path were seen but are not listed. `UNSURE` means that the path may have
    occurred in events before it was listed, with values of kinds that are not listed either.
    """

    OBJECT = "object"
    ARRAY = "array"
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"
    UNLISTED = "unlisted"
    UNSURE = "unsure"


KindsByPath = Mapping[EventPath, frozenset[ValueKind]]

# The step of a path that stands for any element of an array.
ELEMENT_STEP = "[]"

# Limits on a listed path, in steps and characters. Without them, the size of shapes and decoders would depend on the
# nesting and the keys of a single event.
MAX_PATH_STEPS = 32
MAX_PATH_CHARACTERS = 1_000

NO_VALUE_KINDS: frozenset[ValueKind] = frozenset()
_MARKER_KINDS = frozenset({ValueKind.UNLISTED, ValueKind.UNSURE})


class Shape(msgspec.Struct, frozen=True):
    """The paths seen in a stream's events, with the kinds of their values.

    A path is a tuple such as ("metadata", "request", "path"). The step `[]` stands for the elements of an array.
    `version` changes with every change of the shape. `unlisted` and `unsure` have the paths with these marks; the empty
    path is the event itself.

    In the shape of one project, `whole_shape` is the shape of the whole stream. A caller may see only the names in the
    project's own paths, but the kinds of values at a path are taken from the whole stream.
    """

    kinds: KindsByPath = msgspec.field(default_factory=dict)
    version: int = 0
    unlisted: frozenset[EventPath] = frozenset()
    unsure: frozenset[EventPath] = frozenset()
    whole_shape: Optional["Shape"] = None

    def merged_with_kinds(self, learnt: KindsByPath) -> "Shape":
        """Return this shape with the new paths and kinds in `learnt`; return it unchanged if nothing is new."""
        new = {
            path: kinds
            for path, kinds in learnt.items()
            if not kinds <= self.kinds_with_markers(path) and is_listable(path)
        }
        if not new:
            return self
        merged = dict(self.kinds)
        for path, kinds in new.items():
            values = merged.get(path, NO_VALUE_KINDS) | (kinds - _MARKER_KINDS)
            if values:
                merged[path] = values
        unlisted = self.unlisted.union(path for path, kinds in new.items() if ValueKind.UNLISTED in kinds)
        unsure = self.unsure.union(path for path, kinds in new.items() if ValueKind.UNSURE in kinds)
        return Shape(merged, self.version + 1, unlisted, unsure)

    def kinds_with_markers(self, path: EventPath) -> frozenset[ValueKind]:
        """Return the kinds at a path, with its marks."""
        kinds = self.kinds.get(path, NO_VALUE_KINDS)
        if path in self.unlisted:
            kinds |= {ValueKind.UNLISTED}
        return kinds | {ValueKind.UNSURE} if path in self.unsure else kinds

    def stored_kinds(self, path: EventPath) -> frozenset[ValueKind] | None:
        """Return the kinds that events of any project have at a path; None if events may have other kinds."""
        whole = self.whole_shape or self
        kinds = whole.kinds.get(path)
        if kinds is None:
            return None if whole.may_be_unlisted(path) else NO_VALUE_KINDS
        return None if path in whole.unsure else kinds

    def may_be_unlisted(self, path: EventPath) -> bool:
        """Return whether events may have a path although it is not listed."""
        if not is_listable(path):
            return True
        return bool(self.unlisted) and any(path[:length] in self.unlisted for length in range(len(path)))


def is_listable(path: EventPath) -> bool:
    """Return whether a path is short enough to be listed."""
    return len(path) <= MAX_PATH_STEPS and sum(map(len, path)) <= MAX_PATH_CHARACTERS


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event. Times are in microseconds since 1970 UTC.

    `metadata` and `extras` (other top-level keys) are JSON text. `object_paths` lists the paths of the event's objects
    in the form of `format_paths`; it is None if they are unknown. `received_us` is the original time of receipt of an
    imported event.
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


# The separators of steps and paths. If a step contains a separator, it is escaped, so that different paths have
# different texts.
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
    """Escape separators in a step, which may be any key of an event."""
    if step.isprintable():
        return step
    return "".join(_ESCAPE_BY_SEPARATOR.get(character, character) for character in step)


def format_paths(paths: Iterable[Sequence[str]]) -> str:
    """Join paths with separators around each, so that a path can be searched in the text."""
    return "".join(format_path(steps) for steps in paths)


def encode_object_paths(event: Event) -> str:
    """Return the paths of the event's objects in the form of `format_paths`; find them in its JSON if necessary."""
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


class Batch(msgspec.Struct, frozen=True):
    """Events of one stream that were received together, with the paths and kinds that are new to the stream.

    `by_project` has the paths and kinds that are new to single projects.
    """

    stream: str
    events: Sequence[Event]
    received_us: int
    learnt: Mapping[EventPath, frozenset[ValueKind]] = msgspec.field(default_factory=dict)
    by_project: Mapping[str, Mapping[EventPath, frozenset[ValueKind]]] = msgspec.field(default_factory=dict)


# The labels from which Loki takes the name of a service, in order of precedence.
SERVICE_NAME_LABELS: Final = (
    "service_name service app application app_name name app_kubernetes_io_name container container_name"
    " k8s_container_name component workload job k8s_job_name"
).split()
