"""A decoded request body: its events as posted, the items that could not be decoded, and the outcome of each item."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from cordwood.errors import BodyTooLarge
from cordwood.model.event import Event

# The maximum number of items of a body, even on machines with much memory.
MAX_BODY_ITEMS: Final = 200_000
# The maximum number of items of a body whose events have labels instead of a stream. The limit is low because the
# answer may contain a result for each item. Shippers send a few thousand items at most.
MAX_LABELLED_BODY_ITEMS: Final = 50_000
# The maximum number of different combinations of labels in a body. It is limited, because the service looks up a stream
# for each.
MAX_LABEL_SETS_PER_BODY: Final = 256

# The labels of an event, such as an index and a source type, the most important one first. If a protocol does not name
# a stream, its events have labels, by which the service chooses the stream.
StreamLabels = tuple[str, ...]


class PostedEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A decoded event, with those of its top-level keys that have a meaning for the service.

    `metadata` is the JSON text that was sent, and empty if there was none.
    """

    id: str | int | None = None
    timestamp: str | int | float | None = None
    event_message: str | None = None
    message: str | None = None
    project: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"")


class Body(msgspec.Struct, frozen=True):
    """A decompressed body. The names of headers are in lower case.

    A body of more than `max_items`, or with more than `max_metadata_bytes` of metadata in its events, is refused. An
    item larger than `max_item_bytes` is quarantined without being decoded. If the sender's key is pinned to a project,
    `pinned_project` is this project.
    """

    data: bytes
    content_type: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_items: int = MAX_BODY_ITEMS
    max_item_bytes: int = 2 * 2**20
    max_metadata_bytes: int = 128 * 2**20
    pinned_project: str | None = None

    @property
    def media_type(self) -> str:
        return self.content_type.split(";", 1)[0].strip().lower()

    @property
    def text(self) -> str:
        """The body as text, in which invalid UTF-8 is replaced by U+FFFD so that no event is lost."""
        return self.data.decode("utf-8-sig", "replace")


class MetadataBudget:
    """A limit on the total size of the metadata of a body's events.

    It is needed because a short body may have thousands of events that share the attributes of one resource, and each
    event gets a copy of these attributes.
    """

    def __init__(self, body: Body) -> None:
        self._remaining_bytes = body.max_metadata_bytes

    def charge_metadata(self, metadata: msgspec.Raw) -> None:
        self._remaining_bytes -= memoryview(metadata).nbytes
        if self._remaining_bytes < 0:
            raise BodyTooLarge(
                "The events of the body take too much memory with what they share.", hint="Send fewer at once."
            )


class RefusedItem(msgspec.Struct, frozen=True):
    """A quarantined item: its position in the body, the reason, and its text.

    `is_reencoded_event` is true if the text is an event that was encoded again, and not the text that was sent.
    `is_truncated` is true if `text` has only the beginning of the item.
    """

    index: int
    reason: str
    text: str
    is_reencoded_event: bool = False
    is_truncated: bool = False


class ParsedBody(msgspec.Struct):
    """The events of a decoded body in order, and the items that are refused.

    `extras_by_event_number` has the top-level keys for which `PostedEvent` has no field, by position of the event in
    `events`. `item_indexes` has, for each event, its position in the body; it is None if all these positions equal
    those in `events`. `out_of_time_bounds_counts` counts the events outside of the stream's time bounds, under `late`
    and `future`. Items larger than `max_item_bytes` are quarantined without being decoded.
    """

    events: list[PostedEvent] = msgspec.field(default_factory=list)
    extras_by_event_number: dict[int, Mapping[str, msgspec.Raw]] = msgspec.field(default_factory=dict)
    refused_items: list[RefusedItem] = msgspec.field(default_factory=list)
    item_indexes: list[int] | None = None
    out_of_time_bounds_counts: Counter[str] = msgspec.field(default_factory=Counter)
    max_item_bytes: int = 2 * 2**20

    @classmethod
    def create_empty_for_body(cls, body: Body) -> "ParsedBody":
        """Return a ParsedBody without events for `body`. It will record the position of every event that is added."""
        return cls(item_indexes=[], max_item_bytes=body.max_item_bytes)

    def add_event(self, event: PostedEvent, index: int, extras: Mapping[str, msgspec.Raw] | None = None) -> None:
        if self.item_indexes is None:
            self.item_indexes = list(range(len(self.events)))
        if extras:
            self.extras_by_event_number[len(self.events)] = extras
        self.events.append(event)
        self.item_indexes.append(index)

    def refuse_item(self, index: int, reason: str, text: str, *, is_event: bool = False) -> None:
        self.refused_items.append(RefusedItem(index, reason, text, is_event))

    def item_index(self, event_number: int) -> int:
        return event_number if self.item_indexes is None else self.item_indexes[event_number]


