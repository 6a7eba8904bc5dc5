"""Times: INTERVAL values, sums and differences, truncating, buckets, parts, epochs and generated arrays.

An INTERVAL is a tuple of months, days and microseconds.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    NAMES,
    WORDS,
    cast,
    fail_if,
    first_timestamp_in,
    once,
    read_as,
    text_to_time,
    utc_wall_clock,
    wall_clock,
    wall_clock_in,
)
from cordwood.engines.clickhouse.rules.numbers import NUMBER_RULES, checked_arithmetic
from cordwood.engines.clickhouse.rules.time_text import TIME_TEXT
from cordwood.model.datatype import TIME_KINDS, Kind
from cordwood.sql.datatypes import INTERVAL, kind_of, typed_as
from cordwood.sql.lowering import RAISED, Rule, RuleSet, fragment, quoted_constant, unsupported
from cordwood.sql.nodes import Interval, constant
from cordwood.sql.rules.functions import TIMES, Checked, Key, Template, rules_from_templates
from cordwood.sql.rules.times import (
    MICROSECONDS,
    Times,
    read_extract_part,
    shifting_rules,
    unit_count,
    unit_of,
    week_start,
)

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
        # Find the last month first: the beginning of the next unit may be after 9999, where ClickHouse's calendar ends.
        ending = f"toLastDayOfMonth(addMonths(toDate32({_truncation(unit, node)}), {_MONTHS[unit] - 1}))"
    else:
        unsupported(node, f"The unit {unit}")
    return cast(once(ending, wall_clock(value)), Kind.DATE)


_UNIT_COUNTS: Final = {
    "MONTH": "(toInt64(toYear({0})) * 12 + toMonth({0}))",
    "QUARTER": "(toInt64(toYear({0})) * 4 + toQuarter({0}))",
    "YEAR": "toInt64(toYear({0}))",
    "ISOYEAR": "toInt64(toISOYear(toDate32({0})))",
}


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


# The length of a step in microseconds, with months of 28 days. With longer months there are too many steps: the last
# are filtered out.
_STEP: Final = "(@c.1 * 2419200000000 + @c.2 * 86400000000 + @c.3)"
_MICROS: Final = "toUnixTimestamp64Micro(CAST({0}, 'Nullable(DateTime64(6))'))"
_STEPS: Final = (
    f"toUInt64(greatest(0, intDiv(assumeNotNull({_MICROS.format('@b')} - {_MICROS.format('@a')}),"
    f" if({_STEP} = 0, 1, {_STEP})) + 1))"
)


def _sum(node: exp.Expr) -> exp.Expr:
    """Lower `+` and `-` of times, intervals and numbers."""
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(node.this), kind_of(node.expression))
    if Kind.INTERVAL in kinds:
        return _sum_with_interval(node.this, node.expression, sign)
    if kinds in _SUMS_OF_DAYS:
        return fragment(_SUMS_OF_DAYS[kinds].format(sign=sign), node.this, node.expression)
    if kinds[0] == kinds[1] and kinds[0] in TIME_KINDS and sign == "-":
        return _interval_between(node.this, node.expression, kinds[0])
    return checked_arithmetic(node, sign, *NUMBER_RULES.operands(node))


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


def _truncated_time(value: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    return cast(once(_truncation(unit, node), cast(value, Kind.DATETIME)), Kind.TIME)


def _boundaries(unit: str, node: exp.Expr) -> str:
    if unit in MICROSECONDS:
        size, micros = MICROSECONDS[unit], "toUnixTimestamp64Micro({})"
        count = f"toInt64(floor({micros} / {size}))" if size > 1 else micros
    elif week_start(unit) is not None:
        days = f"toInt64(toDate32({_truncation(unit, node, '{}')}))"
        return f"intDiv({days.format('{0}')} - {days.format('{1}')}, 7)"
    elif unit in _UNIT_COUNTS:
        count = _UNIT_COUNTS[unit]
    else:
        unsupported(node, f"The unit {unit}")
    return f"({count.format('{0}')} - {count.format('{1}')})"


def _interval_of_parts(parts: list[tuple[str, str]]) -> exp.Expr:
    months = sum(float(count) * _MONTHS[unit] for unit, count in parts if unit in _MONTHS)
    days = sum(float(count) for unit, count in parts if unit in _DAYS)
    clock = [(unit, count) for unit, count in parts if unit not in _MONTHS and unit not in _DAYS]
    micros = sum(float(count) * MICROSECONDS[unit] for unit, count in clock)
    return fragment(f"tuple(toInt64({int(months)}), toInt64({int(days)}), toInt64({round(micros)}))")


_SIZE: Final = "(@b.2 * 86400000000 + @b.3)"
_BEYOND: Final = f"positiveModulo(toUnixTimestamp64Micro(@a) - toUnixTimestamp64Micro(@c), {_SIZE})"
_MONTH_COUNT: Final = "(toInt64(toYear({0})) * 12 + toMonth({0}))".format
_MONTHS_APART: Final = f"({_MONTH_COUNT('@a')} - {_MONTH_COUNT('@c')})"
_BUCKET_MONTH: Final = f"addMonths(@c, {_MONTHS_APART} - positiveModulo({_MONTHS_APART}, @b.1))"

_TIMES: Final = Times(
    words=WORDS,
    zoned=wall_clock_in,
    unzoned=first_timestamp_in,
    day_of=TIME_TEXT.sql.day_of,
    to_kind=_to_kind,
    truncation=_truncation,
    truncated_time=_truncated_time,
    since_unit="positiveModulo(toUnixTimestamp64Micro({{1}}), {})".format,
    boundaries=_boundaries,
    first_origin="toDateTime64('1950-01-01 00:00:00', 6)",
    bucket=f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) - {_BEYOND})",
    bucket_of_months=f"if({_BUCKET_MONTH} > @a, addMonths({_BUCKET_MONTH}, -@b.1), {_BUCKET_MONTH})",
    span=span,
    of_parts=_interval_of_parts,
    of_text=lambda node: unsupported(node, "An interval without a unit"),
    no_interval="tuple(toInt64(0), toInt64(0), toInt64(0))",
)


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
    # Times are rounded down, also those before 1970.
    exp.UnixSeconds: _FLOORED("toUnixTimestamp64Micro({0})", 1_000_000),
    exp.UnixMillis: _FLOORED("toUnixTimestamp64Micro({0})", 1_000),
    exp.UnixMicros: "toUnixTimestamp64Micro({0})",
    exp.UnixDate: "toInt64({0})",
    exp.DateFromUnixDate: "addDays(toDate32('1970-01-01'), {0})",
}


RULES = RuleSet(
    nodes={
        **rules_from_templates(WORDS, TIMES, _TEMPLATES).nodes,
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
        **_TIMES.rules().nodes,
        **shifting_rules(_add_or_subtract("+"), _add_or_subtract("-"), _sum).nodes,
        exp.LastDay: _last_day,
        exp.GenerateDateArray: _series(Kind.DATE),
        exp.GenerateTimestampArray: _series(Kind.TIMESTAMP),
    },
    by_name=_TIMES.rules().by_name,
)
