"""Translation of LQL's times to bounds on a timestamp."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.lql.query import Moment, Operator, Period, Relative, Shorthand, Time, Unit
from cordwood.sql.query_templates import all_of, fill, literal

SECONDS_PER_UNIT: Final = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.HOUR: 3600,
    Unit.DAY: 86_400,
    Unit.WEEK: 7 * 86_400,
    Unit.MONTH: 30 * 86_400,
    Unit.YEAR: 365 * 86_400,
}
# Times further back would precede the calendar, so the window has no start.
_MAX_SECONDS_BACK: Final = 1500 * 365 * 86_400
_CLOCK_UNITS: Final = frozenset({Unit.SECOND, Unit.MINUTE, Unit.HOUR})
_TRUNCATION_PARTS: Final = {Unit.WEEK: "ISOWEEK"}


class Bound(msgspec.Struct, frozen=True):
    """An end of a window, inclusive or not; `moment` is its time if that does not depend on the current time."""

    time: exp.Expr
    is_inclusive: bool
    moment: datetime | None = None


class Window(msgspec.Struct, frozen=True):
    """A window of time; `seconds` is its approximate length, if that does not depend on the current time."""

    low: Bound | None
    high: Bound | None
    seconds: float | None = None


def window_of(time: Time, zone: str) -> Window:
    if isinstance(time.when, Shorthand):
        return _relative_window(time.when, zone, time.offset)
    return _absolute_window(time.operator, time.when, time.offset)


def condition(column: exp.Expr, time_window: Window, offset: int) -> exp.Expr:
    """Return the condition that the timestamp is in the window."""
    low, high = time_window.low, time_window.high
    if low and high and low.is_inclusive and high.is_inclusive:
        if low.time == high.time:
            return fill("@column = @time", offset, column=column, time=low.time)
        return fill("@column BETWEEN @low AND @high", offset, column=column, low=low.time, high=high.time)
    bounds = [*_end_condition(column, low, ">", offset), *_end_condition(column, high, "<", offset)]
    return all_of(bounds) if bounds else fill("@column IS NOT NULL", offset, column=column)


def _end_condition(column: exp.Expr, end: Bound | None, side: str, offset: int) -> list[exp.Expr]:
    if end is None:
        return []
    comparison = f"{side}=" if end.is_inclusive else side
    return [fill(f"@column {comparison} @time", offset, column=column, time=end.time)]


def truncation_part(unit: Unit) -> str:
    """Return BigQuery's date part for truncation to the unit; LQL's weeks begin on Monday."""
    return _TRUNCATION_PARTS.get(unit, unit.upper())


def _absolute_window(operator: Operator, period: Period, offset: int) -> Window:
    low = _fixed_bound(period.low.time, offset, is_inclusive=True)
    end = _moment_end(period.high, offset)
    match operator:
        case Operator.GREATER:
            return Window(msgspec.structs.replace(end, is_inclusive=not end.is_inclusive), None)
        case Operator.GREATER_OR_EQUAL:
            return Window(low, None)
        case Operator.LESS:
            return Window(None, msgspec.structs.replace(low, is_inclusive=False))
        case Operator.LESS_OR_EQUAL:
            return Window(None, end)
        case _:
            return Window(low, end, (period.high.time - period.low.time).total_seconds())


def _moment_end(moment: Moment, offset: int) -> Bound:
    """Return a moment's end: the start of the next day, hour or minute; for an instant the instant itself.

    The end of the calendar's last day is the latest possible time.
    """
    if moment.unit is None:
        return _fixed_bound(moment.time, offset, is_inclusive=True)
    length = timedelta(seconds=SECONDS_PER_UNIT[moment.unit])
    if moment.time > datetime.max.replace(tzinfo=UTC) - length:
        return _fixed_bound(datetime.max.replace(tzinfo=UTC), offset, is_inclusive=True)
    return _fixed_bound(moment.time + length, offset, is_inclusive=False)


def _fixed_bound(time: datetime, offset: int, *, is_inclusive: bool) -> Bound:
    return Bound(
        fill("CAST(@text AS TIMESTAMP)", offset, text=literal(time.isoformat(" "), offset)), is_inclusive, time
    )


def _relative_window(shorthand: Shorthand, zone: str, offset: int) -> Window:
    now = Bound(fill("CURRENT_TIMESTAMP()", offset), is_inclusive=True)
    match shorthand.kind:
        case Relative.NOW:
            low = fill("TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), SECOND)", offset)
            return Window(
                _inclusive_bound(low),
                _exclusive_bound(fill("TIMESTAMP_ADD(@low, INTERVAL 1 SECOND)", offset, low=low)),
                1,
            )
        case Relative.TODAY:
            return Window(
                _inclusive_bound(_start_of_day(0, zone, offset)),
                _exclusive_bound(_start_of_day(1, zone, offset)),
                SECONDS_PER_UNIT[Unit.DAY],
            )
        case Relative.YESTERDAY:
            return Window(
                _inclusive_bound(_start_of_day(-1, zone, offset)),
                _exclusive_bound(_start_of_day(0, zone, offset)),
                SECONDS_PER_UNIT[Unit.DAY],
            )
        case Relative.THIS:
            return Window(
                _inclusive_bound(_start_of_unit(shorthand.unit, zone, offset)), now, SECONDS_PER_UNIT[shorthand.unit]
            )
        case Relative.AGO:
            return _ago_window(shorthand, offset)
        case Relative.CLOCK:
            low = _minute_of_day(shorthand.count, zone, offset)
            return Window(
                _inclusive_bound(low),
                _exclusive_bound(fill("TIMESTAMP_ADD(@low, INTERVAL 1 MINUTE)", offset, low=low)),
                60,
            )
        case Relative.LAST:
            seconds = (shorthand.count + 1) * SECONDS_PER_UNIT[shorthand.unit]
            start = _inclusive_bound(_units_ago(shorthand, zone, offset)) if seconds < _MAX_SECONDS_BACK else None
            return Window(start, now, seconds)


def _ago_window(shorthand: Shorthand, offset: int) -> Window:
    """Return the window from `count` units ago to `until` seconds ago."""
    seconds = shorthand.count * SECONDS_PER_UNIT[shorthand.unit]
    low = fill(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {seconds} SECOND)", offset)
    end = (
        f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {shorthand.until} SECOND)"
        if shorthand.until
        else "CURRENT_TIMESTAMP()"
    )
    high = Bound(fill(end, offset), is_inclusive=True)
    return Window(_inclusive_bound(low) if seconds < _MAX_SECONDS_BACK else None, high, seconds - shorthand.until)


def _minute_of_day(minute: int, zone: str, offset: int) -> exp.Expr:
    """Return the time of a minute of today."""
    return _to_utc(
        fill(f"DATETIME_ADD(@today, INTERVAL {minute} MINUTE)", offset, today=_current_date(zone, offset)), zone, offset
    )


def _inclusive_bound(time: exp.Expr) -> Bound:
    return Bound(time, is_inclusive=True)


def _exclusive_bound(time: exp.Expr) -> Bound:
    return Bound(time, is_inclusive=False)


def _units_ago(shorthand: Shorthand, zone: str, offset: int) -> exp.Expr:
    """Return the time `count` units ago; for days and longer units, the start of that day."""
    unit, count = shorthand.unit.upper(), shorthand.count
    if shorthand.unit in _CLOCK_UNITS:
        return fill(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {count} {unit})", offset)
    today = _current_date(zone, offset)
    return _to_utc(fill(f"DATETIME_SUB(@today, INTERVAL {count} {unit})", offset, today=today), zone, offset)


def _start_of_unit(unit: Unit, zone: str, offset: int) -> exp.Expr:
    if zone == "UTC" or unit in {Unit.SECOND, Unit.MINUTE}:
        return fill(f"TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), {truncation_part(unit)})", offset)
    local = fill("CURRENT_DATETIME(@zone)", offset, zone=zone)
    return _to_utc(fill(f"DATETIME_TRUNC(@local, {truncation_part(unit)})", offset, local=local), zone, offset)


def _start_of_day(days: int, zone: str, offset: int) -> exp.Expr:
    """Return the start of a day relative to today, by calendar: a zone's days may have 23 or 25 hours."""
    today = _current_date(zone, offset)
    if days:
        function = "DATETIME_ADD" if days > 0 else "DATETIME_SUB"
        today = fill(f"{function}(@today, INTERVAL {abs(days)} DAY)", offset, today=today)
    return _to_utc(today, zone, offset)


def _current_date(zone: str, offset: int) -> exp.Expr:
    if zone == "UTC":
        return fill("DATETIME_TRUNC(CURRENT_DATETIME(), DAY)", offset)
    return fill("DATETIME_TRUNC(CURRENT_DATETIME(@zone), DAY)", offset, zone=zone)


def _to_utc(local: exp.Expr, zone: str, offset: int) -> exp.Expr:
    if zone == "UTC":
        return fill("TIMESTAMP(@local)", offset, local=local)
    return fill("TIMESTAMP(@local, @zone)", offset, local=local, zone=zone)
