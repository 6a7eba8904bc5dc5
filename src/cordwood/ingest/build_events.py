"""Build the events to store from posted or exported events.

A posted event without an id gets a new one, and a posted event without a valid time gets the time of receipt.
Timestamps of posted events in any common format are parsed to microseconds since 1970 UTC. Exported events are stored
again without changes.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Annotated
from uuid import uuid4

import msgspec
from msgspec import Meta

from cordwood.errors import BadBody, Forbidden
from cordwood.ingest.event_validator import ForeignProject, with_pinned_project
from cordwood.ingest.items import too_many_items_fault
from cordwood.ingest.parsed_body import MAX_BODY_ITEMS, ParsedBody, PostedEvent
from cordwood.model.event import Event
from cordwood.model.json_checks import describe_json_error
from cordwood.model.timestamps import EPOCH, parse_iso_time

_MICROSECOND = timedelta(microseconds=1)

# The first and the last microsecond of the years 1 to 9999 in UTC. A time with a zone offset may lie outside of these
# years once it is converted to UTC. It is refused, because it could not be formatted.
MIN_TIMESTAMP_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
MAX_TIMESTAMP_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

# The unit of a number is inferred from its size. Numbers below the first limit are seconds (until the year 5138), those
# below the second milliseconds, those below the third microseconds, and larger ones nanoseconds.
_SECONDS_TIMESTAMP_LIMIT = 10**11
_MILLISECONDS_TIMESTAMP_LIMIT = 10**14
_MICROSECONDS_TIMESTAMP_LIMIT = 10**17
_NANOSECONDS_TIMESTAMP_LIMIT = 2**63

_NUMBER_PATTERN = re.compile(r"[+-]?\d+(\.\d+)?")


def parse_timestamp_us(value: str | float | None) -> int | None:
    if isinstance(value, str):
        return _timestamp_from_text(value)
    if isinstance(value, float):
        return _timestamp_from_float(value)
    return None if value is None else _timestamp_from_integer(value)


def _timestamp_from_integer(value: int) -> int | None:
    if value <= 0 or value >= _NANOSECONDS_TIMESTAMP_LIMIT:
        return None
    if value < _SECONDS_TIMESTAMP_LIMIT:
        return value * 1_000_000
    if value < _MILLISECONDS_TIMESTAMP_LIMIT:
        return value * 1000
    return value if value < _MICROSECONDS_TIMESTAMP_LIMIT else value // 1000


def _timestamp_from_float(value: float) -> int | None:
    if not isfinite(value) or value <= 0:
        return None
    if value < _SECONDS_TIMESTAMP_LIMIT:
        return round(value * 1e6)
    return round(value * 1000) if value < _MILLISECONDS_TIMESTAMP_LIMIT else _timestamp_from_integer(int(value))


def _timestamp_from_text(text: str) -> int | None:
    try:
        return _to_microseconds(parse_iso_time(text))
    except ValueError:
        return _timestamp_from_unusual_text(text.strip())


def _timestamp_from_unusual_text(text: str) -> int | None:
    if _NUMBER_PATTERN.fullmatch(text):
        return _timestamp_from_float(float(text)) if "." in text else _timestamp_from_integer(int(text[:21]))
    for attempt in (_parse_lenient_iso, _parse_rfc_2822, _parse_access_log_time):
        try:
            return _to_microseconds(attempt(text))
        except (ValueError, OverflowError, IndexError, TypeError):
            continue
    return None


def _to_microseconds(moment: datetime) -> int:
    """Return a time in microseconds since 1970. A time without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = (moment - EPOCH) // _MICROSECOND
    if not MIN_TIMESTAMP_US <= found <= MAX_TIMESTAMP_US:
        raise ValueError
    return found


# White space is tried only at its first character, so that it is read once.
_ZONE_WORD_PATTERN = re.compile(r"(?<!\s)\s*+(UTC|GMT|Z)$", re.IGNORECASE)
_SPACE_BEFORE_OFFSET_PATTERN = re.compile(r"(?<!\s)\s++([+-]\d\d:?\d\d)$")
_LEAP_SECOND_PATTERN = re.compile(r"(:\d\d):60(\.\d+)?")


def _parse_lenient_iso(text: str) -> datetime:
    """Parse unusual ISO 8601: with lower-case letters, a zone name, a space before the offset, or a leap second."""
    loose = _ZONE_WORD_PATTERN.sub("+00:00", text.upper().replace(",", "."))
    loose = _SPACE_BEFORE_OFFSET_PATTERN.sub(r"\1", loose)
    return parse_iso_time(_LEAP_SECOND_PATTERN.sub(r"\1:59.999999", loose))


