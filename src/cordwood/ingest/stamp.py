"""Makes what was posted into events: an id and a time for each, one message, other top-level keys kept."""

from collections.abc import Mapping
from uuid import uuid4

import msgspec

from cordwood.ingest.posted import Posted, Reading
from cordwood.ingest.timestamps import read_timestamp
from cordwood.model.event import Event

# A long text is not looked up: that would cost a step for each of its letters.
_LONGER_THAN_NULL = 5

_encode = msgspec.json.Encoder().encode


def stamped(reading: Reading, received_us: int) -> list[Event]:
    """The reading's events in their order; one without a readable time has the time of its receipt."""
    extras = reading.extras
    return [_event(posted, extras.get(place), received_us) for place, posted in enumerate(reading.events)]


def _event(posted: Posted, extras: Mapping[str, msgspec.Raw] | None, received_us: int) -> Event:
    timestamp = read_timestamp(posted.timestamp)
    message = posted.event_message
    if posted.message is not None and posted.message != message:
        message, extras = _one_message(posted.message, message, extras)
    return Event(
        str(posted.id) if posted.id not in {None, ""} else str(uuid4()),
        received_us if timestamp is None else timestamp,
        message,
        posted.project,
        _text(posted.metadata),
        _encode(extras).decode() if extras else None,
        timestamp is None,
    )


def _one_message(
    message: str, event_message: str | None, extras: Mapping[str, msgspec.Raw] | None
) -> tuple[str, Mapping[str, msgspec.Raw] | None]:
    """A message alone is the event's message; beside another one it stays a field of its own."""
    if event_message is None:
        return message, extras
    return event_message, {**(extras or {}), "message": msgspec.Raw(_encode(message))}


def _text(raw: msgspec.Raw) -> str | None:
    text = str(raw, "utf-8")
    return None if len(text) < _LONGER_THAN_NULL and text in {"", "null"} else text
