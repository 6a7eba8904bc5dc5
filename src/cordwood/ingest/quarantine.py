"""The stream of what could not be stored as it came: each item with its reason, to be looked at and replayed."""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

import msgspec

from cordwood.ingest.posted import SetAside
from cordwood.model.event import Batch, Event
from cordwood.model.shape import Kinds, ValueKind
from cordwood.model.stream import Stream

QUARANTINE = Stream(
    name="_quarantine",
    id=UUID("f3b0a1de-5a3c-5b0e-9d0c-6f4f0d5a7c11"),
    retention_seconds=7 * 86_400,
    max_events=100_000,
)

# Of a larger item only the beginning is kept, and it cannot be replayed.
MAX_TEXT = 256 * 1024

_KINDS: Mapping[str, ValueKind] = {
    "stream": ValueKind.TEXT,
    "form": ValueKind.TEXT,
    "reason": ValueKind.TEXT,
    "text": ValueKind.TEXT,
    "index": ValueKind.NUMBER,
    "is_cut": ValueKind.BOOL,
    "replays": ValueKind.TEXT,
}
LEARNT: Kinds = {("metadata",): frozenset({ValueKind.OBJECT})} | {
    ("metadata", name): frozenset({kind}) for name, kind in _KINDS.items()
}

_encode = msgspec.json.Encoder().encode


def quarantined(stream: str, form: str, items: Sequence[SetAside], project: str | None, received_us: int) -> Batch:
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
                    "text": item.text[:MAX_TEXT],
                    "is_cut": len(item.text) > MAX_TEXT,
                }
            ).decode(),
        )
        for item in items
    ]
    return Batch(QUARANTINE.name, events, received_us, LEARNT)


def replay_mark(item_id: str, stream: str, project: str | None, replayed_us: int) -> Batch:
    """Beside the item, which stays: that it was replayed, and when."""
    mark = Event(
        id=f"{item_id}:replayed",
        timestamp_us=replayed_us,
        event_message=f"{stream}: replayed",
        project=project,
        metadata=_encode({"stream": stream, "replays": item_id}).decode(),
    )
    return Batch(QUARANTINE.name, [mark], replayed_us, LEARNT)