def _parse_rfc_2822(text: str) -> datetime:
    return parsedate_to_datetime(text)


def _parse_access_log_time(text: str) -> datetime:
    return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")


# A text of metadata is compared with the empty text and with `null` only if it is shorter than this. The comparison is
# a look-up in a set, which would hash all of a long text.
_MAX_NULL_TEXT_LENGTH = 5

_encode = msgspec.json.Encoder().encode


def build_events(parsed: ParsedBody, received_us: int) -> list[Event]:
    """Convert the posted events of a body to events, in order.

    An event without a valid time gets the time of receipt.
    """
    extras = parsed.extras_by_event_number
    return [_convert_posted_event(posted, extras.get(place), received_us) for place, posted in enumerate(parsed.events)]


def _convert_posted_event(posted: PostedEvent, extras: Mapping[str, msgspec.Raw] | None, received_us: int) -> Event:
    timestamp = parse_timestamp_us(posted.timestamp)
    message = posted.event_message
    if posted.message is not None and posted.message != message:
        message, extras = _merge_messages(posted.message, message, extras)
    return Event(
        str(posted.id) if posted.id not in {None, ""} else str(uuid4()),
        received_us if timestamp is None else timestamp,
        message,
        posted.project,
        _text_or_none(posted.metadata),
        _encode(extras).decode() if extras else None,
        timestamp is None,
    )


def _merge_messages(
    message: str, event_message: str | None, extras: Mapping[str, msgspec.Raw] | None
) -> tuple[str, Mapping[str, msgspec.Raw] | None]:
    """Return the message and the extra fields of an event that has `message` and perhaps `event_message` too.

    If both are given, `event_message` is the message, and `message` becomes an extra field.
    """
    if event_message is None:
        return message, extras
    return event_message, {**(extras or {}), "message": msgspec.Raw(_encode(message))}


def _text_or_none(raw: msgspec.Raw) -> str | None:
    text = str(raw, "utf-8")
    return None if len(text) < _MAX_NULL_TEXT_LENGTH and text in {"", "null"} else text


_TimestampMicroseconds = Annotated[int, Meta(ge=MIN_TIMESTAMP_US, le=MAX_TIMESTAMP_US)]


class ExportedEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One line of an export: an event with its time of receipt (`ingested_at`).

    Times are in microseconds since 1970 UTC; `metadata` and `extras` are JSON text.
    """

    id: str
    timestamp: _TimestampMicroseconds
    ingested_at: _TimestampMicroseconds
    event_message: str | None = None
    project: str | None = None
    metadata: str | None = None
    extras: str | None = None
    timestamp_inferred: bool = False


_decode_exported_event_lines = msgspec.json.Decoder(ExportedEvent).decode_lines


def read_exported_events(
    body: bytes, pinned_project: str | None, project_at: Sequence[str] = (), limit: int = MAX_BODY_ITEMS
) -> list[Event]:
    """Decode exported events; raise BadBody for an invalid line.

    Unlike posted events, exported events get no derived fields, and time bounds do not apply to them. One invalid line
    refuses the whole body; no line is quarantined.
    """
    if body.count(b"\n") > limit:
        raise too_many_items_fault(limit)
    try:
        lines = _decode_exported_event_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadBody(
            f"The body cannot be read: {describe_json_error(problem, body)}.",
            hint="The body must be an export as `cordwood import` sends it, one event on each line.",
        ) from problem
    events = [_convert_exported_event(line) for line in lines]
    return events if pinned_project is None else _require_project(events, pinned_project, project_at)


def _require_project(events: list[Event], project: str, project_at: Sequence[str]) -> list[Event]:
    """Return the events; raise Forbidden unless all of them belong to the project to which the key is pinned."""
    try:
        held = [with_pinned_project(event, project_at, project) for event in events] if project_at else events
    except ForeignProject:
        held = []
    except RecursionError as problem:
        raise BadBody("An event is nested too deeply to check its project.") from problem
    if len(held) < len(events) or any(event.project != project for event in held):
        raise Forbidden(f"This key is pinned to project {project!r}, and some events belong to another.")
    return held


def _convert_exported_event(line: ExportedEvent) -> Event:
    return Event(
        line.id,
        line.timestamp,
        line.event_message,
        line.project,
        line.metadata,
        line.extras,
        line.timestamp_inferred,
        received_us=line.ingested_at,
    )
