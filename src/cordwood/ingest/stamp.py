"""Build events from posted ones: an id and a time for each, one message, and the other top-level keys.

Timestamps in any common form are parsed to microseconds since 1970 UTC.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import isfinite
from uuid import uuid4

import msgspec

from cordwood.ingest.parsed_body import ParsedBody, PostedEvent
from cordwood.model.event import Event
from cordwood.model.timestamps import EPOCH

_MICROSECOND = timedelta(microseconds=1)

# The years 1 to 9999. With its time zone, a time may lie beyond them, where it could not be formatted.
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

# The magnitude of a number determines its unit: seconds until the year 5138, then milli-, micro- and nanoseconds.
_SECONDS_LIMIT = 10**11
_MILLISECONDS_LIMIT = 10**14
_MICROSECONDS_LIMIT = 10**17
_NANOSECONDS_LIMIT = 2**63

_NUMBER = re.compile(r"\d+(\.\d+)?")


def read_timestamp(value: str | float | None) -> int | None:
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, float):
        return _from_float(value)
    return None if value is None else _from_integer(value)


def _from_integer(value: int) -> int | None:
    if value <= 0 or value >= _NANOSECONDS_LIMIT:
        return None
    if value < _SECONDS_LIMIT:
        return value * 1_000_000
    if value < _MILLISECONDS_LIMIT:
        return value * 1000
    return value if value < _MICROSECONDS_LIMIT else value // 1000


def _from_float(value: float) -> int | None:
    if not isfinite(value) or value <= 0:
        return None
    if value < _SECONDS_LIMIT:
        return round(value * 1e6)
    return round(value * 1000) if value < _MILLISECONDS_LIMIT else _from_integer(int(value))


def _from_text(text: str) -> int | None:
    try:
        return _microseconds(datetime.fromisoformat(text))
    except ValueError:
        return _time_from_unusual_text(text.strip())


def _time_from_unusual_text(text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return _from_float(float(text)) if "." in text else _from_integer(int(text[:21]))
    for attempt in (_iso_leniently, _rfc_2822, _web_server):
        try:
            return _microseconds(attempt(text))
        except (ValueError, OverflowError, IndexError, TypeError):
            continue
    return None


def _microseconds(moment: datetime) -> int:
    """Return the microseconds of a time; a time without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = (moment - EPOCH) // _MICROSECOND
    if not _FIRST_US <= found <= _LAST_US:
        raise ValueError
    return found


_ZONE_WORD = re.compile(r"\s*(UTC|GMT|Z)$", re.IGNORECASE)
_LEAP_SECOND = re.compile(r"(:\d\d):60(\.\d+)?")


def _iso_leniently(text: str) -> datetime:
    """Parse ISO 8601 with lower-case letters, a zone name, a space before the offset, or a leap second."""
    loose = _ZONE_WORD.sub("+00:00", text.upper().replace(",", "."))
    loose = re.sub(r"\s+([+-]\d\d:?\d\d)$", r"\1", loose)
    return datetime.fromisoformat(_LEAP_SECOND.sub(r"\1:59.999999", loose))


def _rfc_2822(text: str) -> datetime:
    return parsedate_to_datetime(text)


def _web_server(text: str) -> datetime:
    return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")


# Only a text this short can be null. Looking up a long text would take time for its hash.
_MAX_NULL_LENGTH = 5

_encode = msgspec.json.Encoder().encode


def with_timestamps(parsed: ParsedBody, received_us: int) -> list[Event]:
    """Return the events in order. An event without a valid time gets the time of receipt."""
    extras = parsed.extras
    return [_event(posted, extras.get(place), received_us) for place, posted in enumerate(parsed.events)]


def _event(posted: PostedEvent, extras: Mapping[str, msgspec.Raw] | None, received_us: int) -> Event:
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
    """Use `message` as the message of the event; if `event_message` differs, keep `message` as a field."""
    if event_message is None:
        return message, extras
    return event_message, {**(extras or {}), "message": msgspec.Raw(_encode(message))}


def _text(raw: msgspec.Raw) -> str | None:
    text = str(raw, "utf-8")
    return None if len(text) < _MAX_NULL_LENGTH and text in {"", "null"} else text
