"""Events before they are stored: their fields, batches, and the labels in which senders name their service."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from cordwood.model.shape import Path, ValueKind


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event. Times are in microseconds since 1970 UTC.

    `metadata` and `extras` (other top-level keys) are JSON text. `object_paths` lists the paths of its objects in the
    form of `format_paths`; None if they are unknown. `received_us` is the original time of receipt of an imported
    event.
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


# The separators of steps and paths. They are escaped in steps, so that no two paths have the same text.
STEP_SEPARATOR = "\x1f"
PATH_SEPARATOR = "\n"
_ESCAPE = "\x1e"
_ESCAPE_CODES = {_ESCAPE: _ESCAPE + "e", STEP_SEPARATOR: _ESCAPE + "s", PATH_SEPARATOR: _ESCAPE + "n"}


def format_path(steps: Sequence[str]) -> str:
    return PATH_SEPARATOR + STEP_SEPARATOR.join(map(_escape_separators, steps)) + PATH_SEPARATOR


def _escape_separators(step: str) -> str:
    """Escape separators in a step, which may be any key of an event."""
    if step.isprintable():
        return step
    return "".join(_ESCAPE_CODES.get(character, character) for character in step)


def format_paths(paths: Iterable[Sequence[str]]) -> str:
    """Join paths with separators around each, so that a path can be searched in the text."""
    return "".join(format_path(steps) for steps in paths)


def object_paths(event: Event) -> str:
    """Return the paths of the event's objects; find them in its JSON if they were not computed before."""
    if event.object_paths is not None:
        return event.object_paths
    paths: list[Path] = []
    for parent_path, text in ((("metadata",), event.metadata), ((), event.extras)):
        try:
            _collect_object_paths(json.loads(text) if text else None, parent_path, paths)
        except (ValueError, RecursionError):
            continue
    return format_paths(path for path in paths if path)


def _collect_object_paths(value: object, path: Path, paths: list[Path]) -> None:
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
    learnt: Mapping[Path, frozenset[ValueKind]] = msgspec.field(default_factory=dict)
    by_project: Mapping[str, Mapping[Path, frozenset[ValueKind]]] = msgspec.field(default_factory=dict)


# In the order in which Loki searches for the name.
SERVICE_LABELS: Final = (
    "service_name service app application app_name name app_kubernetes_io_name container container_name"
    " k8s_container_name component workload job k8s_job_name"
).split()
