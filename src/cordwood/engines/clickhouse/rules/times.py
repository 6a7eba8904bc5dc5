"""Arithmetic with times: adding, truncating, differences, and EXTRACT."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import cast, once, utc_wall_clock
from cordwood.engines.clickhouse.rules.coercions import read_as, wall_clock
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.units import (
    MICROSECONDS,
    are_timestamps,
    check_unit,
    read_extract_part,
    unit_count,
    unit_of,
    week_start,
)
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.operations import Interval
from cordwood.sql.typing import kind_of, typed_as
from cordwood.sql.typing.datatypes import INTERVAL

DAYS: Final = {"DAY": 1, "WEEK": 7, "ISOWEEK": 7}
MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "ISOYEAR": 12}


def span(count: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    """Return an INTERVAL of a number of units, as months, days and microseconds."""
    if unit in MONTHS:
        template = f"tuple({{0}} * {MONTHS[unit]}, toInt64(0), toInt64(0))"
    elif unit in DAYS:
        template = f"tuple(toInt64(0), {{0}} * {DAYS[unit]}, toInt64(0))"
    elif unit in MICROSECONDS:
        template = f"tuple(toInt64(0), toInt64(0), toInt64({{0}} * {MICROSECONDS[unit]}))"
    else:
        unsupported(node, f"The unit {unit}")
    return typed_as(fragment(template, as_count(count), operation=Interval(unit)), INTERVAL)


def as_count(count: exp.Expr) -> exp.Expr:
    """Return the count of an INTERVAL as a number; sqlglot returns it as text."""
    value = constant(count)
    if value is None:
        return fragment("toInt64({0})", read_as(count, Kind.INT64))
    if not isinstance(value, str):
        return count
    number = unit_count(value, count)
    return fragment(f"toFloat64({float(number)})" if "." in number else f"toInt64({int(number)})")


def _add_or_subtract(sign: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        if kind_of(node.expression) is Kind.INTERVAL:
            return add_interval(read_as(node.this, kind), sign, node.expression, kind)
        return _add(node, sign, unit_of(node.args.get("unit")), kind)

    return rule


def _add(node: exp.Expr, sign: str, unit: str, kind: Kind) -> exp.Expr:
    value, count = read_as(node.this, kind), as_count(node.expression)
    minus = "-" if sign == "-" else ""
    if kind is Kind.TIME:
        return _add_to_time(
            value, f"{sign} @b * {MICROSECONDS.get(unit) or unsupported(node, f'The unit {unit}')}", count
        )
    if unit in MONTHS:
        sum_ = f"addMonths(@a, {minus}(@b * {MONTHS[unit]}))"
    elif unit in DAYS:
        sum_ = f"addDays(@a, {minus}(@b * {DAYS[unit]}))"
    elif unit in MICROSECONDS:
        sum_ = f"addMicroseconds(@a, {minus}(@b * {MICROSECONDS[unit]}))"
    else:
        unsupported(node, f"The unit {unit}")
    return once(sum_, value, count)


def _add_to_time(value: exp.Expr, change: str, count: exp.Expr) -> exp.Expr:
    """Shift a TIME, modulo 24 hours."""
    micros = f"positiveModulo(toUnixTimestamp64Micro(CAST(@a, 'Nullable(DateTime64(6))')) {change}, 86400000000)"
    return once(f"CAST(fromUnixTimestamp64Micro(toInt64({micros})), 'Nullable(Time64(6))')", value, count)


def add_interval(value: exp.Expr, sign: str, interval: exp.Expr, kind: Kind) -> exp.Expr:
    """Return a time plus or minus an INTERVAL."""
    minus = "-" if sign == "-" else ""
    if kind is Kind.TIME:
        return _add_to_time(value, f"{sign} @b.3", interval)
    value = utc_wall_clock(value) if kind is Kind.DATE else value
    return once(f"addMicroseconds(addDays(addMonths(@a, {minus}@b.1), {minus}@b.2), {minus}@b.3)", value, interval)


def truncation(unit: str, node: exp.Expr, name: str = "@a") -> str:
    """Return the template that truncates the wall clock to the unit."""
    week_offset = week_start(unit)
    day = f"toDate32({name})"
    if week_offset is not None:
        return _as_wall(
            f"toMonday({day})"
            if not week_offset
            else f"addDays(toMonday(addDays({day}, -{week_offset})), {week_offset})"
        )
    if unit in _TRUNCATIONS:
        return _as_wall(f"{_TRUNCATIONS[unit]}({day})")
    if unit not in MICROSECONDS:
        unsupported(node, f"The unit {unit}")
    size = MICROSECONDS[unit]
    micros = f"toUnixTimestamp64Micro({name})"
    return name if size == 1 else f"fromUnixTimestamp64Micro({micros} - positiveModulo({micros}, {size}))"


def _as_wall(day: str) -> str:
    return f"CAST({day}, 'Nullable(DateTime64(6))')"


_TRUNCATIONS: Final = {
    "MONTH": "toStartOfMonth",
    "QUARTER": "toStartOfQuarter",
    "YEAR": "toStartOfYear",
    "ISOYEAR": "toStartOfISOYear",
}


def _truncate(node: exp.Expr) -> exp.Expr:
    kind = kind_of(node) or Kind.TIMESTAMP
    unit, zone = unit_of(node.args.get("unit")), node.args.get("zone")
    value = read_as(node.this, kind)
    if kind is Kind.TIME:
        return cast(once(truncation(unit, node), cast(value, Kind.DATETIME)), Kind.TIME)
    if zone is not None and kind is Kind.TIMESTAMP:
        if unit in MICROSECONDS and unit != "DAY":
            return _truncate_clock(value, MICROSECONDS[unit], zone)
        return first_timestamp_in(once(truncation(unit, node), wall_clock_in(value, zone)), zone)
    return to_kind(once(truncation(unit, node), wall_clock(value)), kind)


def _truncate_clock(value: exp.Expr, size: int, zone: exp.Expr) -> exp.Expr:
    """Subtract what the zone's wall clock shows beyond the unit.

    So an hour that occurs twice is truncated to itself.
    """
    excess = f"positiveModulo(toUnixTimestamp64Micro({{1}}), {size})"
    truncated = f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {excess}, 'UTC')"
    return fragment(truncated, value, wall_clock_in(copied(value), zone))


def to_kind(moment: exp.Expr, kind: Kind) -> exp.Expr:
    return cast(moment, kind) if kind in (Kind.DATE, Kind.TIMESTAMP) else moment


def _last_day(node: exp.Expr) -> exp.Expr:
    unit = unit_of(node.args.get("unit"), "MONTH")
    value = read_as(node.this, Kind.DATE) if kind_of(node.this) is Kind.STRING else node.this
    week_offset = week_start(unit)
    if week_offset is not None:
        ending = f"addDays({truncation(unit, node)}, 6)"
    elif unit == "ISOYEAR":
        ending = f"addDays({truncation(unit, node, f'addDays({truncation(unit, node)}, 374)')}, -1)"
    elif unit in MONTHS:
        # By way of the last month, because ClickHouse's calendar ends with 9999.
        ending = f"toLastDayOfMonth(addMonths(toDate32({truncation(unit, node)}), {MONTHS[unit] - 1}))"
    else:
        unsupported(node, f"The unit {unit}")
    return cast(once(ending, wall_clock(value)), Kind.DATE)


def _timestamp_difference(node: exp.Expr) -> exp.Expr:
    """Lower TIMESTAMP_DIFF: the number of whole units between two times."""
    size = MICROSECONDS.get(unit_of(node.args.get("unit")))
    if size is None:
        return _boundaries(node)
    later, earlier = read_as(node.this, Kind.TIMESTAMP), read_as(node.expression, Kind.TIMESTAMP)
    microseconds = "(toUnixTimestamp64Micro({0}) - toUnixTimestamp64Micro({1}))"
    return fragment(microseconds if size == 1 else f"intDiv({microseconds}, {size})", later, earlier)


def _difference(node: exp.Expr) -> exp.Expr:
    """Lower a difference by the types of its arguments, independent of the function's name."""
    return _timestamp_difference(node) if are_timestamps(node) else _boundaries(node)


