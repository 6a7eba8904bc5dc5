"""An event on its way into a stream, its metadata still the text that was sent."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Event:
    """Times are microseconds since 1970 UTC. `metadata` and `extras` (other top-level keys) are JSON text."""

    id: str
    timestamp_us: int
    event_message: str | None
    project: str | None
    metadata: msgspec.Raw | None
    extras: msgspec.Raw | None
    timestamp_inferred: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one stream that were received together."""

    stream: str
    events: Sequence[Event]
    received_us: int
