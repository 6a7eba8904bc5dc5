"""Translation of LQL's times to bounds on a timestamp."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.lql.query import Moment, Operator, Period, Relative, Shorthand, Time, Unit
from cordwood.sql.query_templates import all_of, fill, literal

SECONDS: Final = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.HOUR: 3600,
    Unit.DAY: 86_400,
    Unit.WEEK: 7 * 86_400,
    Unit.MONTH: 30 * 86_400,
    Unit.YEAR: 365 * 86_400,
}
# Times further back would precede the calendar, so the window has no start.
_FARTHEST_SECONDS: Final = 1500 * 365 * 86_400
_CLOCK_UNITS: Final = frozenset({Unit.SECOND, Unit.MINUTE, Unit.HOUR})
_TRUNCATIONS: Final = {Unit.WEEK: "ISOWEEK"}


class Bound(msgspec.Struct, frozen=True):
    """An end of a window, inclusive or not; `moment` is its time if that does not depend on the current time."""

    time: exp.Expr
    is_within: bool
    moment: datetime | None = None


class Window(msgspec.Struct, frozen=True):
    """A window of time; `seconds` is its approximate length, if that does not depend on the current time."""

    low: Bound | None
    high: Bound | None
    seconds: float | None = None


def window(asked: Time, zone: str) -> Window:
    if isinstance(asked.when, Shorthand):
        return _relative(asked.when, zone, asked.at)
    return _absolute(asked.operator, asked.when, asked.at)


def condition(column: exp.Expr, within: Window, at: int) -> exp.Expr:
    """Return the condition that the timestamp is in the window."""
    low, high = within.low, within.high
    if low and high and low.is_within and high.is_within:
        if low.time == high.time:
            return fill("@column = @time", at, column=column, time=low.time)
        return fill("@column BETWEEN @low AND @high", at, column=column, low=low.time, high=high.time)
    ends = [*_end_condition(column, low, ">", at), *_end_condition(column, high, "<", at)]
    return all_of(ends) if ends else fill("@column IS NOT NULL", at, column=column)


def _end_condition(column: exp.Expr, end: Bound | None, side: str, at: int) -> list[exp.Expr]:
    if end is None:
        return []
    comparison = f"{side}=" if end.is_within else side
    return [fill(f"@column {comparison} @time", at, column=column, time=end.time)]


def truncation(unit: Unit) -> str:
    """Return BigQuery's date part for truncation to the unit; LQL's weeks begin on Monday."""
    return _TRUNCATIONS.get(unit, unit.upper())


def _absolute(operator: Operator, period: Period, at: int) -> Window:
    low = _fixed(period.low.time, at, is_within=True)
    end = _end(period.high, at)
    match operator:
        case Operator.GREATER:
            return Window(msgspec.structs.replace(end, is_within=not end.is_within), None)
        case Operator.GREATER_OR_EQUAL:
            return Window(low, None)
        case Operator.LESS:
            return Window(None, msgspec.structs.replace(low, is_within=False))
        case Operator.LESS_OR_EQUAL:
            return Window(None, end)
        case _:
            return Window(low, end, (period.high.time - period.low.time).total_seconds())


def _end(moment: Moment, at: int) -> Bound:
    """Return a moment's end: the start of the next day, hour or minute; for an instant the instant itself.

    For the calendar's last day it is the latest time.
    """
    if moment.unit is None:
        return _fixed(moment.time, at, is_within=True)
    length = timedelta(seconds=SECONDS[moment.unit])
    if moment.time > datetime.max.replace(tzinfo=UTC) - length:
        return _fixed(datetime.max.replace(tzinfo=UTC), at, is_within=True)
    return _fixed(moment.time + length, at, is_within=False)


def _fixed(time: datetime, at: int, *, is_within: bool) -> Bound:
    return Bound(fill("CAST(@text AS TIMESTAMP)", at, text=literal(time.isoformat(" "), at)), is_within, time)


def _relative(asked: Shorthand, zone: str, at: int) -> Window:
    now = Bound(fill("CURRENT_TIMESTAMP()", at), is_within=True)
    match asked.kind:
        case Relative.NOW:
            low = fill("TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), SECOND)", at)
            return Window(_from(low), _before(fill("TIMESTAMP_ADD(@low, INTERVAL 1 SECOND)", at, low=low)), 1)
        case Relative.TODAY:
            return Window(_from(_day(0, zone, at)), _before(_day(1, zone, at)), SECONDS[Unit.DAY])
        case Relative.YESTERDAY:
            return Window(_from(_day(-1, zone, at)), _before(_day(0, zone, at)), SECONDS[Unit.DAY])
        case Relative.THIS:
            return Window(_from(_truncated(asked.unit, zone, at)), now, SECONDS[asked.unit])
        case Relative.AGO:
            return _ago(asked, at)
        case Relative.CLOCK:
            low = _minute(asked.count, zone, at)
            return Window(_from(low), _before(fill("TIMESTAMP_ADD(@low, INTERVAL 1 MINUTE)", at, low=low)), 60)
        case Relative.LAST:
            seconds = (asked.count + 1) * SECONDS[asked.unit]
            began = _from(_back(asked, zone, at)) if seconds < _FARTHEST_SECONDS else None
            return Window(began, now, seconds)


def _ago(asked: Shorthand, at: int) -> Window:
    """Return the window from so many units to so many seconds before now."""
    seconds = asked.count * SECONDS[asked.unit]
    low = fill(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {seconds} SECOND)", at)
    end = f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {asked.until} SECOND)" if asked.until else "CURRENT_TIMESTAMP()"
    high = Bound(fill(end, at), is_within=True)
    return Window(_from(low) if seconds < _FARTHEST_SECONDS else None, high, seconds - asked.until)


def _minute(minute: int, zone: str, at: int) -> exp.Expr:
    """Return the time of a minute of today."""
    return _utc(fill(f"DATETIME_ADD(@today, INTERVAL {minute} MINUTE)", at, today=_today(zone, at)), zone, at)


def _from(time: exp.Expr) -> Bound:
    return Bound(time, is_within=True)


def _before(time: exp.Expr) -> Bound:
    return Bound(time, is_within=False)


def _back(asked: Shorthand, zone: str, at: int) -> exp.Expr:
    """Return the time so many units ago; for days and longer units, the start of that day."""
    unit, count = asked.unit.upper(), asked.count
    if asked.unit in _CLOCK_UNITS:
        return fill(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {count} {unit})", at)
    today = _today(zone, at)
    return _utc(fill(f"DATETIME_SUB(@today, INTERVAL {count} {unit})", at, today=today), zone, at)


def _truncated(unit: Unit, zone: str, at: int) -> exp.Expr:
    if zone == "UTC" or unit in {Unit.SECOND, Unit.MINUTE}:
        return fill(f"TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), {truncation(unit)})", at)
    local = fill("CURRENT_DATETIME(@zone)", at, zone=zone)
    return _utc(fill(f"DATETIME_TRUNC(@local, {truncation(unit)})", at, local=local), zone, at)


def _day(offset: int, zone: str, at: int) -> exp.Expr:
    """Return the start of a day relative to today, by calendar: a zone's days may have 23 or 25 hours."""
    today = _today(zone, at)
    if offset:
        function = "DATETIME_ADD" if offset > 0 else "DATETIME_SUB"
        today = fill(f"{function}(@today, INTERVAL {abs(offset)} DAY)", at, today=today)
    return _utc(today, zone, at)


def _today(zone: str, at: int) -> exp.Expr:
    if zone == "UTC":
        return fill("DATETIME_TRUNC(CURRENT_DATETIME(), DAY)", at)
    return fill("DATETIME_TRUNC(CURRENT_DATETIME(@zone), DAY)", at, zone=zone)


def _utc(local: exp.Expr, zone: str, at: int) -> exp.Expr:
    if zone == "UTC":
        return fill("TIMESTAMP(@local)", at, local=local)
    return fill("TIMESTAMP(@local, @zone)", at, local=local, zone=zone)
