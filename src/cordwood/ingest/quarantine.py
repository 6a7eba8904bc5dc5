"""The quarantine stream: items that could not be stored, each with its reason, for inspection and replay."""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID, uuid4

import msgspec

from cordwood.ingest.formats import Form, read_body
from cordwood.ingest.formats.journald import MEDIA as JOURNAL_MEDIA
from cordwood.ingest.large_events import UNBOUNDED, LargeEvents
from cordwood.ingest.parsed_body import Body, ParsedBody, RefusedItem
from cordwood.model.event import Batch, Event
from cordwood.model.shape import Kinds, ValueKind
from cordwood.model.stream import Stream

_DAY_US = 86_400 * 10**6

QUARANTINE = Stream(
    name="_quarantine",
    id=UUID("f3b0a1de-5a3c-5b0e-9d0c-6f4f0d5a7c11"),
    retention_seconds=7 * 86_400,
    max_events=100_000,
)

# How much is stored of an item that is too large to store whole, and of any item once the daily budget, or that of
# large events, is used up.
_BEGINNING = 256 * 1024
_LEAST = 4 * 1024
_ROOM_A_DAY = 2**30

_KINDS: Mapping[str, ValueKind] = {
    "stream": ValueKind.TEXT,
    "form": ValueKind.TEXT,
    "reason": ValueKind.TEXT,
    "text": ValueKind.TEXT,
    "index": ValueKind.NUMBER,
    "is_cut": ValueKind.BOOL,
    "is_transformed": ValueKind.BOOL,
    "replays": ValueKind.TEXT,
}
LEARNT: Kinds = {("metadata",): frozenset({ValueKind.OBJECT})} | {
    ("metadata", name): frozenset({kind}) for name, kind in _KINDS.items()
}

_encode = msgspec.json.Encoder().encode


class ItemTruncator:
    """Truncates quarantined items where they could fill the disk, and says so in the reason."""

    def __init__(self, max_event_bytes: int, clock_us: Callable[[], int], large: LargeEvents = UNBOUNDED) -> None:
        # A valid event that a pin or time bound refuses is stored whole; its JSON form is longer than the event.
        self._most_whole = 2 * max_event_bytes
        self._clock_us = clock_us
        self._large = large
        self._room = float(_ROOM_A_DAY)
        self._counted_us = clock_us()

    def fitted(self, item: RefusedItem) -> RefusedItem:
        kept = len(item.text) if len(item.text) <= self._most_whole else _BEGINNING
        if kept > self._room_left() or not self._large.takes_text(QUARANTINE.name, None, kept):
            kept = min(kept, _LEAST)
        self._room -= kept
        if kept == len(item.text):
            return item
        reason = f"{item.reason} Only its first {kept // 1024} KiB are stored, and it cannot be replayed."
        return msgspec.structs.replace(item, text=item.text[:kept], reason=reason, is_cut=True)

    def _room_left(self) -> float:
        now_us = self._clock_us()
        grown = max(0, now_us - self._counted_us) * _ROOM_A_DAY / _DAY_US
        self._room, self._counted_us = min(_ROOM_A_DAY, self._room + grown), now_us
        return self._room


def quarantined(stream: str, form: str, items: Sequence[RefusedItem], project: str | None, received_us: int) -> Batch:
    events = [
        Event(
            id=str(uuid4()),
            timestamp_us=received_us,
            event_message=f"{stream}: {item.reason}",
            project=project,
            metadata=_encode(
                {
                    "stream": stream,
                    "form": "events" if item.is_event else form,
                    "reason": item.reason,
                    "index": item.index,
                    "text": item.text,
                    "is_cut": item.is_cut,
                    "is_transformed": item.is_event,
                }
            ).decode(),
        )
        for item in items
    ]
    return Batch(QUARANTINE.name, events, received_us, LEARNT)


def replay_mark(item_id: str, stream: str, project: str | None, replayed_us: int) -> Batch:
    """Return the event that marks an item as replayed. The item itself stays in the stream."""
    mark = Event(
        id=f"{item_id}:replayed",
        timestamp_us=replayed_us,
        event_message=f"{stream}: replayed",
        project=project,
        metadata=_encode({"stream": stream, "replays": item_id}).decode(),
    )
    return Batch(QUARANTINE.name, [mark], replayed_us, LEARNT)


class QuarantinedItem(msgspec.Struct, frozen=True):
    """A quarantined item; `text` is the whole item in the format of its route.

    If `is_transformed` is true, the stream's transforms were applied before it was quarantined.
    """

    id: str
    received_us: int
    stream: str
    form: Form
    text: str
    project: str | None = None
    is_transformed: bool = False


def decode_again(item: QuarantinedItem) -> ParsedBody:
    """Decode the item. An event without an id gets the item's id, so that a second replay is a duplicate."""
    parsed = read_body(item.form, _body(item))
    for posted in parsed.events:
        if posted.id in {None, ""}:
            posted.id = item.id
    return parsed


# Forms whose items are not JSON, with their content type.
_AS_SENT = {Form.SYSLOG: "application/syslog", Form.JOURNALD: JOURNAL_MEDIA}


def _body(item: QuarantinedItem) -> Body:
    """Return the item as the only element of an array, so that its content is not taken for a batch or lines."""
    if item.form in _AS_SENT:
        return Body(item.text.encode(), _AS_SENT[item.form])
    return Body(f"[{item.text}]".encode(), "application/json")
