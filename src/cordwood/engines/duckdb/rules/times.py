"""Rules for functions of times: INTERVAL values, sums, differences, truncation, buckets, parts, epochs, arrays."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    TYPE_NAME_BY_KIND,
    convert_implicitly,
    failure_sql,
    fill_fallible_template,
    fill_template,
    first_timestamp_of_wall_clock,
    from_zone_wall_clock,
    range_checked_time_sql,
    text_to_time,
    time_to_utc_wall_clock,
    timestamp_to_utc_wall_clock,
    to_zone_wall_clock,
    wall_clock_to_timestamp,
)
from cordwood.engines.duckdb.rules.time_text import TIME_PRINTER
from cordwood.model.datatype import DATE_AND_TIME_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import INTERVAL, kind_of, set_datatype
from cordwood.sql.lowering import LoweringRule, RuleSet, fragment_node, raise_unsupported, string_literal_node
from cordwood.sql.nodes import NOW_SLOT_NAME, Interval, constant_int, constant_python_value, is_null
from cordwood.sql.rules.functions import (
    TIME_FUNCTIONS,
    CheckedTemplate,
    FunctionKey,
    FunctionTemplate,
    max_generated_elements,
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

_INTERVAL_TEMPLATE_BY_UNIT: Final = {
    "MICROSECOND": "to_microseconds({0})",
    "MILLISECOND": "to_milliseconds({0})",
    "SECOND": "to_seconds({0})",
    "MINUTE": "to_minutes({0})",
    "HOUR": "to_hours({0})",
    "DAY": "to_days({0}::INT)",
    "WEEK": "to_weeks({0}::INT)",
    "MONTH": "to_months({0}::INT)",
    "QUARTER": "to_quarters({0}::INT)",
    "YEAR": "to_years({0}::INT)",
}


def interval_of(count: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    """Return an INTERVAL that is `count` times `unit`."""
    if unit not in _INTERVAL_TEMPLATE_BY_UNIT:
        raise_unsupported(node, f"The unit {unit}")
    return set_datatype(
        fragment_node(_INTERVAL_TEMPLATE_BY_UNIT[unit], _interval_count(count), operation=Interval(unit)), INTERVAL
    )


def _interval_count(count: exp.Expr) -> exp.Expr:
    """Return the number of units of an INTERVAL as a number, because the parser returns a literal number as text."""
    if isinstance(count, exp.Literal) and count.is_string:
        return exp.Literal.number(interval_count_sql(count.this, count))
    return convert_implicitly(count, Kind.INT64)


def _add_or_subtract_rule(sign: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        if isinstance(node.expression, exp.Interval):
            raise_unsupported(node, "An interval of several units")
        if is_null(node.this):
            return fragment_node(f"CAST(NULL AS {TYPE_NAME_BY_KIND[kind]})")
        return _add_units(node, sign, kind)

    return rule


def _add_units(node: exp.Expr, sign: str, kind: Kind) -> exp.Expr:
    value, unit = convert_implicitly(node.this, kind), time_unit_name(node.args.get("unit"))
    if kind is Kind.TIMESTAMP and unit in MICROSECONDS_BY_UNIT:
        # Add microseconds as integers, because DuckDB's addition of an interval to a TIMESTAMPTZ is much slower.
        sum_ = f"make_timestamptz(epoch_us(@a) {sign} @b * {MICROSECONDS_BY_UNIT[unit]}::BIGINT)"
        return fill_fallible_template(
            node, _range_checked_sum_sql(node, sum_, kind), value, _interval_count(node.expression)
        )
    if kind is Kind.DATE and unit in ("DAY", "WEEK"):
        days = "@b * 7" if unit == "WEEK" else "@b"
        sum_ = _range_checked_sum_sql(node, f"@a {sign} CAST({days} AS INT)", kind)
        return fill_fallible_template(node, sum_, value, _interval_count(node.expression))
    start = time_to_utc_wall_clock(value) if kind is Kind.TIMESTAMP else value
    # The range of a DATE's sum is checked as for a DATETIME, because DuckDB's sum of a date and months is a TIMESTAMP.
    sum_ = _range_checked_sum_sql(node, f"@a {sign} @b", kind if kind is Kind.TIME else Kind.DATETIME)
    return _wall_clock_to_kind(
        fill_fallible_template(node, sum_, start, interval_of(node.expression, unit, node)), kind
    )


def _range_checked_sum_sql(node: exp.Expr, sum_: str, kind: Kind) -> str:
    """Return `sum_`, the template of a sum, with a check that the result is in the range of the calendar.

    The check is omitted if a small interval is added to the current time, because an expression that may fail prevents
    DuckDB from skipping row groups in a scan.
    """
    count = constant_python_value(node.expression)
    is_near = isinstance(count, (int, str)) and len(str(count)) < _MIN_UNSAFE_INTERVAL_DIGITS
    return sum_ if is_near and _is_derived_from_current_time(node.this) else range_checked_time_sql(node, sum_, kind)


def _is_derived_from_current_time(value: exp.Expr) -> bool:
    slots = [slot for slot in value.find_all(exp.Parameter) if slot.name == NOW_SLOT_NAME]
    return bool(slots) and value.find(exp.Column) is None


# If the number of units has fewer digits than this, the current time plus these units is before the year 10000,
# whatever the unit is.
_MIN_UNSAFE_INTERVAL_DIGITS: Final = 4


def _truncation_template(unit: str, node: exp.Expr) -> str:
    """Return the template that truncates the wall-clock time `@a` to the start of the unit."""
    week_offset = week_start_days_after_monday(unit)
    if week_offset is not None:
        return (
            f"date_trunc('week', @a - to_days({week_offset})) + to_days({week_offset})"
            if week_offset
            else "date_trunc('week', @a)"
        )
    if unit == "ISOYEAR":
        return "date_trunc('week', make_date(isoyear(@a), 1, 4)::TIMESTAMP)"
    if unit not in _DATE_TRUNC_UNITS:
        raise_unsupported(node, f"The unit {unit}")
    return f"date_trunc('{unit.lower()}', @a)"


_DATE_TRUNC_UNITS: Final = frozenset((*MICROSECONDS_BY_UNIT, "MONTH", "QUARTER", "YEAR"))


# The microseconds from 0001-01-01 to 1970-01-01, which are a whole number of days. They are added to a time before the
# operator `%`, so that its operand is not negative for times before 1970.
_MICROS_FROM_YEAR_1_TO_EPOCH: Final = 62_135_596_800_000_000


def _wall_clock_to_kind(moment: exp.Expr, kind: Kind) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment_node("{0}::DATE", moment)
    return wall_clock_to_timestamp(moment) if kind is Kind.TIMESTAMP else moment


def _translate_last_day(node: exp.Expr) -> exp.Expr:
    unit = time_unit_name(node.args.get("unit"), "MONTH")
    week_offset = week_start_days_after_monday(unit)
    day = time_to_utc_wall_clock(
        node.this if kind_of(node.this) is not Kind.STRING else convert_implicitly(node.this, Kind.DATE)
    )
    step = "to_days(7)" if week_offset is not None else _INTERVAL_SQL_BY_UNIT.get(unit)
    if step is None:
        raise_unsupported(node, f"The unit {unit}")
    if unit == "ISOYEAR":
        return fill_fallible_template(
            node, "CAST(date_trunc('week', make_date(isoyear(@a) + 1, 1, 4)) - to_days(1) AS DATE)", day
        )
    return fill_fallible_template(node, f"CAST({_truncation_template(unit, node)} + {step} - to_days(1) AS DATE)", day)


_INTERVAL_SQL_BY_UNIT: Final = {
    "MONTH": "to_months(1)",
    "QUARTER": "to_months(3)",
    "YEAR": "to_years(1)",
    "ISOYEAR": "",
}


# SQL for the start of a time's bucket if the bucket's width is in months. DuckDB's `time_bucket` is not used for such
# widths, because it ignores the day and time of the origin. `@a` is the time, `@b` the width, and `@c` the origin.
_BUCKET_WIDTH_MONTHS_SQL: Final = "(date_part('year', @b) * 12 + date_part('month', @b))"
_MONTHS_SINCE_ORIGIN_SQL: Final = "date_diff('month', @c, @a)"
_BUCKET_OFFSET_MONTHS_SQL: Final = f"({_MONTHS_SINCE_ORIGIN_SQL} - ({_MONTHS_SINCE_ORIGIN_SQL} % {_BUCKET_WIDTH_MONTHS_SQL} + {_BUCKET_WIDTH_MONTHS_SQL}) % {_BUCKET_WIDTH_MONTHS_SQL})"
_BUCKET_START_CANDIDATE_SQL: Final = f"@c + to_months({_BUCKET_OFFSET_MONTHS_SQL}::INT)"
_MONTH_BUCKET_START_SQL: Final = f"CASE WHEN {_BUCKET_START_CANDIDATE_SQL} > @a THEN @c + to_months(({_BUCKET_OFFSET_MONTHS_SQL} - {_BUCKET_WIDTH_MONTHS_SQL})::INT) ELSE {_BUCKET_START_CANDIDATE_SQL} END"


def _translate_generate_date_array(node: exp.Expr) -> exp.Expr:
    start, end = (time_to_utc_wall_clock(convert_implicitly(node.args[key], Kind.DATE)) for key in ("start", "end"))
    return _generate_time_array(
        node, start, end, node.args.get("step") or fragment_node("to_days(1)"), "(@a + _i * @c)::DATE"
    )


def _translate_generate_timestamp_array(node: exp.Expr) -> exp.Expr:
    start, end = (
        timestamp_to_utc_wall_clock(convert_implicitly(node.args[key], Kind.TIMESTAMP)) for key in ("start", "end")
    )
    return _generate_time_array(node, start, end, node.args["step"], "make_timestamptz(epoch_us(@a + _i * @c))")


# SQL for the length of the step `@c` in microseconds: of a positive step from 1 February, and of a negative step back
# from 1 March. February is the shortest month, so the number of steps that is computed from this length may be too
# high. `_generate_time_array` removes elements beyond the end.
_STEP_US, _STEP_BACK_US = (
    f"(epoch_us('2023-{month}-01'::TIMESTAMP + @c) - epoch_us('2023-{month}-01'::TIMESTAMP))" for month in ("02", "03")
)


def _generate_time_array(node: exp.Expr, start: exp.Expr, end: exp.Expr, step: exp.Expr, moment: str) -> exp.Expr:
    """Return SQL for a generated array, in which each element is the start plus a multiple of the step.

    The step is not added to the previous element, because months would then become wrong. For example, the elements
    after a shorter month would not return to the 31st day.
    """
    if any(is_null(node.args[key]) for key in ("start", "end")):
        return fragment_node("NULL")
    span = "(epoch_us((@b)::TIMESTAMP) - epoch_us((@a)::TIMESTAMP))"
    steps = f"greatest({span} // {_STEP_US}, {span} // {_STEP_BACK_US})"
    element_limit = max_generated_elements(start, end, step)
    too_large_failure = failure_sql(node, f"A generated array of more than {element_limit} elements")
    zero_step_failure = failure_sql(node, "The step of a generated array must not be 0")
    numbers = f"generate_series(0, CASE WHEN {steps} > {element_limit} THEN {too_large_failure} ELSE {steps} END)"
    numbers_in_range = f"list_filter({numbers}, lambda _i: CASE WHEN {_STEP_US} > 0 THEN @a + _i * @c <= @b ELSE @a + _i * @c >= @b END)"
    body = (
        f"CASE WHEN @a IS NULL OR @b IS NULL OR @c IS NULL THEN NULL WHEN {_STEP_US} = 0 THEN {zero_step_failure}"
        f" ELSE list_transform({numbers_in_range}, lambda _i: {moment}) END"
    )
    return fill_template(body, start, end, step)


_INTERVAL_MONTHS_SQL: Final = "(date_part('year', @a) * 12 + date_part('month', @a))"
_INTERVAL_MICROS_SQL: Final = (
    "(date_part('hour', @a) * 3600000000 + date_part('minute', @a) * 60000000 + date_part('microsecond', @a))"
)
# SQL for the text of an INTERVAL as BigQuery prints it: `Y-M D H:M:S`, in which each group has its own sign.
INTERVAL_TEXT_SQL: Final = (
    (
        "CASE WHEN @m < 0 THEN '-' ELSE '' END || (abs(@m) // 12) || '-' || (abs(@m) % 12) || ' ' || date_part('day', @a)"
        " || ' ' || CASE WHEN @s < 0 THEN '-' ELSE '' END || (abs(@s) // 3600000000) || ':' || (abs(@s) // 60000000 % 60)"
        " || ':' || (abs(@s) // 1000000 % 60) || CASE WHEN @s % 1000000 = 0 THEN ''"
        " WHEN @s % 1000 = 0 THEN printf('.%03d', abs(@s) // 1000 % 1000) ELSE printf('.%06d', abs(@s) % 1000000) END"
    )
    .replace("@m", _INTERVAL_MONTHS_SQL)
    .replace("@s", _INTERVAL_MICROS_SQL)
)


def _translate_addition(node: exp.Expr) -> exp.Expr:
    """Translate `+` and `-` between times, intervals and numbers."""
    left, right = node.this, node.expression
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(left), kind_of(right))
    if Kind.INTERVAL in kinds:
        sum_ = _add_interval(node, sign, kinds)
        return wall_clock_to_timestamp(sum_) if Kind.TIMESTAMP in kinds else sum_
    if kinds[0] == kinds[1] and kinds[0] in DATE_AND_TIME_KINDS:
        return _interval_between(left, right, kinds[0])
    if set(kinds) == {Kind.DATE, Kind.INT64}:
        return fill_template(
            range_checked_time_sql(node, f"@a {sign} @b", Kind.DATE), *map(_as_day_count, (left, right))
        )
    return type(node)(this=_variant_as_number(left), expression=_variant_as_number(right))


def _add_interval(node: exp.Expr, sign: str, kinds: tuple[Kind | None, Kind | None]) -> exp.Expr:
    """Add or subtract an interval; for a DATE or a TIMESTAMP (in UTC), the result is a DATETIME."""
    sides = (_timestamp_as_wall_clock(node.this), _timestamp_as_wall_clock(node.expression))
    if kinds[0] is kinds[1] or Kind.TIME in kinds:
        return fragment_node(f"{{0}} {sign} {{1}}", *sides)
    return fill_template(range_checked_time_sql(node, f"@a {sign} @b", Kind.DATETIME), *sides)


def _as_day_count(side: exp.Expr) -> exp.Expr:
    return fragment_node("{0}::INT", side) if kind_of(side) is Kind.INT64 else side


def _variant_as_number(side: exp.Expr) -> exp.Expr:
    return convert_implicitly(side, Kind.FLOAT64) if kind_of(side) is Kind.VARIANT else side


def _interval_between(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment_node("to_days(CAST({0} - {1} AS INT))", left, right)
    return fragment_node("to_microseconds(epoch_us({0}) - epoch_us({1}))", left, right)


def _timestamp_as_wall_clock(side: exp.Expr) -> exp.Expr:
    return timestamp_to_utc_wall_clock(side) if kind_of(side) is Kind.TIMESTAMP else side


def _truncate_time_of_day(value: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    if unit not in MICROSECONDS_BY_UNIT:
        raise_unsupported(node, f"The unit {unit}")
    return fragment_node(f"date_trunc('{unit.lower()}', '1970-01-01'::DATE + {{0}})::TIME", value)


def _count_boundaries_sql(unit: str, node: exp.Expr) -> str:
    if week_start_days_after_monday(unit) is not None:
        later, earlier = (_truncation_template(unit, node).replace("@a", side) for side in ("{0}", "{1}"))
        return f"date_diff('day', {earlier}, {later}) // 7"
    if unit == "ISOYEAR":
        return "isoyear({0}) - isoyear({1})"
    if unit not in _DATE_TRUNC_UNITS:
        raise_unsupported(node, f"The unit {unit}")
    return f"date_diff('{unit.lower()}', {{1}}, {{0}})"


def _interval_from_parts(parts: list[tuple[str, str]]) -> exp.Expr:
    template = " + ".join(f"INTERVAL {{{index}}} {unit}" for index, (unit, _) in enumerate(parts))
    return fragment_node(template, *(string_literal_node(count) for _, count in parts))


_TIME_RULES: Final = TimeRules(
    common_sql=COMMON_SQL,
    to_zone_wall_clock=to_zone_wall_clock,
    from_zone_wall_clock=from_zone_wall_clock,
    time_to_wall_clock=TIME_PRINTER.engine_sql.time_to_wall_clock,
    wall_clock_to_kind=_wall_clock_to_kind,
    truncation_template=_truncation_template,
    truncate_time_of_day=_truncate_time_of_day,
    micros_since_unit_start_template=f"((epoch_us({{{{1}}}}) + {_MICROS_FROM_YEAR_1_TO_EPOCH}) % {{}})".format,
    unit_boundary_count_template=_count_boundaries_sql,
    default_bucket_origin="TIMESTAMP '1950-01-01'",
    bucket_template="time_bucket(@b, @a, @c)",
    month_bucket_template=_MONTH_BUCKET_START_SQL,
    interval_of_units=interval_of,
    interval_from_parts=_interval_from_parts,
    interval_from_text_rule=lambda node: fragment_node("{0}::INTERVAL", node.this),
    zero_interval_sql="INTERVAL 0 DAY",
)


_EXTRACT_TEMPLATE_BY_PART: Final = {
    "DAYOFWEEK": "dayofweek({0}) + 1",
    "DAYOFYEAR": "dayofyear({0})",
    "ISOWEEK": "weekofyear({0})",
    "ISOYEAR": "isoyear({0})",
    "WEEK": "CAST(strftime({0}, '%U') AS BIGINT)",
    "WEEK(SUNDAY)": "CAST(strftime({0}, '%U') AS BIGINT)",
    "WEEK(MONDAY)": "CAST(strftime({0}, '%W') AS BIGINT)",
    "MILLISECOND": "millisecond({0}) % 1000",
    "MICROSECOND": "microsecond({0}) % 1000000",
    "DATE": "{0}::DATE",
    "TIME": "{0}::TIME",
    "DATETIME": "{0}",
    **{part: part.lower() + "({0})" for part in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")},
}


def _translate_extract(node: exp.Expr) -> exp.Expr:
    part, value = require_supported_date_part(node), node.expression
    if kind_of(value) is Kind.INTERVAL:
        return (
            fragment_node(_EXTRACT_TEMPLATE_BY_PART[part], value)
            if part in _EXTRACT_TEMPLATE_BY_PART
            else raise_unsupported(node, f"The part {part}")
        )
    if isinstance(value, exp.AtTimeZone):
        moment = convert_implicitly(value.this, Kind.TIMESTAMP)
        value = to_zone_wall_clock(moment, value.args["zone"])
    elif kind_of(value) is Kind.TIME:
        value = fragment_node("('1970-01-01'::DATE + {0})", value)
    else:
        value = time_to_utc_wall_clock(value)
    week_offset = week_start_days_after_monday(part)
    if part not in _EXTRACT_TEMPLATE_BY_PART and week_offset is not None:
        return fill_template(f"(dayofyear(@a) + 6 - (isodow(@a) - 1 - {week_offset} + 7) % 7) // 7", value)
    if part not in _EXTRACT_TEMPLATE_BY_PART:
        raise_unsupported(node, f"The part {part}")
    return fragment_node(_EXTRACT_TEMPLATE_BY_PART[part], value)


def _convert_argument(node: exp.Expr, kind: Kind) -> exp.Expr:
    """Convert the node's argument to the type `kind`; a text is parsed."""
    value = node.this
    return text_to_time(node, value, kind) if kind_of(value) is Kind.STRING else convert_implicitly(value, kind)