def _boundaries(node: exp.Expr) -> exp.Expr:
    """Return the number of unit boundaries between two wall clocks."""
    unit = unit_of(node.args.get("unit"))
    later, earlier = (_clock_of(part, node) for part in (node.this, node.expression))
    if unit in MICROSECONDS:
        size = MICROSECONDS[unit]
        steps = [f"toInt64(floor(toUnixTimestamp64Micro({name}) / {size}))" for name in ("{0}", "{1}")]
        if size == 1:
            steps = ["toUnixTimestamp64Micro({0})", "toUnixTimestamp64Micro({1})"]
        return fragment(f"({steps[0]} - {steps[1]})", later, earlier)
    if week_start(unit) is not None:
        days = [f"toInt64(toDate32({truncation(unit, node, name)}))" for name in ("{0}", "{1}")]
        return fragment(f"intDiv({days[0]} - {days[1]}, 7)", later, earlier)
    unit_count = _UNIT_COUNTS.get(unit)
    if unit_count is None:
        unsupported(node, f"The unit {unit}")
    return fragment(f"({unit_count.format('{0}')} - {unit_count.format('{1}')})", later, earlier)


_UNIT_COUNTS: Final = {
    "MONTH": "(toInt64(toYear({0})) * 12 + toMonth({0}))",
    "QUARTER": "(toInt64(toYear({0})) * 4 + toQuarter({0}))",
    "YEAR": "toInt64(toYear({0}))",
    "ISOYEAR": "toInt64(toISOYear(toDate32({0})))",
}


