"""Construction of times: from texts, parts, other times and epochs; the current time; buckets and generated arrays."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    NAMES,
    cast,
    fail_if,
    once,
    utc_wall_clock,
)
from cordwood.engines.clickhouse.rules.coercions import read_as, text_to_time, wall_clock
from cordwood.engines.clickhouse.rules.times import MONTHS, to_kind
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.fragment import fragment, quoted_constant
from cordwood.sql.lowering import RAISED, Rule, RuleSet, unsupported
from cordwood.sql.operations import Interval, operation_of
from cordwood.sql.typing import inherit, kind_of


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


def _bucket(node: exp.Expr) -> exp.Expr:
    """Lower the BUCKET functions: round down to a grid of any width that is aligned to an origin."""
    kind = {"TIMESTAMP_BUCKET": Kind.TIMESTAMP, "DATETIME_BUCKET": Kind.DATETIME}.get(str(node.this).upper(), Kind.DATE)
    value, width, *optional = node.expressions
    origin = wall_clock(read_as(optional[0], kind)) if optional else fragment("toDateTime64('1950-01-01 00:00:00', 6)")
    size = "(@b.2 * 86400000000 + @b.3)"
    start = "toUnixTimestamp64Micro(@c)"
    micros = f"toUnixTimestamp64Micro(@a) - positiveModulo(toUnixTimestamp64Micro(@a) - {start}, {size})"
    months = "(toInt64(toYear({0})) * 12 + toMonth({0}))"
    months_apart = f"({months.format('@a')} - {months.format('@c')})"
    bucket_month = f"addMonths(@c, {months_apart} - positiveModulo({months_apart}, @b.1))"
    bucket_start = f"if({bucket_month} > @a, addMonths({bucket_month}, -@b.1), {bucket_month})"
    interval = operation_of(width, Interval)
    if interval is not None and interval.unit in MONTHS:
        moment = once(bucket_start, wall_clock(read_as(value, kind)), width, origin)
    else:
        moment = once(f"fromUnixTimestamp64Micro({micros})", wall_clock(read_as(value, kind)), width, origin)
    return to_kind(inherit(moment, node), kind)


def _series(kind: Kind) -> Rule:
    """Return the rule of an array of times from start to end by an interval, forward or backward."""

    def rule(node: exp.Expr) -> exp.Expr:
        start, end = (read_as(node.args[key], kind) for key in ("start", "end"))
        step = node.args.get("step") or fragment("tuple(toInt64(0), toInt64(1), toInt64(0))")
        name = quoted_constant(f"Nullable({NAMES[kind]})")
        start_wall = "CAST(@a, 'Nullable(DateTime64(6))')" if kind is Kind.DATE else "@a"
        element = f"CAST(addMicroseconds(addDays(addMonths({start_wall}, _i * @c.1), _i * @c.2), _i * @c.3), {name})"
        is_in_range = f"if({_STEP} > 0, _x <= @b, _x >= @b)"
        series = f"arrayFilter(_x -> {is_in_range}, arrayMap(_i -> {element}, range({_STEPS})))"
        empty = f"CAST([], {quoted_constant(f'Array(Nullable({NAMES[kind]}))')})"
        check = f"throwIf({_STEP} = 0, {quoted_constant(RAISED + 'Sequence step cannot be 0')}) = 1"
        return once(f"if(isNull(@a) OR isNull(@b) OR {check}, {empty}, {series})", start, end, step)

    return rule


# Months count as the shortest one: a step too many is filtered out.
_STEP: Final = "(@c.1 * 2419200000000 + @c.2 * 86400000000 + @c.3)"
_MICROS: Final = "toUnixTimestamp64Micro(CAST({0}, 'Nullable(DateTime64(6))'))"
_STEPS: Final = (
    f"toUInt64(greatest(0, intDiv(assumeNotNull({_MICROS.format('@b')} - {_MICROS.format('@a')}),"
    f" if({_STEP} = 0, 1, {_STEP})) + 1))"
)


RULES = RuleSet(
    nodes={
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
        exp.GenerateDateArray: _series(Kind.DATE),
        exp.GenerateTimestampArray: _series(Kind.TIMESTAMP),
    },
    by_name={"TIMESTAMP_BUCKET": _bucket, "DATETIME_BUCKET": _bucket, "DATE_BUCKET": _bucket},
)