def _translate_timestamp(node: exp.Expr) -> exp.Expr:
    """Translate TIMESTAMP(x[, zone]); the zone applies to a text without a zone, and to a DATE or DATETIME."""
    value, zone = node.this, node.args.get("zone")
    if zone is None:
        return _convert_argument(node, Kind.TIMESTAMP)
    if kind_of(value) is Kind.STRING:
        return _parse_text_in_zone(node, value, zone)
    return first_timestamp_of_wall_clock(time_to_utc_wall_clock(value), zone)


def _parse_text_in_zone(node: exp.Expr, value: exp.Expr, zone: exp.Expr) -> exp.Expr:
    """Return SQL that parses a text as a TIMESTAMP; `zone` applies if the text does not contain a zone."""
    without_zone = fill_fallible_template(node, "CAST(@a AS TIMESTAMP)", copy_tree(value))
    with_zone = fill_fallible_template(node, "CAST(@a AS TIMESTAMPTZ)", copy_tree(value))
    names_zone = r"regexp_matches({0}, '\d.*([zZ]|[+-]\d{1,2}(:?\d\d)?|[A-Za-z]{3,}(/[A-Za-z_]+)*)\s*$')"
    template = names_zone.replace("\\d.*", "\\d:\\d.*")
    return fragment_node(
        f"CASE WHEN {template} THEN {{1}} ELSE {{2}} END",
        value,
        with_zone,
        first_timestamp_of_wall_clock(without_zone, zone),
    )


