"""Conversions between times and their parts: EXTRACT, constructors, epochs, and the current time."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    cast,
    fail_if,
    once,
    utc_wall_clock,
)
from cordwood.engines.clickhouse.rules.coercions import read_as, text_to_time, wall_clock
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.units import read_extract_part, week_start
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import kind_of

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


def _timestamp(node: exp.Expr) -> exp.Expr:
    """Lower TIMESTAMP(x[, zone]): the zone applies to a text without a zone and to a wall clock."""
    value, zone = node.this, node.args.get("zone")
    if kind_of(value) is Kind.STRING:
        if zone is None:
            return text_to_time(node, value, Kind.TIMESTAMP)
        return first_timestamp_in(text_to_time(node, value, Kind.DATETIME), zone)
    if zone is None:
        return read_as(value, Kind.TIMESTAMP)
    return first_timestamp_in(wall_clock(value), zone)


def _datetime(node: exp.Expr) -> exp.Expr:
    """Lower DATETIME(date, time), and the wall clock of a TIMESTAMP in a zone."""
    value, other = node.this, node.args.get("expression")
    if kind_of(value) is Kind.STRING and other is None:
        return text_to_time(node, value, Kind.DATETIME)
    if isinstance(node, exp.TsOrDsToDatetime) or other is None:
        return read_as(value, Kind.DATETIME)
    if kind_of(other) is Kind.TIME:
        day = utc_wall_clock(read_as(value, Kind.DATE))
        return fragment(
            "addMicroseconds({0}, toUnixTimestamp64Micro(CAST({1}, 'Nullable(DateTime64(6))')))", day, other
        )
    return wall_clock_in(read_as(value, Kind.TIMESTAMP), other)


def _date(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if node.args.get("expressions"):
        unsupported(node, "DATE with these arguments")
    if kind_of(value) is Kind.STRING:
        return text_to_time(node, value, Kind.DATE)
    if zone is None:
        return read_as(value, Kind.DATE)
    return cast(wall_clock_in(read_as(value, Kind.TIMESTAMP), zone), Kind.DATE)


def _time(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if zone is not None:
        return cast(wall_clock_in(read_as(value, Kind.TIMESTAMP), zone), Kind.TIME)
    if kind_of(value) in (Kind.STRING, Kind.TIME):
        return read_as(value, Kind.TIME)
    return cast(wall_clock(value), Kind.TIME)


def _date_of_parts(node: exp.Expr) -> exp.Expr:
    parts = [node.args[key] for key in ("year", "month", "day")]
    time_sql = "makeDate32(@a, @b, @c)"
    is_invalid = f"({time_sql} IS NOT NULL AND (toDayOfMonth({time_sql}) != @c OR toMonth({time_sql}) != @b OR toYear({time_sql}) != @a))"
    return once(fail_if(node, is_invalid, "Input calculates to invalid date", time_sql), *parts)


def _datetime_of_parts(node: exp.Expr) -> exp.Expr:
    keys = ("year", "month", "day", "hour", "min", "sec")
    if not all(node.args.get(key) for key in keys):
        unsupported(node, "DATETIME with these arguments")
    is_invalid = "(@b NOT BETWEEN 1 AND 12 OR @c NOT BETWEEN 1 AND 31 OR @d > 23 OR @e > 59 OR @f > 60)"
    time_sql = "addSeconds(CAST(makeDate32(@a, @b, @c), 'Nullable(DateTime64(6))'), @d * 3600 + @e * 60 + @f)"
    return once(
        fail_if(node, is_invalid, "Input calculates to invalid datetime", time_sql), *(node.args[key] for key in keys)
    )


def _time_of_parts(node: exp.Expr) -> exp.Expr:
    parts = [node.args[key] for key in ("hour", "min", "sec")]
    is_invalid = "(@a NOT BETWEEN 0 AND 23 OR @b NOT BETWEEN 0 AND 59 OR @c NOT BETWEEN 0 AND 59)"
    time_sql = "CAST(fromUnixTimestamp64Micro(toInt64(@a * 3600 + @b * 60 + @c) * 1000000), 'Nullable(Time64(6))')"
    return once(fail_if(node, is_invalid, "Input calculates to invalid time", time_sql), *parts)


def _from_epoch(node: exp.Expr) -> exp.Expr:
    scale = node.args.get("scale")
    digits = int(str(scale.meta_get("constant", scale.this))) if scale is not None else 0
    count = read_as(node.this, Kind.INT64)
    factor = 10 ** (6 - digits)
    micros = "@a" if factor == 1 else f"@a * {factor}"
    is_invalid = f"(toInt128(@a) * {factor} NOT BETWEEN -62135596800000000 AND 253402300799999999)"
    return once(
        fail_if(node, is_invalid, "timestamp out of range", f"fromUnixTimestamp64Micro(toInt64({micros}), 'UTC')"),
        count,
    )


def _to_epoch(size: int) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = read_as(node.this, Kind.TIMESTAMP)
        micros = "toUnixTimestamp64Micro({0})"
        # Rounds down, also before 1970.
        return fragment(micros if size == 1 else f"intDiv({micros} - positiveModulo({micros}, {size}), {size})", value)

    return rule


def _to_days(node: exp.Expr) -> exp.Expr:
    return fragment("toInt64({0})", read_as(node.this, Kind.DATE))


def _from_days(node: exp.Expr) -> exp.Expr:
    return fragment("addDays(toDate32('1970-01-01'), {0})", node.this)


_NOW: Final = "now64(6, 'UTC')"


def _current(kind: Kind) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        moment = fragment(_NOW)
        if kind is Kind.TIMESTAMP:
            return moment
        return cast(wall_clock_in(moment, zone), kind)

    return rule


RULES = RuleSet(
    nodes={
        exp.Extract: _extract,
        **dict.fromkeys((exp.Timestamp, exp.TsOrDsToTimestamp), _timestamp),
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _datetime),
        **dict.fromkeys((exp.Date, exp.TsOrDsToDate), _date),
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _time),
        exp.DateFromParts: _date_of_parts,
        exp.TimestampFromParts: _datetime_of_parts,
        exp.TimeFromParts: _time_of_parts,
        exp.UnixToTime: _from_epoch,
        exp.UnixSeconds: _to_epoch(1_000_000),
        exp.UnixMillis: _to_epoch(1_000),
        exp.UnixMicros: _to_epoch(1),
        exp.UnixDate: _to_days,
        exp.DateFromUnixDate: _from_days,
        exp.CurrentTimestamp: _current(Kind.TIMESTAMP),
        exp.CurrentDate: _current(Kind.DATE),
        exp.CurrentDatetime: _current(Kind.DATETIME),
        exp.CurrentTime: _current(Kind.TIME),
    },
)
