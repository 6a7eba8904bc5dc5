"""Conversions between times and their parts: EXTRACT, constructors, epochs, and the current time."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    cast,
    fail_if,
    once,
    utc_wall_clock,
)
from cordwood.engines.clickhouse.rules.coercions import read_as, text_to_time, wall_clock
from cordwood.engines.clickhouse.rules.words import WORDS
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.units import read_extract_part, week_start
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.rules.functions import Checked, Key, Template, table_rules
from cordwood.sql.rules.signatures import TIMES
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


_NOW: Final = "now64(6, 'UTC')"


def _current(kind: Kind) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        moment = fragment(_NOW)
        if kind is Kind.TIMESTAMP:
            return moment
        return cast(wall_clock_in(moment, zone), kind)

    return rule


_FLOORED: Final = "intDiv({0} - positiveModulo({0}, {1}), {1})".format
_DAY: Final = "makeDate32(@a, @b, @c)"
_TEMPLATES: Final[Mapping[Key, Template]] = {
    exp.DateFromParts: Checked(
        f"({_DAY} IS NOT NULL AND (toDayOfMonth({_DAY}) != @c OR toMonth({_DAY}) != @b OR toYear({_DAY}) != @a))", _DAY
    ),
    exp.TimestampFromParts: Checked(
        "(@b NOT BETWEEN 1 AND 12 OR @c NOT BETWEEN 1 AND 31 OR @d > 23 OR @e > 59 OR @f > 60)",
        f"addSeconds(CAST({_DAY}, 'Nullable(DateTime64(6))'), @d * 3600 + @e * 60 + @f)",
    ),
    exp.TimeFromParts: Checked(
        "(@a NOT BETWEEN 0 AND 23 OR @b NOT BETWEEN 0 AND 59 OR @c NOT BETWEEN 0 AND 59)",
        "CAST(fromUnixTimestamp64Micro(toInt64(@a * 3600 + @b * 60 + @c) * 1000000), 'Nullable(Time64(6))')",
    ),
    # Rounded down, also before 1970.
    exp.UnixSeconds: _FLOORED("toUnixTimestamp64Micro({0})", 1_000_000),
    exp.UnixMillis: _FLOORED("toUnixTimestamp64Micro({0})", 1_000),
    exp.UnixMicros: "toUnixTimestamp64Micro({0})",
    exp.UnixDate: "toInt64({0})",
    exp.DateFromUnixDate: "addDays(toDate32('1970-01-01'), {0})",
}

RULES = RuleSet(
    nodes={
        **table_rules(WORDS, TIMES, _TEMPLATES).nodes,
        exp.Extract: _extract,
        **dict.fromkeys((exp.Timestamp, exp.TsOrDsToTimestamp), _timestamp),
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _datetime),
        **dict.fromkeys((exp.Date, exp.TsOrDsToDate), _date),
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _time),
        exp.UnixToTime: _from_epoch,
        exp.CurrentTimestamp: _current(Kind.TIMESTAMP),
        exp.CurrentDate: _current(Kind.DATE),
        exp.CurrentDatetime: _current(Kind.DATETIME),
        exp.CurrentTime: _current(Kind.TIME),
    },
)