class LabelledBody(msgspec.Struct):
    """A decoded body whose events go to streams that depend on their labels.

    The position of an item is its position in the whole body, not among the items with the same labels.
    """

    parts_by_labels: dict[StreamLabels, ParsedBody] = msgspec.field(default_factory=dict)
    max_item_bytes: int = 2 * 2**20

    def part_for_labels(self, *labels: str) -> ParsedBody:
        """Return the ParsedBody of the events with these labels, which is created on first use.

        Raise BodyTooLarge if the body has too many different combinations of labels.
        """
        known = self.parts_by_labels.get(labels)
        if known is not None:
            return known
        if len(self.parts_by_labels) >= MAX_LABEL_SETS_PER_BODY:
            raise BodyTooLarge(
                f"The events of the body have more than {MAX_LABEL_SETS_PER_BODY} labels.", hint="Send fewer at once."
            )
        part = self.parts_by_labels[labels] = ParsedBody(item_indexes=[], max_item_bytes=self.max_item_bytes)
        return part

    def add_refused_items(self, aside: ParsedBody) -> None:
        """Add the refused items of `aside` to the first part, because they have no labels of their own."""
        if aside.refused_items:
            first = next(iter(self.parts_by_labels.values()), None) or self.part_for_labels()
            first.refused_items += aside.refused_items


class ItemState(StrEnum):
    """The outcome of an item. DROPPED means that a transform of the stream removed it."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    QUARANTINED = "quarantined"
    DROPPED = "dropped"


class ItemOutcome(msgspec.Struct, frozen=True):
    """The outcome of one item.

    `id` is empty if the item was not decoded. `reason` is the reason for quarantining it.
    """

    state: ItemState
    id: str = ""
    reason: str = ""


class DecodedItems(msgspec.Struct, frozen=True):
    """The positions in the body and the ids of all decoded events, before transforms change or remove events.

    `quarantine_reasons` has the reasons of quarantined items by position.
    """

    item_indexes: Sequence[int]
    event_ids: Sequence[str]
    quarantine_reasons: Mapping[int, str] = msgspec.field(default_factory=dict)

    @classmethod
    def from_events(cls, events: Sequence[Event], parsed: ParsedBody) -> "DecodedItems":
        return cls([parsed.item_index(place) for place in range(len(events))], [event.id for event in events])

    def with_quarantine_reasons(self, refused: Sequence[RefusedItem]) -> "DecodedItems":
        """Return a copy with the reasons of the quarantined items `refused`."""
        return msgspec.structs.replace(self, quarantine_reasons={item.index: item.reason for item in refused})

    def outcomes_by_position(self, stored: Sequence[Event], repeated: Sequence[int]) -> dict[int, ItemOutcome]:
        """Return the outcomes of the items by position in the body.

        `stored` has the events of the batch, which are the decoded events without those that were quarantined or
        dropped. `repeated` has the positions of the duplicates in the batch.
        """
        found = {
            position: ItemOutcome(ItemState.QUARANTINED, reason=reason)
            for position, reason in self.quarantine_reasons.items()
        }
        duplicates = set(repeated)
        number = 0
        for position, event_id in zip(self.item_indexes, self.event_ids, strict=True):
            if position in found:
                found[position] = msgspec.structs.replace(found[position], id=event_id)
            elif number < len(stored) and stored[number].id == event_id:
                state = ItemState.DUPLICATE if number in duplicates else ItemState.STORED
                found[position] = ItemOutcome(state, event_id)
                number += 1
            else:
                found[position] = ItemOutcome(ItemState.DROPPED, event_id)
        return found