def _translate_datetime(node: exp.Expr) -> exp.Expr:
    """Translate DATETIME(x), DATETIME(date, time) and DATETIME(timestamp, zone)."""
    value, other = node.this, node.args.get("expression")
    if isinstance(node, exp.TsOrDsToDatetime) or other is None:
        return _convert_argument(node, Kind.DATETIME)
    if kind_of(other) is Kind.TIME:
        return fragment_node("({0} + {1})", convert_implicitly(value, Kind.DATE), other)
    return to_zone_wall_clock(convert_implicitly(value, Kind.TIMESTAMP), other)


def _translate_date(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if node.args.get("expressions"):
        raise_unsupported(node, "DATE with these arguments")
    if zone is None:
        return _convert_argument(node, Kind.DATE)
    return fragment_node("{0}::DATE", to_zone_wall_clock(convert_implicitly(value, Kind.TIMESTAMP), zone))


def _translate_time(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if zone is not None:
        return fragment_node("{0}::TIME", to_zone_wall_clock(convert_implicitly(value, Kind.TIMESTAMP), zone))
    return (
        _convert_argument(node, Kind.TIME)
        if kind_of(value) is Kind.STRING
        else fragment_node("{0}::TIME", time_to_utc_wall_clock(value))
    )


def _translate_unix_to_time(node: exp.Expr) -> exp.Expr:
    scale = node.args.get("scale")
    digits = constant_int(scale) or 0
    factor = 10 ** (6 - digits)
    count = convert_implicitly(node.this, Kind.INT64)
    moment = "make_timestamptz(@a)" if factor == 1 else f"make_timestamptz(@a * {factor})"
    size = 10**digits
    return fill_template(
        _count_checked_time_sql(
            node,
            Kind.TIMESTAMP,
            moment,
            (_MIN_UNIX_DATE_DAYS * 86_400 * size, (_MAX_UNIX_DATE_DAYS + 1) * 86_400 * size - 1),
        ),
        count,
    )


# The dates 0001-01-01 and 9999-12-31 as numbers of days since 1970-01-01.
_MIN_UNIX_DATE_DAYS: Final = -719_162
_MAX_UNIX_DATE_DAYS: Final = 2_932_896


def _count_checked_time_sql(node: exp.Expr, kind: Kind, moment: str, bounds: tuple[int, int]) -> str:
    """Return `moment`, the template of a time, with a check that `@a` is within `bounds`.

    `@a` is a number of time units since 1970. Without the check, DuckDB would fail with a message of its own if the
    time is out of range.
    """
    failure = failure_sql(node, f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31")
    return f"CASE WHEN @a NOT BETWEEN {bounds[0]} AND {bounds[1]} THEN {failure} ELSE {moment} END"


def _current_time_rule(template: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        return fragment_node(template, to_zone_wall_clock(fragment_node("now()"), zone))

    return rule


_floored_unix_time_sql: Final = "(epoch_us(@a) - (epoch_us(@a) % {0} + {0}) % {0}) // {0}".format
_TEMPLATE_BY_FUNCTION: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    exp.DateFromParts: "make_date(@a, @b, @c)",
    exp.TimestampFromParts: "make_timestamp(@a, @b, @c, @d, @e, @f::DOUBLE)",
    # The check is needed, because DuckDB's `make_time` accepts 24:00:00 and 23:59:60.
    exp.TimeFromParts: CheckedTemplate("@a > 23 OR @c > 59", "make_time(@a, @b, @c::DOUBLE)"),
    # UNIX_SECONDS and UNIX_MILLIS round down, also for times before 1970.
    exp.UnixSeconds: _floored_unix_time_sql(1_000_000),
    exp.UnixMillis: _floored_unix_time_sql(1_000),
    exp.UnixMicros: "epoch_us({0})",
    exp.UnixDate: "CAST({0} - '1970-01-01'::DATE AS BIGINT)",
    exp.DateFromUnixDate: CheckedTemplate(
        f"@a NOT BETWEEN {_MIN_UNIX_DATE_DAYS} AND {_MAX_UNIX_DATE_DAYS}", "('1970-01-01'::DATE + @a::INT)"
    ),
}


RULES = RuleSet(
    by_node_class={
        **rules_from_templates(COMMON_SQL, TIME_FUNCTIONS, _TEMPLATE_BY_FUNCTION).by_node_class,
        exp.Extract: _translate_extract,
        exp.Timestamp: _translate_timestamp,
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _translate_datetime),
        exp.Date: _translate_date,
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _translate_time),
        exp.UnixToTime: _translate_unix_to_time,
        exp.CurrentTimestamp: lambda _: fragment_node("now()"),
        exp.CurrentDate: _current_time_rule("{0}::DATE"),
        exp.CurrentDatetime: _current_time_rule("{0}"),
        exp.CurrentTime: _current_time_rule("{0}::TIME"),
        **_TIME_RULES.rules().by_node_class,
        **time_addition_rules(
            _add_or_subtract_rule("+"), _add_or_subtract_rule("-"), _translate_addition
        ).by_node_class,
        exp.LastDay: _translate_last_day,
        exp.GenerateDateArray: _translate_generate_date_array,
        exp.GenerateTimestampArray: _translate_generate_timestamp_array,
    },
    by_function_name=_TIME_RULES.rules().by_function_name,
)
