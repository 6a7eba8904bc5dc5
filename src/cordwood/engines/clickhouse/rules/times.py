"""Arithmetic with times: INTERVAL values, sums and differences, truncating, buckets and generated arrays.

An INTERVAL is a tuple of months, days and microseconds.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import NAMES, cast, once, utc_wall_clock
from cordwood.engines.clickhouse.rules.coercions import read_as, wall_clock
from cordwood.engines.clickhouse.rules.numbers import NUMBERS, checked_arithmetic
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in, wall_clock_in
from cordwood.model.datatype import MOMENTS, Kind
from cordwood.sql.bigquery.units import (
    MICROSECONDS,
    are_timestamps,
    check_unit,
    interval_parts,
    unit_count,
    unit_of,
    week_start,
)
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant
from cordwood.sql.fragment import fragment, quoted_constant
from cordwood.sql.lowering import RAISED, Rule, RuleSet, unsupported
from cordwood.sql.operations import Interval, operation_of
from cordwood.sql.typing import inherit, kind_of, typed_as
from cordwood.sql.typing.datatypes import INTERVAL

_DAYS: Final = {"DAY": 1, "WEEK": 7, "ISOWEEK": 7}
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "ISOYEAR": 12}


def span(count: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    """Return an INTERVAL of a number of units, as months, days and microseconds."""
    if unit in _MONTHS:
        template = f"tuple({{0}} * {_MONTHS[unit]}, toInt64(0), toInt64(0))"
    elif unit in _DAYS:
        template = f"tuple(toInt64(0), {{0}} * {_DAYS[unit]}, toInt64(0))"
    elif unit in MICROSECONDS:
        template = f"tuple(toInt64(0), toInt64(0), toInt64({{0}} * {MICROSECONDS[unit]}))"
    else:
        unsupported(node, f"The unit {unit}")
    return typed_as(fragment(template, _as_count(count), operation=Interval(unit)), INTERVAL)


def _as_count(count: exp.Expr) -> exp.Expr:
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
            return _add_interval(read_as(node.this, kind), sign, node.expression, kind)
        return _add(node, sign, unit_of(node.args.get("unit")), kind)

    return rule


def _add(node: exp.Expr, sign: str, unit: str, kind: Kind) -> exp.Expr:
    value, count = read_as(node.this, kind), _as_count(node.expression)
    minus = "-" if sign == "-" else ""
    if kind is Kind.TIME:
        return _add_to_time(
            value, f"{sign} @b * {MICROSECONDS.get(unit) or unsupported(node, f'The unit {unit}')}", count
        )
    if unit in _MONTHS:
        sum_ = f"addMonths(@a, {minus}(@b * {_MONTHS[unit]}))"
    elif unit in _DAYS:
        sum_ = f"addDays(@a, {minus}(@b * {_DAYS[unit]}))"
    elif unit in MICROSECONDS:
        sum_ = f"addMicroseconds(@a, {minus}(@b * {MICROSECONDS[unit]}))"
    else:
        unsupported(node, f"The unit {unit}")
    return once(sum_, value, count)


def _add_to_time(value: exp.Expr, change: str, count: exp.Expr) -> exp.Expr:
    """Shift a TIME, modulo 24 hours."""
    micros = f"positiveModulo(toUnixTimestamp64Micro(CAST(@a, 'Nullable(DateTime64(6))')) {change}, 86400000000)"
    return once(f"CAST(fromUnixTimestamp64Micro(toInt64({micros})), 'Nullable(Time64(6))')", value, count)


def _add_interval(value: exp.Expr, sign: str, interval: exp.Expr, kind: Kind) -> exp.Expr:
    """Return a time plus or minus an INTERVAL."""
    minus = "-" if sign == "-" else ""
    if kind is Kind.TIME:
        return _add_to_time(value, f"{sign} @b.3", interval)
    value = utc_wall_clock(value) if kind is Kind.DATE else value
    return once(f"addMicroseconds(addDays(addMonths(@a, {minus}@b.1), {minus}@b.2), {minus}@b.3)", value, interval)


def _truncation(unit: str, node: exp.Expr, name: str = "@a") -> str:
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
        return cast(once(_truncation(unit, node), cast(value, Kind.DATETIME)), Kind.TIME)
    if zone is not None and kind is Kind.TIMESTAMP:
        if unit in MICROSECONDS and unit != "DAY":
            return _truncate_clock(value, MICROSECONDS[unit], zone)
        return first_timestamp_in(once(_truncation(unit, node), wall_clock_in(value, zone)), zone)
    return _to_kind(once(_truncation(unit, node), wall_clock(value)), kind)


def _truncate_clock(value: exp.Expr, size: int, zone: exp.Expr) -> exp.Expr:
    """Subtract what the zone's wall clock shows beyond the unit.

    So an hour that occurs twice is truncated to itself.
    """
    excess = f"positiveModulo(toUnixTimestamp64Micro({{1}}), {size})"
    truncated = f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {excess}, 'UTC')"
    return fragment(truncated, value, wall_clock_in(copied(value), zone))


def _to_kind(moment: exp.Expr, kind: Kind) -> exp.Expr:
    return cast(moment, kind) if kind in (Kind.DATE, Kind.TIMESTAMP) else moment


def _last_day(node: exp.Expr) -> exp.Expr:
    unit = unit_of(node.args.get("unit"), "MONTH")
    value = read_as(node.this, Kind.DATE) if kind_of(node.this) is Kind.STRING else node.this
    week_offset = week_start(unit)
    if week_offset is not None:
        ending = f"addDays({_truncation(unit, node)}, 6)"
    elif unit == "ISOYEAR":
        ending = f"addDays({_truncation(unit, node, f'addDays({_truncation(unit, node)}, 374)')}, -1)"
    elif unit in _MONTHS:
        # By way of the last month, because ClickHouse's calendar ends with 9999.
        ending = f"toLastDayOfMonth(addMonths(toDate32({_truncation(unit, node)}), {_MONTHS[unit] - 1}))"
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
        days = [f"toInt64(toDate32({_truncation(unit, node, name)}))" for name in ("{0}", "{1}")]
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
    if interval is not None and interval.unit in _MONTHS:
        moment = once(bucket_start, wall_clock(read_as(value, kind)), width, origin)
    else:
        moment = once(f"fromUnixTimestamp64Micro({micros})", wall_clock(read_as(value, kind)), width, origin)
    return _to_kind(inherit(moment, node), kind)


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


def _interval(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _interval_of_parts(node, unit)
    if unit is None:
        unsupported(node, "An interval without a unit")
    return span(node.this, unit_of(unit), node)


def _interval_of_parts(node: exp.Expr, unit: exp.Expr) -> exp.Expr:
    totals = [0, 0, 0.0]
    for part, value in interval_parts(node, unit):
        _count_in(totals, part, float(value))
    return fragment(f"tuple(toInt64({int(totals[0])}), toInt64({int(totals[1])}), toInt64({round(totals[2])}))")


def _count_in(totals: list[float], unit: str, value: float) -> None:
    if unit in _MONTHS:
        totals[0] += value * _MONTHS[unit]
    elif unit in _DAYS:
        totals[1] += value
    else:
        totals[2] += value * MICROSECONDS[unit]


def _make_interval(node: exp.Expr) -> exp.Expr:
    parts = [(key.upper(), value) for key, value in node.args.items() if isinstance(value, exp.Expr)]
    spans = [span(value.expression if isinstance(value, exp.Kwarg) else value, unit, node) for unit, value in parts]
    template = " + ".join(f"{{{index}}}" for index in range(len(spans)))
    return fragment(f"({template})" if spans else "tuple(toInt64(0), toInt64(0), toInt64(0))", *spans)


def _sum(node: exp.Expr) -> exp.Expr:
    """Lower `+` and `-` if one side is a time or an interval."""
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(node.this), kind_of(node.expression))
    if Kind.INTERVAL in kinds:
        return _sum_with_interval(node.this, node.expression, sign)
    if kinds in _SUMS_OF_DAYS:
        return fragment(_SUMS_OF_DAYS[kinds].format(sign=sign), node.this, node.expression)
    if kinds[0] == kinds[1] and kinds[0] in MOMENTS and sign == "-":
        return _interval_between(node.this, node.expression, kinds[0])
    return checked_arithmetic(node, sign, *NUMBERS.operands(node))


_SUMS_OF_DAYS: Final[dict[tuple[Kind | None, Kind | None], str]] = {
    (Kind.DATE, Kind.INT64): "addDays({{0}}, 0 {sign} {{1}})",
    (Kind.INT64, Kind.DATE): "addDays({{1}}, {{0}})",
}


def _sum_with_interval(left: exp.Expr, right: exp.Expr, sign: str) -> exp.Expr:
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind is right_kind:
        return fragment(f"tuple{'Minus' if sign == '-' else 'Plus'}({{0}}, {{1}})", left, right)
    if left_kind is Kind.INTERVAL:
        return _add_interval(right, sign, left, right_kind or Kind.TIMESTAMP)
    return _add_interval(left, sign, right, left_kind or Kind.TIMESTAMP)


def _interval_between(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("tuple(toInt64(0), toInt64(toInt64({0}) - toInt64({1})), toInt64(0))", left, right)
    left, right = (cast(side, Kind.DATETIME) for side in (left, right))
    microseconds = "toUnixTimestamp64Micro({0}) - toUnixTimestamp64Micro({1})"
    return fragment(f"tuple(toInt64(0), toInt64(0), {microseconds})", left, right)


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
        exp.GenerateDateArray: _series(Kind.DATE),
        exp.GenerateTimestampArray: _series(Kind.TIMESTAMP),
        exp.Interval: _interval,
        exp.MakeInterval: _make_interval,
        **dict.fromkeys((exp.Add, exp.Sub), _sum),
    },
    by_name={
        "TIMESTAMP_BUCKET": _bucket,
        "DATETIME_BUCKET": _bucket,
        "DATE_BUCKET": _bucket,
    },
)
