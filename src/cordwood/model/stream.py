"""Streams: named sequences of events, with their retention and processing."""

from collections.abc import Mapping
from enum import StrEnum
from uuid import UUID

import msgspec

from cordwood.model.transform import Transform


class ClockPolicy(StrEnum):
    """What happens to an event beyond a time bound."""

    ACCEPT = "accept"
    CLAMP = "clamp"
    QUARANTINE = "quarantine"


class Stream(msgspec.Struct, frozen=True):
    """A stream. `derive` maps a dotted path to the template that fills it in events without it.

    `project_at` is the path inside metadata at which readers look for an event's project, if they do.
    """

    name: str
    id: UUID
    retention_seconds: float | None = None
    derive: Mapping[str, str] = msgspec.field(default_factory=dict)
    late: ClockPolicy = ClockPolicy.ACCEPT
    late_seconds: float | None = None
    future: ClockPolicy = ClockPolicy.ACCEPT
    future_seconds: float | None = None
    max_events: int | None = None
    events_per_second: float | None = None
    project_at: tuple[str, ...] = ()
    transforms: tuple[Transform, ...] = ()

    @property
    def late_after_seconds(self) -> float | None:
        """The age at which an event is late: the configured one, or the retention if that is shorter."""
        bounds = (self.late_seconds, self.retention_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)
