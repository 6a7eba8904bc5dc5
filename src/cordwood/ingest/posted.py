"""What a wire format makes of a body: events as they were posted, and what could not be read."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

# However much memory there is.
MOST_ITEMS: Final = 200_000


class Posted(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One event by its known top-level keys, straight from the decoder.

    Metadata stays the text that was sent, empty when there was none.
    """

    id: str | int | None = None
    timestamp: str | int | float | None = None
    event_message: str | None = None
    message: str | None = None
    project: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"")


class Body(msgspec.Struct, frozen=True):
    """A body as it arrived, inflated; header names are in lower case.

    A body of more than `most_items` is refused; of these, one larger than `item_bytes` is set aside undecoded.
    """

    data: bytes
    content_type: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    most_items: int = MOST_ITEMS
    item_bytes: int = 2 * 2**20

    @property
    def media(self) -> str:
        return self.content_type.split(";", 1)[0].strip().lower()

    @property
    def text(self) -> str:
        """What is not UTF-8 becomes U+FFFD: a wrong letter is better than a lost event."""
        return self.data.decode("utf-8-sig", "replace")


class SetAside(msgspec.Struct, frozen=True):
    """An item that cannot be stored: its place in the body, why, and what was sent.

    `is_event` says that the text is no longer as it was sent, but an event in JSON; `is_cut`, that it is only the beginning.
    """

    index: int
    reason: str
    text: str
    is_event: bool = False
    is_cut: bool = False


class Reading(msgspec.Struct):
    """Events in their order; `extras` are an event's other top-level keys, by its place in `events`.

    `indexes` are the places of the events in the body, where those are others; `beyond` counts those whose time lies
    outside of the stream's bounds, by `late` and `future`. `item_bytes` is the most that an item may have to be decoded.
    """

    events: list[Posted] = msgspec.field(default_factory=list)
    extras: dict[int, Mapping[str, msgspec.Raw]] = msgspec.field(default_factory=dict)
    set_aside: list[SetAside] = msgspec.field(default_factory=list)
    indexes: list[int] | None = None
    beyond: Counter[str] = msgspec.field(default_factory=Counter)
    item_bytes: int = 2 * 2**20

    @classmethod
    def of(cls, body: Body) -> "Reading":
        """An empty reading of a body, in which every item's place is told."""
        return cls(indexes=[], item_bytes=body.item_bytes)

    def add(self, event: Posted, index: int, extras: Mapping[str, msgspec.Raw] | None = None) -> None:
        if self.indexes is None:
            self.indexes = list(range(len(self.events)))
        if extras:
            self.extras[len(self.events)] = extras
        self.events.append(event)
        self.indexes.append(index)

    def refuse(self, index: int, reason: str, text: str, *, is_event: bool = False) -> None:
        self.set_aside.append(SetAside(index, reason, text, is_event))

    def index_of(self, place: int) -> int:
        return place if self.indexes is None else self.indexes[place]
