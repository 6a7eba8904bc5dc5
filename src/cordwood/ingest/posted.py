"""What a wire format makes of a body: events as they were posted, and what could not be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

Scalar = str | int | float | None


class Posted(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One event by its known top-level keys, straight from the decoder; metadata stays the text that was sent,
    empty when there was none.
    """

    id: str | int | None = None
    timestamp: str | int | float | None = None
    event_message: str | None = None
    message: str | None = None
    project: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True)
class SetAside:
    """An item that cannot be stored: its place in the body, why, and what was sent."""

    index: int
    reason: str
    text: str


@dataclass(slots=True)
class Reading:
    """`extras` are the other top-level keys, by the event's place in `events`; `indexes` are their places in the
    body where those differ.
    """

    events: list[Posted]
    extras: dict[int, Mapping[str, msgspec.Raw]] = field(default_factory=dict)
    set_aside: list[SetAside] = field(default_factory=list)
    indexes: list[int] | None = None

    def index_of(self, place: int) -> int:
        return place if self.indexes is None else self.indexes[place]
