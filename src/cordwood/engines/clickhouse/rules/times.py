"""Rules for times: INTERVAL values, sums and differences, truncation, buckets, parts, epochs and generated arrays.

In ClickHouse, an INTERVAL is represented by a tuple of months, days and microseconds.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    TYPE_NAME_BY_KIND,
    convert_implicitly,
    fail_if_sql,
    fill_template,
    first_timestamp_of_wall_clock,
    native_cast,
    text_to_time,
    time_to_utc_wall_clock,
    timestamp_to_utc_wall_clock,
    to_zone_wall_clock,
)
from cordwood.engines.clickhouse.rules.numbers import NUMBER_RULES, checked_arithmetic
from cordwood.engines.clickhouse.rules.time_text import TIME_PRINTER
from cordwood.model.datatype import DATE_AND_TIME_KINDS, Kind
from cordwood.sql.datatypes import INTERVAL, kind_of, set_datatype
from cordwood.sql.lowering import (
    RAISED_ERROR_PREFIX,
    LoweringRule,
    RuleSet,
    fragment_node,
    quoted_literal_sql,
    raise_unsupported,
)
from cordwood.sql.nodes import Interval, constant_python_value
from cordwood.sql.rules.functions import (
    TIME_FUNCTIONS,
    CheckedTemplate,
    FunctionKey,
    FunctionTemplate,
    rules_from_templates,
)
from cordwood.sql.rules.times import (
    MICROSECONDS_BY_UNIT,
    TimeRules,
    interval_count_sql,
    require_supported_date_part,
    time_addition_rules,
    time_unit_name,
    week_start_days_after_monday,
)

_DAYS_PER_UNIT: Final = {"DAY": 1, "WEEK": 7, "ISOWEEK": 7}
_MONTHS_PER_UNIT: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "ISOYEAR": 12}


def interval_of(count: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    """Return an INTERVAL of `count` units, as a tuple of months, days and microseconds."""
    if unit in _MONTHS_PER_UNIT:
        template = f"tuple({{0}} * {_MONTHS_PER_UNIT[unit]}, toInt64(0), toInt64(0))"
    elif unit in _DAYS_PER_UNIT:
        template = f"tuple(toInt64(0), {{0}} * {_DAYS_PER_UNIT[unit]}, toInt64(0))"
    elif unit in MICROSECONDS_BY_UNIT:
        template = f"tuple(toInt64(0), toInt64(0), toInt64({{0}} * {MICROSECONDS_BY_UNIT[unit]}))"
    else:
        raise_unsupported(node, f"The unit {unit}")
    return set_datatype(fragment_node(template, _interval_unit_count(count), operation=Interval(unit)), INTERVAL)


def _interval_unit_count(count: exp.Expr) -> exp.Expr:
    """Return the number of units in an INTERVAL as a number, because sqlglot represents a constant number as a text."""
    value = constant_python_value(count)
    if value is None:
        return fragment_node("toInt64({0})", convert_implicitly(count, Kind.INT64))
    if not isinstance(value, str):
        return count
    number = interval_count_sql(value, count)
    return fragment_node(f"toFloat64({float(number)})" if "." in number else f"toInt64({int(number)})")


def _add_or_subtract_rule(sign: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        if kind_of(node.expression) is Kind.INTERVAL:
            return _add_interval(convert_implicitly(node.this, kind), sign, node.expression, kind)
        return _add_time_units(node, sign, time_unit_name(node.args.get("unit")), kind)

    return rule


def _add_time_units(node: exp.Expr, sign: str, unit: str, kind: Kind) -> exp.Expr:
    value, count = convert_implicitly(node.this, kind), _interval_unit_count(node.expression)
    minus = "-" if sign == "-" else ""
    if kind is Kind.TIME:
        return _add_micros_to_time(
            value, f"{sign} @b * {MICROSECONDS_BY_UNIT.get(unit) or raise_unsupported(node, f'The unit {unit}')}", count
        )
    if unit in _MONTHS_PER_UNIT:
        sum_ = f"addMonths(@a, {minus}(@b * {_MONTHS_PER_UNIT[unit]}))"
    elif unit in _DAYS_PER_UNIT:
        sum_ = f"addDays(@a, {minus}(@b * {_DAYS_PER_UNIT[unit]}))"
    elif unit in MICROSECONDS_BY_UNIT:
        sum_ = f"addMicroseconds(@a, {minus}(@b * {MICROSECONDS_BY_UNIT[unit]}))"
    else:
        raise_unsupported(node, f"The unit {unit}")
    return fill_template(sum_, value, count)


def _add_micros_to_time(value: exp.Expr, change: str, count: exp.Expr) -> exp.Expr:
    """Return a TIME plus or minus a number of microseconds, modulo 24 hours.

    `change` is SQL for the sign followed by the number of microseconds; in it, `@b` is `count`.
    """
    micros = f"positiveModulo(toUnixTimestamp64Micro(CAST(@a, 'Nullable(DateTime64(6))')) {change}, 86400000000)"
    return fill_template(f"CAST(fromUnixTimestamp64Micro(toInt64({micros})), 'Nullable(Time64(6))')", value, count)


def _add_interval(value: exp.Expr, sign: str, interval: exp.Expr, kind: Kind) -> exp.Expr:
    """Return a time plus or minus an INTERVAL."""
    minus = "-" if sign == "-" else ""
    if kind is Kind.TIME:
        return _add_micros_to_time(value, f"{sign} @b.3", interval)
    value = timestamp_to_utc_wall_clock(value) if kind is Kind.DATE else value
    return fill_template(
        f"addMicroseconds(addDays(addMonths(@a, {minus}@b.1), {minus}@b.2), {minus}@b.3)", value, interval
    )


def _truncation_template(unit: str, node: exp.Expr, name: str = "@a") -> str:
    """Return the template that truncates the date and time `name` to the unit."""
    week_offset = week_start_days_after_monday(unit)
    day = f"toDate32({name})"
    if week_offset is not None:
        return _day_to_wall_clock_sql(
            f"toMonday({day})"
            if not week_offset
            else f"addDays(toMonday(addDays({day}, -{week_offset})), {week_offset})"
        )
    if unit in _TRUNCATION_FUNCTION_BY_UNIT:
        return _day_to_wall_clock_sql(f"{_TRUNCATION_FUNCTION_BY_UNIT[unit]}({day})")
    if unit not in MICROSECONDS_BY_UNIT:
        raise_unsupported(node, f"The unit {unit}")
    size = MICROSECONDS_BY_UNIT[unit]
    micros = f"toUnixTimestamp64Micro({name})"
    return name if size == 1 else f"fromUnixTimestamp64Micro({micros} - positiveModulo({micros}, {size}))"


def _day_to_wall_clock_sql(day: str) -> str:
    return f"CAST({day}, 'Nullable(DateTime64(6))')"


_TRUNCATION_FUNCTION_BY_UNIT: Final = {
    "MONTH": "toStartOfMonth",
    "QUARTER": "toStartOfQuarter",
    "YEAR": "toStartOfYear",
    "ISOYEAR": "toStartOfISOYear",
}


def _wall_clock_to_kind(moment: exp.Expr, kind: Kind) -> exp.Expr:
    return native_cast(moment, kind) if kind in (Kind.DATE, Kind.TIMESTAMP) else moment


def _translate_last_day(node: exp.Expr) -> exp.Expr:
    unit = time_unit_name(node.args.get("unit"), "MONTH")
    value = convert_implicitly(node.this, Kind.DATE) if kind_of(node.this) is Kind.STRING else node.this
    week_offset = week_start_days_after_monday(unit)
    if week_offset is not None:
        ending = f"addDays({_truncation_template(unit, node)}, 6)"
    elif unit == "ISOYEAR":
        ending = f"addDays({_truncation_template(unit, node, f'addDays({_truncation_template(unit, node)}, 374)')}, -1)"
    elif unit in _MONTHS_PER_UNIT:
        # Go to the last month of the unit first, and then to its last day. Going back from the first day of the next
        # unit is impossible at the end of 9999, because ClickHouse's calendar ends with that year.
        ending = (
            f"toLastDayOfMonth(addMonths(toDate32({_truncation_template(unit, node)}), {_MONTHS_PER_UNIT[unit] - 1}))"
        )
    else:
        raise_unsupported(node, f"The unit {unit}")
    return native_cast(fill_template(ending, time_to_utc_wall_clock(value)), Kind.DATE)


_PERIOD_NUMBER_SQL_BY_UNIT: Final = {
    "MONTH": "(toInt64(toYear({0})) * 12 + toMonth({0}))",
    "QUARTER": "(toInt64(toYear({0})) * 4 + toQuarter({0}))",
    "YEAR": "toInt64(toYear({0}))",
    "ISOYEAR": "toInt64(toISOYear(toDate32({0})))",
}


def _generate_array_rule(kind: Kind) -> LoweringRule:
    """Return the rule that generates an array of times from start to end by an interval, forward or backward."""

    def rule(node: exp.Expr) -> exp.Expr:
        start, end = (convert_implicitly(node.args[key], kind) for key in ("start", "end"))
        step = node.args.get("step") or fragment_node("tuple(toInt64(0), toInt64(1), toInt64(0))")
        name = quoted_literal_sql(f"Nullable({TYPE_NAME_BY_KIND[kind]})")
        start_wall = "CAST(@a, 'Nullable(DateTime64(6))')" if kind is Kind.DATE else "@a"
        element = f"CAST(addMicroseconds(addDays(addMonths({start_wall}, _i * @c.1), _i * @c.2), _i * @c.3), {name})"
        is_in_range = f"if({_STEP_MICROS_SQL} > 0, _x <= @b, _x >= @b)"
        series = f"arrayFilter(_x -> {is_in_range}, arrayMap(_i -> {element}, range({_STEP_COUNT_SQL})))"
        empty = f"CAST([], {quoted_literal_sql(f'Array(Nullable({TYPE_NAME_BY_KIND[kind]}))')})"
        check = f"throwIf({_STEP_MICROS_SQL} = 0, {quoted_literal_sql(RAISED_ERROR_PREFIX + 'Sequence step cannot be 0')}) = 1"
        return fill_template(f"if(isNull(@a) OR isNull(@b) OR {check}, {empty}, {series})", start, end, step)

    return rule


# The length of a step in microseconds, with 28 days for each month. The length is used to compute the number of steps.
# Most months are longer, so the number may be too large; elements beyond the end are filtered out.
_STEP_MICROS_SQL: Final = "(@c.1 * 2419200000000 + @c.2 * 86400000000 + @c.3)"
_MICROS_SINCE_EPOCH_SQL: Final = "toUnixTimestamp64Micro(CAST({0}, 'Nullable(DateTime64(6))'))"
_STEP_COUNT_SQL: Final = (
    f"toUInt64(greatest(0, intDiv(assumeNotNull({_MICROS_SINCE_EPOCH_SQL.format('@b')} - {_MICROS_SINCE_EPOCH_SQL.format('@a')}),"
    f" if({_STEP_MICROS_SQL} = 0, 1, {_STEP_MICROS_SQL})) + 1))"
)


def _translate_addition(node: exp.Expr) -> exp.Expr:
    """Translate `+` and `-` of times, intervals and numbers."""
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(node.this), kind_of(node.expression))
    if Kind.INTERVAL in kinds:
        return _add_or_subtract_interval(node.this, node.expression, sign)
    if kinds in _DAY_SUM_TEMPLATE_BY_KINDS:
        return fragment_node(_DAY_SUM_TEMPLATE_BY_KINDS[kinds].format(sign=sign), node.this, node.expression)
    if kinds[0] == kinds[1] and kinds[0] in DATE_AND_TIME_KINDS and sign == "-":
        return _interval_between(node.this, node.expression, kinds[0])
    return checked_arithmetic(node, sign, *NUMBER_RULES.to_number_operands(node))


_DAY_SUM_TEMPLATE_BY_KINDS: Final[dict[tuple[Kind | None, Kind | None], str]] = {
    (Kind.DATE, Kind.INT64): "addDays({{0}}, 0 {sign} {{1}})",
    (Kind.INT64, Kind.DATE): "addDays({{1}}, {{0}})",
}


def _add_or_subtract_interval(left: exp.Expr, right: exp.Expr, sign: str) -> exp.Expr:
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind is right_kind:
        return fragment_node(f"tuple{'Minus' if sign == '-' else 'Plus'}({{0}}, {{1}})", left, right)
    if left_kind is Kind.INTERVAL:
        return _add_interval(right, sign, left, right_kind or Kind.TIMESTAMP)
    return _add_interval(left, sign, right, left_kind or Kind.TIMESTAMP)


def _interval_between(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment_node("tuple(toInt64(0), toInt64(toInt64({0}) - toInt64({1})), toInt64(0))", left, right)
    left, right = (native_cast(side, Kind.DATETIME) for side in (left, right))
    microseconds = "toUnixTimestamp64Micro({0}) - toUnixTimestamp64Micro({1})"
    return fragment_node(f"tuple(toInt64(0), toInt64(0), {microseconds})", left, right)


def _truncate_time_of_day(value: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    return native_cast(fill_template(_truncation_template(unit, node), native_cast(value, Kind.DATETIME)), Kind.TIME)


def _count_boundaries_sql(unit: str, node: exp.Expr) -> str:
    if unit in MICROSECONDS_BY_UNIT:
        size, micros = MICROSECONDS_BY_UNIT[unit], "toUnixTimestamp64Micro({})"
        count = f"toInt64(floor({micros} / {size}))" if size > 1 else micros
    elif week_start_days_after_monday(unit) is not None:
        days = f"toInt64(toDate32({_truncation_template(unit, node, '{}')}))"
        return f"intDiv({days.format('{0}')} - {days.format('{1}')}, 7)"
    elif unit in _PERIOD_NUMBER_SQL_BY_UNIT:
        count = _PERIOD_NUMBER_SQL_BY_UNIT[unit]
    else:
        raise_unsupported(node, f"The unit {unit}")
    return f"({count.format('{0}')} - {count.format('{1}')})"


def _interval_from_parts(parts: list[tuple[str, str]]) -> exp.Expr:
    months = sum(float(count) * _MONTHS_PER_UNIT[unit] for unit, count in parts if unit in _MONTHS_PER_UNIT)
    days = sum(float(count) for unit, count in parts if unit in _DAYS_PER_UNIT)
    clock = [(unit, count) for unit, count in parts if unit not in _MONTHS_PER_UNIT and unit not in _DAYS_PER_UNIT]
    micros = sum(float(count) * MICROSECONDS_BY_UNIT[unit] for unit, count in clock)
    return fragment_node(f"tuple(toInt64({int(months)}), toInt64({int(days)}), toInt64({round(micros)}))")


_BUCKET_LENGTH_MICROS_SQL: Final = "(@b.2 * 86400000000 + @b.3)"
_MICROS_INTO_BUCKET_SQL: Final = (
    f"positiveModulo(toUnixTimestamp64Micro(@a) - toUnixTimestamp64Micro(@c), {_BUCKET_LENGTH_MICROS_SQL})"
)
_month_number_sql: Final = "(toInt64(toYear({0})) * 12 + toMonth({0}))".format
_MONTHS_SINCE_BUCKET_ORIGIN_SQL: Final = f"({_month_number_sql('@a')} - {_month_number_sql('@c')})"
_MONTH_BUCKET_START_SQL: Final = (
    f"addMonths(@c, {_MONTHS_SINCE_BUCKET_ORIGIN_SQL} - positiveModulo({_MONTHS_SINCE_BUCKET_ORIGIN_SQL}, @b.1))"
)

_TIME_RULES: Final = TimeRules(
    common_sql=COMMON_SQL,
    to_zone_wall_clock=to_zone_wall_clock,
    from_zone_wall_clock=first_timestamp_of_wall_clock,
    time_to_wall_clock=TIME_PRINTER.engine_sql.time_to_wall_clock,
    wall_clock_to_kind=_wall_clock_to_kind,
    truncation_template=_truncation_template,
    truncate_time_of_day=_truncate_time_of_day,
    micros_since_unit_start_template="positiveModulo(toUnixTimestamp64Micro({{1}}), {})".format,
    unit_boundary_count_template=_count_boundaries_sql,
    default_bucket_origin="toDateTime64('1950-01-01 00:00:00', 6)",
    bucket_template=f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) - {_MICROS_INTO_BUCKET_SQL})",
    month_bucket_template=f"if({_MONTH_BUCKET_START_SQL} > @a, addMonths({_MONTH_BUCKET_START_SQL}, -@b.1), {_MONTH_BUCKET_START_SQL})",
    interval_of_units=interval_of,
    interval_from_parts=_interval_from_parts,
    interval_from_text_rule=lambda node: raise_unsupported(node, "An interval without a unit"),
    zero_interval_sql="tuple(toInt64(0), toInt64(0), toInt64(0))",
)


_MICROS_OF_SECOND_SQL: Final = "positiveModulo(toUnixTimestamp64Micro({0}), 1000000)"
_EXTRACT_TEMPLATE_BY_PART: Final = {
    "DAYOFWEEK": "toDayOfWeek({0}) % 7 + 1",
    "DAYOFYEAR": "toDayOfYear({0})",
    "ISOWEEK": "toISOWeek(toDate32({0}))",
    "ISOYEAR": "toISOYear(toDate32({0}))",
    "MILLISECOND": f"intDiv({_MICROS_OF_SECOND_SQL}, 1000)",
    "MICROSECOND": _MICROS_OF_SECOND_SQL,
    "YEAR": "toYear({0})",
    "QUARTER": "toQuarter({0})",
    "MONTH": "toMonth({0})",
    "DAY": "toDayOfMonth({0})",
    "HOUR": "toHour({0})",
    "MINUTE": "toMinute({0})",
    "SECOND": "toSecond({0})",
}
_KIND_BY_EXTRACTED_PART: Final = {"DATE": Kind.DATE, "TIME": Kind.TIME, "DATETIME": Kind.DATETIME}
_INTERVAL_EXTRACT_TEMPLATE_BY_PART: Final = {
    "YEAR": "intDiv({0}.1, 12)",
    "MONTH": "{0}.1 % 12",
    "DAY": "{0}.2",
    "HOUR": "intDiv({0}.3, 3600000000)",
    "MINUTE": "intDiv({0}.3, 60000000) % 60",
    "SECOND": "intDiv({0}.3, 1000000) % 60",
    "MILLISECOND": "intDiv({0}.3, 1000) % 1000",
    "MICROSECOND": "{0}.3 % 1000000",
}


def _translate_extract(node: exp.Expr) -> exp.Expr:
    part, value = require_supported_date_part(node), node.expression
    if kind_of(value) is Kind.INTERVAL:
        if part not in _INTERVAL_EXTRACT_TEMPLATE_BY_PART:
            raise_unsupported(node, f"The part {part}")
        return fragment_node(f"toInt64({_INTERVAL_EXTRACT_TEMPLATE_BY_PART[part]})", value)
    wall = _wall_clock_of(value)
    if part in _KIND_BY_EXTRACTED_PART:
        return native_cast(wall, _KIND_BY_EXTRACTED_PART[part])
    week_offset = week_start_days_after_monday(part)
    if part not in _EXTRACT_TEMPLATE_BY_PART and week_offset is not None:
        return fragment_node(
            f"toInt64(intDiv(toDayOfYear({{0}}) + 6 - (toDayOfWeek({{0}}) - 1 - {week_offset} + 7) % 7, 7))", wall
        )
    if part not in _EXTRACT_TEMPLATE_BY_PART:
        raise_unsupported(node, f"The part {part}")
    return fragment_node(f"toInt64({_EXTRACT_TEMPLATE_BY_PART[part]})", wall)


def _wall_clock_of(value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.AtTimeZone):
        return to_zone_wall_clock(convert_implicitly(value.this, Kind.TIMESTAMP), value.args["zone"])
    return native_cast(value, Kind.DATETIME) if kind_of(value) is Kind.TIME else time_to_utc_wall_clock(value)


def _translate_timestamp(node: exp.Expr) -> exp.Expr:
    """Translate TIMESTAMP(x[, zone]); the zone applies if x is a date and time without a zone, or a text."""
    value, zone = node.this, node.args.get("zone")
    if kind_of(value) is Kind.STRING:
        if zone is None:
            return text_to_time(node, value, Kind.TIMESTAMP)
        return first_timestamp_of_wall_clock(text_to_time(node, value, Kind.DATETIME), zone)
    if zone is None:
        return convert_implicitly(value, Kind.TIMESTAMP)
    return first_timestamp_of_wall_clock(time_to_utc_wall_clock(value), zone)


def _translate_datetime(node: exp.Expr) -> exp.Expr:
    """Translate DATETIME(date, time), DATETIME(timestamp, zone) and DATETIME of a single value."""
    value, other = node.this, node.args.get("expression")
    if kind_of(value) is Kind.STRING and other is None:
        return text_to_time(node, value, Kind.DATETIME)
    if isinstance(node, exp.TsOrDsToDatetime) or other is None:
        return convert_implicitly(value, Kind.DATETIME)
    if kind_of(other) is Kind.TIME:
        day = timestamp_to_utc_wall_clock(convert_implicitly(value, Kind.DATE))
        return fragment_node(
            "addMicroseconds({0}, toUnixTimestamp64Micro(CAST({1}, 'Nullable(DateTime64(6))')))", day, other
        )
    return to_zone_wall_clock(convert_implicitly(value, Kind.TIMESTAMP), other)


def _translate_date(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if node.args.get("expressions"):
        raise_unsupported(node, "DATE with these arguments")
    if kind_of(value) is Kind.STRING:
        return text_to_time(node, value, Kind.DATE)
    if zone is None:
        return convert_implicitly(value, Kind.DATE)
    return native_cast(to_zone_wall_clock(convert_implicitly(value, Kind.TIMESTAMP), zone), Kind.DATE)


def _translate_time(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if zone is not None:
        return native_cast(to_zone_wall_clock(convert_implicitly(value, Kind.TIMESTAMP), zone), Kind.TIME)
    if kind_of(value) in (Kind.STRING, Kind.TIME):
        return convert_implicitly(value, Kind.TIME)
    return native_cast(time_to_utc_wall_clock(value), Kind.TIME)


def _translate_unix_to_time(node: exp.Expr) -> exp.Expr:
    scale = node.args.get("scale")
    digits = int(str(scale.meta_get("constant", scale.this))) if scale is not None else 0
    count = convert_implicitly(node.this, Kind.INT64)
    factor = 10 ** (6 - digits)
    micros = "@a" if factor == 1 else f"@a * {factor}"
    is_invalid = f"(toInt128(@a) * {factor} NOT BETWEEN -62135596800000000 AND 253402300799999999)"
    return fill_template(
        fail_if_sql(node, is_invalid, "timestamp out of range", f"fromUnixTimestamp64Micro(toInt64({micros}), 'UTC')"),
        count,
    )


_NOW_SQL: Final = "now64(6, 'UTC')"


def _current_time_rule(kind: Kind) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        moment = fragment_node(_NOW_SQL)
        if kind is Kind.TIMESTAMP:
            return moment
        return native_cast(to_zone_wall_clock(moment, zone), kind)

    return rule


_floored_division_sql: Final = "intDiv({0} - positiveModulo({0}, {1}), {1})".format
_DATE_FROM_PARTS_SQL: Final = "makeDate32(@a, @b, @c)"
_TEMPLATE_BY_FUNCTION: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    exp.DateFromParts: CheckedTemplate(
        f"({_DATE_FROM_PARTS_SQL} IS NOT NULL AND (toDayOfMonth({_DATE_FROM_PARTS_SQL}) != @c OR toMonth({_DATE_FROM_PARTS_SQL}) != @b OR toYear({_DATE_FROM_PARTS_SQL}) != @a))",
        _DATE_FROM_PARTS_SQL,
    ),
    exp.TimestampFromParts: CheckedTemplate(
        "(@b NOT BETWEEN 1 AND 12 OR @c NOT BETWEEN 1 AND 31 OR @d > 23 OR @e > 59 OR @f > 60)",
        f"addSeconds(CAST({_DATE_FROM_PARTS_SQL}, 'Nullable(DateTime64(6))'), @d * 3600 + @e * 60 + @f)",
    ),
    exp.TimeFromParts: CheckedTemplate(
        "(@a NOT BETWEEN 0 AND 23 OR @b NOT BETWEEN 0 AND 59 OR @c NOT BETWEEN 0 AND 59)",
        "CAST(fromUnixTimestamp64Micro(toInt64(@a * 3600 + @b * 60 + @c) * 1000000), 'Nullable(Time64(6))')",
    ),
    # UNIX_SECONDS and UNIX_MILLIS round down, also for times before 1970.
    exp.UnixSeconds: _floored_division_sql("toUnixTimestamp64Micro({0})", 1_000_000),
    exp.UnixMillis: _floored_division_sql("toUnixTimestamp64Micro({0})", 1_000),
    exp.UnixMicros: "toUnixTimestamp64Micro({0})",
    exp.UnixDate: "toInt64({0})",
    exp.DateFromUnixDate: "addDays(toDate32('1970-01-01'), {0})",
}


RULES = RuleSet(
    by_node_class={
        **rules_from_templates(COMMON_SQL, TIME_FUNCTIONS, _TEMPLATE_BY_FUNCTION).by_node_class,
        exp.Extract: _translate_extract,
        **dict.fromkeys((exp.Timestamp, exp.TsOrDsToTimestamp), _translate_timestamp),
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _translate_datetime),
        **dict.fromkeys((exp.Date, exp.TsOrDsToDate), _translate_date),
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _translate_time),
        exp.UnixToTime: _translate_unix_to_time,
        exp.CurrentTimestamp: _current_time_rule(Kind.TIMESTAMP),
        exp.CurrentDate: _current_time_rule(Kind.DATE),
        exp.CurrentDatetime: _current_time_rule(Kind.DATETIME),
        exp.CurrentTime: _current_time_rule(Kind.TIME),
        **_TIME_RULES.rules().by_node_class,
        **time_addition_rules(
            _add_or_subtract_rule("+"), _add_or_subtract_rule("-"), _translate_addition
        ).by_node_class,
        exp.LastDay: _translate_last_day,
        exp.GenerateDateArray: _generate_array_rule(Kind.DATE),
        exp.GenerateTimestampArray: _generate_array_rule(Kind.TIMESTAMP),
    },
    by_function_name=_TIME_RULES.rules().by_function_name,
)
