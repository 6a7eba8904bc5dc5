"""The outcome of each item of a body, for protocols that report it."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from cordwood.ingest.parsed_body import ParsedBody, RefusedItem
from cordwood.model.event import Event


class ItemState(StrEnum):
    """What became of an item. A dropped one was removed by a transform of the stream."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    QUARANTINED = "quarantined"
    DROPPED = "dropped"


class ItemOutcome(msgspec.Struct, frozen=True):
    """The outcome of one item. `id` is empty if it was never decoded; `reason` is that of the quarantine."""

    state: ItemState
    id: str = ""
    reason: str = ""


class DecodedItems(msgspec.Struct, frozen=True):
    """The positions and ids of the decoded events of a body, before any of them is changed or removed.

    `quarantined` has the reasons of the quarantined items by position.
    """

    positions: Sequence[int]
    ids: Sequence[str]
    quarantined: Mapping[int, str] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, events: Sequence[Event], parsed: ParsedBody) -> "DecodedItems":
        return cls([parsed.index_of(place) for place in range(len(events))], [event.id for event in events])

    def without(self, refused: Sequence[RefusedItem]) -> "DecodedItems":
        """Return the items with the quarantined ones noted."""
        return msgspec.structs.replace(self, quarantined={item.index: item.reason for item in refused})

    def outcomes(self, stored: Sequence[Event], repeated: Sequence[int]) -> dict[int, ItemOutcome]:
        """Return the outcomes by position. `stored` are the events of the batch, `repeated` its duplicates.

        The batch has the decoded events in their order without those that were quarantined or dropped.
        """
        found = {
            position: ItemOutcome(ItemState.QUARANTINED, reason=reason) for position, reason in self.quarantined.items()
        }
        duplicates = set(repeated)
        number = 0
        for position, event_id in zip(self.positions, self.ids, strict=True):
            if position in found:
                found[position] = msgspec.structs.replace(found[position], id=event_id)
            elif number < len(stored) and stored[number].id == event_id:
                state = ItemState.DUPLICATE if number in duplicates else ItemState.STORED
                found[position] = ItemOutcome(state, event_id)
                number += 1
            else:
                found[position] = ItemOutcome(ItemState.DROPPED, event_id)
        return found
