"""An event on its way into a stream, its metadata still the text that was sent."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cordwood.model.shape import Path, ValueKind


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Times are microseconds since 1970 UTC. `metadata` and `extras` (other top-level keys) are JSON text.

    `object_paths` are the paths of its objects, as `written_paths` writes them; None where nobody has looked.
    `received_us` is when it was first received, where that was not with its batch: it was stored elsewhere before.
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


# Between the steps of a path, and around each path: no two paths are written alike, for in steps these are escaped.
STEP = "\x1f"
PATH_END = "\n"
_ESCAPE = "\x1e"
_ESCAPED = {_ESCAPE: _ESCAPE + "e", STEP: _ESCAPE + "s", PATH_END: _ESCAPE + "n"}


def written_path(steps: Sequence[str]) -> str:
    return PATH_END + STEP.join(map(_written_step, steps)) + PATH_END


def _written_step(step: str) -> str:
    """A step may be any key that an event can have."""
    if step.isprintable():
        return step
    return "".join(_ESCAPED.get(letter, letter) for letter in step)


def written_paths(paths: Iterable[Sequence[str]]) -> str:
    """Each path between two ends, so that one can be looked for in the text of all."""
    return "".join(written_path(steps) for steps in paths)


class Batch(msgspec.Struct, frozen=True):
    """Events of one stream that were received together, and the paths and kinds that are new with them.

    `by_project` are those that are new to single projects.
    """

    stream: str
    events: Sequence[Event]
    received_us: int
    learnt: Mapping[Path, frozenset[ValueKind]] = msgspec.field(default_factory=dict)
    by_project: Mapping[str, Mapping[Path, frozenset[ValueKind]]] = msgspec.field(default_factory=dict)
