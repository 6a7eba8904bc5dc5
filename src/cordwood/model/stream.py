"""A named sequence of events, and what is kept and derived of it."""

from collections.abc import Mapping
from enum import StrEnum
from uuid import UUID

import msgspec

from cordwood.model.transform import Transform


class ClockPolicy(StrEnum):
    """What happens to an event whose time lies beyond the stated bound."""

    ACCEPT = "accept"
    CLAMP = "clamp"
    QUARANTINE = "quarantine"


class Stream(msgspec.Struct, frozen=True):
    """`derive` maps a dotted path to a template that fills it where the event lacks it.

    `project_at` are the steps inside metadata to where its readers look for an event's project, if they look there.
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
        """How old an event may arrive: what is older than the stream keeps is late, whatever is stated."""
        bounds = (self.late_seconds, self.retention_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)
