"""Literals of times and of time zones.

Times are checked against BigQuery's canonical form, and spelled in the form that every engine reads. Zones with a
constant offset from UTC need no time zone database.
"""

import re
from datetime import date, datetime, timedelta
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.constants import CONSTANT, constant_text
from cordwood.sql.datatypes import inherit, kind_of

_DAY: Final = r"(\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)-(0?[1-9]|1[0-2])-(0?[1-9]|[12]\d|3[01])"
_CLOCK: Final = r"([01]?\d|2[0-3]):[0-5]?\d:([0-5]?\d|60)(\.\d{0,9})?"
_OFFSET: Final = r"[Zz]|[+-](0?\d|1[0-4])(:[0-5]?\d)?"

# A DATE may be followed by the rest of a TIMESTAMP, which is ignored.
_WITH_ZONE: Final = rf"{_DAY}([ Tt]{_CLOCK}({_OFFSET}| [A-Za-z][A-Za-z0-9_/+-]*)?)?"

# Used in the engines' regular expressions, whose syntax is RE2's. The number of days of a month is left to the engines.
CANONICAL: Final = {
    Kind.TIMESTAMP: _WITH_ZONE,
    Kind.DATETIME: rf"{_DAY}([ Tt]{_CLOCK})?",
    Kind.DATE: _WITH_ZONE,
    Kind.TIME: _CLOCK,
}

_MAX_SHOWN: Final = 40
_TIME_LITERAL: Final = re.compile(
    rf"(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)(?:(?P<between>[ Tt])(?P<clock>{_CLOCK}))?(?P<zone>{_OFFSET}| \D.*)?",
    re.ASCII,
)
_SHORT_OFFSET: Final = re.compile(r"([+-])(\d)(?!\d)")


def engine_text(text: str, kind: Kind) -> str | None:
    """Return the text in the form that every engine reads; None if it is not a valid time of this type."""
    if kind is Kind.TIME:
        return text if re.fullmatch(_CLOCK, text, re.ASCII) else None
    match = _TIME_LITERAL.fullmatch(text)
    if match is None or not _is_valid_date(match) or (kind is Kind.DATETIME and match["zone"]):
        return None
    return text[: match.end("day")] + _clock(match) + _zone(match)


def _clock(match: re.Match[str]) -> str:
    if match["clock"]:
        return f"{match['between'].upper()}{match['clock']}"
    return " 00:00:00" if match["zone"] else ""


def _zone(match: re.Match[str]) -> str:
    zone = match["zone"] or ""
    return zone if zone.startswith(" ") else _SHORT_OFFSET.sub(r"\g<1>0\2", zone.upper())


def _is_valid_date(match: re.Match[str]) -> bool:
    try:
        return len(match["year"]) == 4 and bool(date(*(int(match[part]) for part in ("year", "month", "day"))))
    except ValueError:
        return False


def needs_check(value: exp.Expr, kind: Kind) -> bool:
    """Return whether the text has to be validated at run time: it varies by row, or is a constant that is invalid."""
    text = constant_text(value)
    return value.find(exp.Column) is not None if text is None else engine_text(text, kind) is None


def invalid_message(value: exp.Expr, kind: Kind) -> str:
    """Return the error message for an invalid time; it quotes a constant text, but not values of events."""
    text = constant_text(value)
    return f"Invalid {kind}" if text is None else f'Invalid {kind}: "{text[:_MAX_SHOWN]}"'


def engine_spelling(value: exp.Expr, kind: Kind) -> str | None:
    """Return the spelling of a constant text that the engine would not read as it is; None if it needs none."""
    text = constant_text(value)
    engine_form = engine_text(text, kind) if text is not None else None
    return engine_form if engine_form != text else None


_KINDS_WITH_SECONDS: Final = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_LEAP_SECOND: Final = re.compile(r"(?:(\d{4})-(\d{1,2})-(\d{1,2})([ Tt]))?(\d{1,2}):(\d{1,2}):60(?:\.\d*)?(?!\d)")


def without_leap_second(value: exp.Expr, to: Kind) -> exp.Expr:
    """Return the cast's operand; a constant time with second 60 is respelled as the next minute."""
    text = constant_text(value)
    if text is None or ":60" not in text or to not in _KINDS_WITH_SECONDS or kind_of(value) is not Kind.STRING:
        return value
    respelled = _LEAP_SECOND.sub(_next_minute, text, count=1)
    literal = inherit(exp.Literal.string(respelled), value)
    literal.meta[CONSTANT] = respelled
    return literal


def _next_minute(match: re.Match[str]) -> str:
    year, month, day, separator, hour, minute = match.groups()
    try:
        written_minute = datetime(int(year or 2000), int(month or 1), int(day or 1), int(hour), int(minute))  # noqa: DTZ001 - a wall clock
        next_minute = written_minute + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return match[0]
    clock = next_minute.strftime("%H:%M:%S")
    return f"{next_minute.year:04d}-{next_minute:%m-%d}{separator}{clock}" if year else clock


_ZONE_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC: Final = frozenset(("UTC", "Z", "ETC/UTC", "GMT", "+0", "+00", "+00:00", "-00:00"))


def is_utc(zone: exp.Expr | None) -> bool:
    """Return whether the zone is UTC, which is the default."""
    name = constant_text(zone)
    return zone is None or (name is not None and name.upper() in _UTC)


def offset_minutes(zone: exp.Expr | None) -> int | None:
    """Return the offset east of UTC; None for a named zone and for a zone that is not constant."""
    name = constant_text(zone)
    match = _ZONE_OFFSET.fullmatch(name) if name else None
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes


# The zones where half an hour, not a whole one, is repeated when clocks are set back.
_HALF_HOURS: Final = frozenset(("AUSTRALIA/LORD_HOWE", "AUSTRALIA/LHI"))


def repeated_minutes(zone: exp.Expr | None) -> int:
    """Return for how many minutes clocks in the zone repeat when they are set back."""
    return 30 if (constant_text(zone) or "").upper() in _HALF_HOURS else 60
