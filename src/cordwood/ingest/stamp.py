"""Build events from posted ones: an id and a time for each, one message, and the other top-level keys."""

from collections.abc import Mapping
from uuid import uuid4

import msgspec

from cordwood.ingest.posted import Posted, Reading
from cordwood.ingest.timestamps import read_timestamp
from cordwood.model.event import Event

# Only a text this short can be null; hashing a long text for the lookup would cost time.
_LONGER_THAN_NULL = 5

_encode = msgspec.json.Encoder().encode


def stamped(reading: Reading, received_us: int) -> list[Event]:
    """Return the events in order. One without a readable time gets the time of receipt."""
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
    """Use `message` as the event's message; beside a different `event_message`, keep it as a field."""
    if event_message is None:
        return message, extras
    return event_message, {**(extras or {}), "message": msgspec.Raw(_encode(message))}


def _text(raw: msgspec.Raw) -> str | None:
    text = str(raw, "utf-8")
    return None if len(text) < _LONGER_THAN_NULL and text in {"", "null"} else text
