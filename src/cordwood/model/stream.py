"""Streams: named sequences of events, with their retention and processing, and the transforms of their events."""

from collections.abc import Mapping
from enum import StrEnum
from uuid import UUID

import msgspec

# The steps to a field: ("metadata", "user", "id"), or one top-level name.
FieldPath = tuple[str, ...]


class Action(StrEnum):
    """The kind of a transform."""

    DROP = "drop"
    SAMPLE = "sample"
    REMOVE = "remove"
    HASH = "hash"
    COPY = "copy"
    RENAME = "rename"
    MESSAGE = "message"
    ENRICH = "enrich"


class Transform(msgspec.Struct, frozen=True):
    """A change to the events that match the LQL filter `where`, or to all events without a filter.

    `moves` are pairs of source and target fields, `fields` are single ones. `entries` are JSON texts by key.
    """

    action: Action
    where: str = ""
    rate: float = 1.0
    fields: tuple[FieldPath, ...] = ()
    moves: tuple[tuple[FieldPath, FieldPath], ...] = ()
    template: str = ""
    entries: Mapping[str, str] = msgspec.field(default_factory=dict)


class ClockPolicy(StrEnum):
    """The treatment of an event whose time is too late or too far in the future."""

    ACCEPT = "accept"
    CLAMP = "clamp"
    QUARANTINE = "quarantine"


class Stream(msgspec.Struct, frozen=True):
    """A stream: its name and the settings for its events.

    `derive` maps a dotted path to the template that fills it in events without it. `project_at` is the path inside
    metadata at which readers look for an event's project; None if they do not.
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
    description: str = ""

    @property
    def late_after_seconds(self) -> float | None:
        """The age in seconds at which an event is late: the configured age, or the retention if that is shorter."""
        bounds = (self.late_seconds, self.retention_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)