def _clock_of(value: exp.Expr, node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.TimeDiff):
        return cast(read_as(value, Kind.TIME), Kind.DATETIME)
    if kind_of(value) is Kind.STRING:
        value = read_as(value, Kind.DATE if isinstance(node, exp.DateDiff) else Kind.DATETIME)
    return wall_clock(value)


_MICROS_OF_SECOND: Final = "positiveModulo(toUnixTimestamp64Micro({0}), 1000000)"
_PARTS: Final = {
    "DAYOFWEEK": "toDayOfWeek({0}) % 7 + 1",
    "DAYOFYEAR": "toDayOfYear({0})",
    "ISOWEEK": "toISOWeek(toDate32({0}))",
    "ISOYEAR": "toISOYear(toDate32({0}))",
    "MILLISECOND": f"intDiv({_MICROS_OF_SECOND}, 1000)",
    "MICROSECOND": _MICROS_OF_SECOND,
    "YEAR": "toYear({0})",
    "QUARTER": "toQuarter({0})",
    "MONTH": "toMonth({0})",
    "DAY": "toDayOfMonth({0})",
    "HOUR": "toHour({0})",
    "MINUTE": "toMinute({0})",
    "SECOND": "toSecond({0})",
}
_CAST_PARTS: Final = {"DATE": Kind.DATE, "TIME": Kind.TIME, "DATETIME": Kind.DATETIME}
_INTERVAL_PARTS: Final = {
    "YEAR": "intDiv({0}.1, 12)",
    "MONTH": "{0}.1 % 12",
    "DAY": "{0}.2",
    "HOUR": "intDiv({0}.3, 3600000000)",
    "MINUTE": "intDiv({0}.3, 60000000) % 60",
    "SECOND": "intDiv({0}.3, 1000000) % 60",
    "MILLISECOND": "intDiv({0}.3, 1000) % 1000",
    "MICROSECOND": "{0}.3 % 1000000",
}


def _extract(node: exp.Expr) -> exp.Expr:
    part, value = read_extract_part(node), node.expression
    if kind_of(value) is Kind.INTERVAL:
        if part not in _INTERVAL_PARTS:
            unsupported(node, f"The part {part}")
        return fragment(f"toInt64({_INTERVAL_PARTS[part]})", value)
    wall = _wall_of(value)
    if part in _CAST_PARTS:
        return cast(wall, _CAST_PARTS[part])
    week_offset = week_start(part)
    if part not in _PARTS and week_offset is not None:
        return fragment(
            f"toInt64(intDiv(toDayOfYear({{0}}) + 6 - (toDayOfWeek({{0}}) - 1 - {week_offset} + 7) % 7, 7))", wall
        )
    if part not in _PARTS:
        unsupported(node, f"The part {part}")
    return fragment(f"toInt64({_PARTS[part]})", wall)


def _wall_of(value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.AtTimeZone):
        return wall_clock_in(read_as(value.this, Kind.TIMESTAMP), value.args["zone"])
    return cast(value, Kind.DATETIME) if kind_of(value) is Kind.TIME else wall_clock(value)


RULES = RuleSet(
    nodes={
        **dict.fromkeys(
            (exp.TimestampAdd, exp.DatetimeAdd, exp.DateAdd, exp.TimeAdd), check_unit(_add_or_subtract("+"))
        ),
        **dict.fromkeys(
            (exp.TimestampSub, exp.DatetimeSub, exp.DateSub, exp.TimeSub), check_unit(_add_or_subtract("-"))
        ),
        **dict.fromkeys((exp.TimestampTrunc, exp.DatetimeTrunc, exp.DateTrunc, exp.TimeTrunc), check_unit(_truncate)),
        **dict.fromkeys((exp.DateDiff, exp.TimeDiff), check_unit(_difference)),
        exp.DatetimeDiff: _difference,
        exp.TimestampDiff: check_unit(_timestamp_difference),
        exp.LastDay: _last_day,
        exp.Extract: _extract,
    }
)
