"""The parser of times after `t:`: days, times, Unix times, ranges, braces and shorthands."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from cordwood.lql.query import Moment, Period, Relative, Shorthand, Unit
from cordwood.model.timestamps import datetime_of

MakeFault = Callable[[str, str | None], Exception]

ISO_TIME: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[Tt ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,9}))?)?)?"
    r"\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)
_UNIX_TIME: Final = re.compile(r"\d{10}|\d{13}|\d{16}|\d{19}", re.ASCII)
_BRACED_RANGE: Final = re.compile(r"\{(\d+)\.\.(\d+)\}", re.ASCII)
_LAST_UNITS: Final = re.compile(r"last@(\d{0,6})([a-z]+)", re.ASCII)
_TIME_AGO: Final = re.compile(r"now-(\d{1,6})([a-z]+)\.\.now(?:-(\d{1,6})([a-z]+))?", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_SECONDS_TEXT: Final = {Unit.SECOND: 1, Unit.MINUTE: 60, Unit.HOUR: 3600, Unit.DAY: 86_400, Unit.WEEK: 7 * 86_400}
_THIS_UNIT: Final = re.compile(r"this@([a-z]+)", re.ASCII)

_UNIT_BY_NAME: Final = {
    spelling: unit
    for unit, spellings in {
        Unit.SECOND: "s sec secs second seconds",
        Unit.MINUTE: "m min mins minute minutes",
        Unit.HOUR: "h hr hrs hour hours",
        Unit.DAY: "d day days",
        Unit.WEEK: "w week weeks",
        Unit.MONTH: "mm month months",
        Unit.YEAR: "y year years",
    }.items()
    for spelling in spellings.split()
}
UNIT_HINT: Final = "Units are s, m, h, d, w, mm (months) and y, or their names."
_TIME_HINT: Final = (
    "Write a day, a time, a Unix time, a range A..B, or a shorthand such as today, last@5m, now-2h..now-1h or 14:05."
)


def read_unit(word: str) -> Unit | None:
    return _UNIT_BY_NAME.get(word)


def read_when(text: str, fault: MakeFault) -> Period | Shorthand:
    """Parse a period or a shorthand; raise the exception that `fault` returns for anything else."""
    shorthand = _read_shorthand(text, fault)
    if shorthand is not None:
        return shorthand
    low, high = _split_period(text)
    period = Period(_read_moment(low, fault), _read_moment(high, fault))
    if period.low.time > period.high.time:
        raise fault("The range runs backwards: its end is before its start.", f"Write {high}..{low}.")
    return period


def read_moment(text: str) -> Moment | None:
    """Parse a day, a time or a Unix time; return None for other texts and for days that do not exist."""
    if _UNIX_TIME.fullmatch(text):
        digits = text.ljust(16, "0") if len(text) < 16 else text[:16]
        return Moment(datetime_of(int(digits)), None)
    match = ISO_TIME.fullmatch(text)
    if match is None:
        return None
    try:
        return _iso_moment(match)
    except (ValueError, OverflowError):
        return None


def _iso_moment(match: re.Match[str]) -> Moment:
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    microsecond = int((fraction or "0").ljust(6, "0")[:6])
    clock = (int(hour or 0), int(minute or 0), int(second or 0), microsecond)
    time = datetime(int(year), int(month), int(day), *clock, tzinfo=_read_zone(zone))
    unit = Unit.DAY if hour is None else Unit.HOUR if minute is None else Unit.MINUTE if second is None else None
    return Moment(time.astimezone(UTC), unit)


# Another query language's spelling of a time relative to now.
_SINCE_TIME: Final = re.compile(r"-?(\d+(?:s|m|h|d|w))", re.IGNORECASE | re.ASCII)


def _read_zone(zone: str | None) -> timezone:
    if zone is None or zone in "Zz":
        return UTC
    sign = -1 if zone[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].lstrip(":") or 0)))


def _read_moment(text: str, fault: MakeFault) -> Moment:
    moment = read_moment(text)
    if moment is None:
        since = _SINCE_TIME.fullmatch(text)
        hint = f"Write t:last@{since[1].lower()} for the time until now." if since else _TIME_HINT
        raise fault(f"A time cannot be read here: {text[:60]}", hint)
    return moment


def _split_period(text: str) -> tuple[str, str]:
    """Return both ends of a period: one with all left numbers of its braces, one with all right numbers."""
    if _BRACED_RANGE.search(text):
        return _expand_braces(text, 1), _expand_braces(text, 2)
    low, dots, high = text.partition("..")
    return (low, high) if dots else (text, text)


def _expand_braces(text: str, side: int) -> str:
    return _BRACED_RANGE.sub(lambda brace: _brace_number(brace, side), text)


def _brace_number(brace: re.Match[str], side: int) -> str:
    return brace[side] if brace.string[: brace.start()].endswith(".") else brace[side].zfill(2)


def _read_shorthand(text: str, fault: MakeFault) -> Shorthand | None:
    if text in {Relative.NOW, Relative.TODAY, Relative.YESTERDAY}:
        return Shorthand(Relative(text))
    if this := _THIS_UNIT.fullmatch(text):
        return Shorthand(Relative.THIS, _read_unit_or_fail(this[1], fault))
    if last := _LAST_UNITS.fullmatch(text):
        return Shorthand(Relative.LAST, _read_unit_or_fail(last[2], fault), int(last[1] or 1))
    if ago := _TIME_AGO.fullmatch(text):
        return _read_ago(ago, fault)
    if clock := _TIME_OF_DAY.fullmatch(text):
        return Shorthand(Relative.CLOCK, Unit.MINUTE, int(clock[1]) * 60 + int(clock[2]))
    if text.startswith(("last@", "this@")):
        raise fault(f"A shorthand cannot be read here: {text[:60]}", "Write it as in last@5m or this@week.")
    return None


def _read_ago(match: re.Match[str], fault: MakeFault) -> Shorthand:
    unit, count = _read_unit_or_fail(match[2], fault), int(match[1])
    until = _read_unit_or_fail(match[4], fault) if match[4] else Unit.SECOND
    if unit not in _SECONDS_TEXT or until not in _SECONDS_TEXT:
        raise fault("Months and years are not of one length.", "Count in days: now-30d..now.")
    end_seconds = int(match[3] or 0) * _SECONDS_TEXT[until]
    if count * _SECONDS_TEXT[unit] < end_seconds:
        raise fault("The range runs backwards: its end is before its start.", "Write the earlier time first.")
    return Shorthand(Relative.AGO, unit, count, end_seconds)


def _read_unit_or_fail(word: str, fault: MakeFault) -> Unit:
    unit = read_unit(word)
    if unit is None:
        raise fault(f"There is no unit of time called {word[:40]}.", UNIT_HINT)
    return unit
