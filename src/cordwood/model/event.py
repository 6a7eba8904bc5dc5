"""An event on its way into a stream, its metadata still the text that was sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cordwood.model.shape import Path, ValueKind


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Times are microseconds since 1970 UTC. `metadata` and `extras` (other top-level keys) are JSON text."""

    id: str
    timestamp_us: int
    event_message: str | None = None
    project: str | None = None
    metadata: str | None = None
    extras: str | None = None
    timestamp_inferred: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one stream that were received together, and the paths and kinds that are new with them."""

    stream: str
    events: Sequence[Event]
    received_us: int
    learnt: Mapping[Path, frozenset[ValueKind]] = field(default_factory=dict)
