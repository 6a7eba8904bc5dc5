"""The quarantine stream: items that could not be stored, each with the reason, for inspection and replay."""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID, uuid4

import msgspec

from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.formats.journald import JOURNAL_MEDIA_TYPE as JOURNAL_MEDIA
from cordwood.ingest.limits import UNLIMITED_LARGE_EVENT_LIMITER, LargeEventLimiter
from cordwood.ingest.parsed_body import Body, ParsedBody, RefusedItem
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath

_DAY_US = 86_400 * 10**6

QUARANTINE_STREAM = Stream(
    name="_quarantine",
    id=UUID("f3b0a1de-5a3c-5b0e-9d0c-6f4f0d5a7c11"),
    retention_seconds=7 * 86_400,
    max_events=100_000,
)

# If an item is too large to be stored whole, an excerpt of `_LARGE_ITEM_EXCERPT_BYTES` is stored. Once the budget for
# the day, or the budget for large events, is used up, at most `_OVER_BUDGET_EXCERPT_BYTES` of any item are stored.
_LARGE_ITEM_EXCERPT_BYTES = 256 * 1024
_OVER_BUDGET_EXCERPT_BYTES = 4 * 1024
_MAX_QUARANTINED_BYTES_PER_DAY = 2**30

_METADATA_FIELD_KINDS: Mapping[str, ValueKind] = {
    "stream": ValueKind.TEXT,
    "form": ValueKind.TEXT,
    "reason": ValueKind.TEXT,
    "text": ValueKind.TEXT,
    "index": ValueKind.NUMBER,
    "is_cut": ValueKind.BOOL,
    "is_transformed": ValueKind.BOOL,
    "replays": ValueKind.TEXT,
}
QUARANTINE_SHAPE: ValueKindsByPath = {("metadata",): frozenset({ValueKind.OBJECT})} | {
    ("metadata", name): frozenset({kind}) for name, kind in _METADATA_FIELD_KINDS.items()
}

_encode = msgspec.json.Encoder().encode


class ItemTruncator:
    """Truncates quarantined items that could fill the disk, and says so in the reason of each truncated item."""

    def __init__(
        self,
        max_event_bytes: int,
        clock_us: Callable[[], int],
        large: LargeEventLimiter = UNLIMITED_LARGE_EVENT_LIMITER,
    ) -> None:
        # The maximum size of an item that is stored whole. A valid event that is refused because of a pin or a time
        # bound must fit in, and its JSON may be longer than `max_event_bytes`.
        self._max_untruncated_length = 2 * max_event_bytes
        self._clock_us = clock_us
        self._large_event_limiter = large
        self._remaining_daily_bytes = float(_MAX_QUARANTINED_BYTES_PER_DAY)
        self._daily_bytes_refilled_at_us = clock_us()

    def truncate_if_needed(self, item: RefusedItem) -> RefusedItem:
        stored_length = len(item.text) if len(item.text) <= self._max_untruncated_length else _LARGE_ITEM_EXCERPT_BYTES
        if stored_length > self._refill_daily_bytes() or not self._large_event_limiter.try_charge_text(
            QUARANTINE_STREAM.name, None, stored_length
        ):
            stored_length = min(stored_length, _OVER_BUDGET_EXCERPT_BYTES)
        self._remaining_daily_bytes -= stored_length
        if stored_length == len(item.text):
            return item
        reason = f"{item.reason} Only its first {stored_length // 1024} KiB are stored, and it cannot be replayed."
        return msgspec.structs.replace(item, text=item.text[:stored_length], reason=reason, is_truncated=True)

    def _refill_daily_bytes(self) -> float:
        now_us = self._clock_us()
        grown = max(0, now_us - self._daily_bytes_refilled_at_us) * _MAX_QUARANTINED_BYTES_PER_DAY / _DAY_US
        self._remaining_daily_bytes, self._daily_bytes_refilled_at_us = (
            min(_MAX_QUARANTINED_BYTES_PER_DAY, self._remaining_daily_bytes + grown),
            now_us,
        )
        return self._remaining_daily_bytes


def make_quarantine_batch(
    stream: str, form: str, items: Sequence[RefusedItem], project: str | None, received_us: int
) -> ReceivedEventBatch:
    events = [
        Event(
            id=str(uuid4()),
            timestamp_us=received_us,
            event_message=f"{stream}: {item.reason}",
            project=project,
            metadata=_encode(
                {
                    "stream": stream,
                    "form": "events" if item.is_reencoded_event else form,
                    "reason": item.reason,
                    "index": item.index,
                    "text": item.text,
                    "is_cut": item.is_truncated,
                    "is_transformed": item.is_reencoded_event,
                }
            ).decode(),
        )
        for item in items
    ]
    return ReceivedEventBatch(QUARANTINE_STREAM.name, events, received_us, QUARANTINE_SHAPE)


def make_replay_marker_batch(item_id: str, stream: str, project: str | None, replayed_us: int) -> ReceivedEventBatch:
    """Return a batch with an event that marks an item as replayed. The item itself stays in the quarantine stream."""
    mark = Event(
        id=f"{item_id}:replayed",
        timestamp_us=replayed_us,
        event_message=f"{stream}: replayed",
        project=project,
        metadata=_encode({"stream": stream, "replays": item_id}).decode(),
    )
    return ReceivedEventBatch(QUARANTINE_STREAM.name, [mark], replayed_us, QUARANTINE_SHAPE)


class QuarantinedItem(msgspec.Struct, frozen=True):
    """A quarantined item. `text` is the whole item, in the format that `body_format` names.

    If `is_transformed` is true, the transforms of the stream were applied before the item was quarantined, and a replay
    does not apply them again.
    """

    id: str
    received_us: int
    stream: str
    body_format: BodyFormat
    text: str
    project: str | None = None
    is_transformed: bool = False


def decode_quarantined_item(item: QuarantinedItem) -> ParsedBody:
    """Decode the item again. An event without an id gets the item's id, so that a second replay is a duplicate."""
    parsed = read_body(item.body_format, _make_body(item))
    for posted in parsed.events:
        if posted.id in {None, ""}:
            posted.id = item.id
    return parsed


# Forms whose items are not JSON, with their content types.
_MEDIA_TYPES_BY_TEXT_FORMAT = {BodyFormat.SYSLOG: "application/syslog", BodyFormat.JOURNALD: JOURNAL_MEDIA}


def _make_body(item: QuarantinedItem) -> Body:
    """Return a body that contains the item.

    A JSON item is put in an array, so that it is not read as a batch or as lines.
    """
    if item.body_format in _MEDIA_TYPES_BY_TEXT_FORMAT:
        return Body(item.text.encode(), _MEDIA_TYPES_BY_TEXT_FORMAT[item.body_format])
    return Body(f"[{item.text}]".encode(), "application/json")
