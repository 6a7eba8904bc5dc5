"""Functions of times: INTERVAL values, sums and differences, truncation, buckets, parts, epochs, generated arrays."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    NAMES,
    WORDS,
    attempt,
    fail,
    first_timestamp_in,
    in_calendar,
    once,
    read_as,
    text_to_time,
    timestamp_in,
    timestamp_of,
    utc_wall_clock,
    wall_clock,
    wall_clock_in,
)
from cordwood.engines.duckdb.rules.time_text import TIME_TEXT
from cordwood.model.datatype import TIME_KINDS, Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import INTERVAL, kind_of, typed_as
from cordwood.sql.lowering import Rule, RuleSet, fragment, text_part, unsupported
from cordwood.sql.nodes import NOW, Interval, constant, constant_int, is_null
from cordwood.sql.rules.functions import TIMES, Checked, Key, Template, max_elements, rules_from_templates
from cordwood.sql.rules.times import (
    MICROSECONDS,
    Times,
    read_extract_part,
    shifting_rules,
    unit_count,
    unit_of,
    week_start,
)

_INTERVAL_FUNCTIONS: Final = {
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


def span(count: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    """Return an INTERVAL of `count` units."""
    if unit not in _INTERVAL_FUNCTIONS:
        unsupported(node, f"The unit {unit}")
    return typed_as(fragment(_INTERVAL_FUNCTIONS[unit], _as_count(count), operation=Interval(unit)), INTERVAL)


def _as_count(count: exp.Expr) -> exp.Expr:
    """Return the count of an INTERVAL as a number; the parser returns it as text."""
    if isinstance(count, exp.Literal) and count.is_string:
        return exp.Literal.number(unit_count(count.this, count))
    return read_as(count, Kind.INT64)


def _shift(sign: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        if isinstance(node.expression, exp.Interval):
            unsupported(node, "An interval of several units")
        if is_null(node.this):
            return fragment(f"CAST(NULL AS {NAMES[kind]})")
        return _add(node, sign, kind)

    return rule


def _add(node: exp.Expr, sign: str, kind: Kind) -> exp.Expr:
    value, unit = read_as(node.this, kind), unit_of(node.args.get("unit"))
    if kind is Kind.TIMESTAMP and unit in MICROSECONDS:
        # Integer arithmetic on microseconds: DuckDB's zone-aware addition is much slower.
        sum_ = f"make_timestamptz(epoch_us(@a) {sign} @b * {MICROSECONDS[unit]}::BIGINT)"
        return attempt(node, _in_calendar(node, sum_, kind), value, _as_count(node.expression))
    if kind is Kind.DATE and unit in ("DAY", "WEEK"):
        days = "@b * 7" if unit == "WEEK" else "@b"
        sum_ = _in_calendar(node, f"@a {sign} CAST({days} AS INT)", kind)
        return attempt(node, sum_, value, _as_count(node.expression))
    start = wall_clock(value) if kind is Kind.TIMESTAMP else value
    # In DuckDB, a date plus months is a TIMESTAMP.
    sum_ = _in_calendar(node, f"@a {sign} @b", kind if kind is Kind.TIME else Kind.DATETIME)
    return _to_kind(attempt(node, sum_, start, span(node.expression, unit, node)), kind)


def _in_calendar(node: exp.Expr, sum_: str, kind: Kind) -> str:
    """Add the check of the calendar's range to a sum, unless the sum is near the current time.

    DuckDB skips row groups in a scan only by expressions that cannot fail.
    """
    count = constant(node.expression)
    is_near = isinstance(count, (int, str)) and len(str(count)) < _MANY_DIGITS
    return sum_ if is_near and _is_current_time(node.this) else in_calendar(node, sum_, kind)


def _is_current_time(value: exp.Expr) -> bool:
    slots = [slot for slot in value.find_all(exp.Parameter) if slot.name == NOW]
    return bool(slots) and value.find(exp.Column) is None


# A count with fewer digits than this, of any unit, cannot lead from the current time to a time beyond the year 9999.
_MANY_DIGITS: Final = 4


def _truncation(unit: str, node: exp.Expr) -> str:
    """Return the template that truncates the wall clock @a to the unit."""
    week_offset = week_start(unit)
    if week_offset is not None:
        return (
            f"date_trunc('week', @a - to_days({week_offset})) + to_days({week_offset})"
            if week_offset
            else "date_trunc('week', @a)"
        )
    if unit == "ISOYEAR":
        return "date_trunc('week', make_date(isoyear(@a), 1, 4)::TIMESTAMP)"
    if unit not in _TRUNCATED_UNITS:
        unsupported(node, f"The unit {unit}")
    return f"date_trunc('{unit.lower()}', @a)"


_TRUNCATED_UNITS: Final = frozenset((*MICROSECONDS, "MONTH", "QUARTER", "YEAR"))


# The microseconds from 0001-01-01 to 1970-01-01, a whole number of days. They are added before `%`, so that its operand
# is not negative for times before 1970.
_SINCE_YEAR_1: Final = 62_135_596_800_000_000


def _to_kind(moment: exp.Expr, kind: Kind) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("{0}::DATE", moment)
    return timestamp_of(moment) if kind is Kind.TIMESTAMP else moment


def _last_day(node: exp.Expr) -> exp.Expr:
    unit = unit_of(node.args.get("unit"), "MONTH")
    week_offset = week_start(unit)
    day = wall_clock(node.this if kind_of(node.this) is not Kind.STRING else read_as(node.this, Kind.DATE))
    step = "to_days(7)" if week_offset is not None else _UNIT_LENGTHS.get(unit)
    if step is None:
        unsupported(node, f"The unit {unit}")
    if unit == "ISOYEAR":
        return attempt(node, "CAST(date_trunc('week', make_date(isoyear(@a) + 1, 1, 4)) - to_days(1) AS DATE)", day)
    return attempt(node, f"CAST({_truncation(unit, node)} + {step} - to_days(1) AS DATE)", day)


_UNIT_LENGTHS: Final = {"MONTH": "to_months(1)", "QUARTER": "to_months(3)", "YEAR": "to_years(1)", "ISOYEAR": ""}


# DuckDB's time_bucket ignores the day and time of the origin if the width is in months. @a is the time, @b the width,
# @c the origin.
_MONTHS: Final = "(date_part('year', @b) * 12 + date_part('month', @b))"
_MONTHS_APART: Final = "date_diff('month', @c, @a)"
_FROM_ORIGIN: Final = f"({_MONTHS_APART} - ({_MONTHS_APART} % {_MONTHS} + {_MONTHS}) % {_MONTHS})"
_START: Final = f"@c + to_months({_FROM_ORIGIN}::INT)"
_BUCKET_OF_MONTHS: Final = (
    f"CASE WHEN {_START} > @a THEN @c + to_months(({_FROM_ORIGIN} - {_MONTHS})::INT) ELSE {_START} END"
)


def _generate_date_array(node: exp.Expr) -> exp.Expr:
    start, end = (wall_clock(read_as(node.args[key], Kind.DATE)) for key in ("start", "end"))
    return _series(node, start, end, node.args.get("step") or fragment("to_days(1)"), "(@a + _i * @c)::DATE")


def _generate_timestamp_array(node: exp.Expr) -> exp.Expr:
    start, end = (utc_wall_clock(read_as(node.args[key], Kind.TIMESTAMP)) for key in ("start", "end"))
    return _series(node, start, end, node.args["step"], "make_timestamptz(epoch_us(@a + _i * @c))")


# The length of the step @c in microseconds, measured forward and backward across February, the shortest month. So the
# number of steps may be too high; `_series` removes elements beyond the end.
_STEP_US, _STEP_BACK_US = (
    f"(epoch_us('2023-{month}-01'::TIMESTAMP + @c) - epoch_us('2023-{month}-01'::TIMESTAMP))" for month in ("02", "03")
)


def _series(node: exp.Expr, start: exp.Expr, end: exp.Expr, step: exp.Expr, moment: str) -> exp.Expr:
    """Return SQL for a generated array, in which each element is the start plus a multiple of the step.

    Adding a month to the element before would be wrong: after a shorter month, it would not return to the 31st.
    """
    if any(is_null(node.args[key]) for key in ("start", "end")):
        return fragment("NULL")
    span = "(epoch_us((@b)::TIMESTAMP) - epoch_us((@a)::TIMESTAMP))"
    steps = f"greatest({span} // {_STEP_US}, {span} // {_STEP_BACK_US})"
    element_limit = max_elements(start, end, step)
    too_large_failure = fail(node, f"A generated array of more than {element_limit} elements")
    zero_step_failure = fail(node, "The step of a generated array must not be 0")
    numbers = f"generate_series(0, CASE WHEN {steps} > {element_limit} THEN {too_large_failure} ELSE {steps} END)"
    numbers_in_range = f"list_filter({numbers}, lambda _i: CASE WHEN {_STEP_US} > 0 THEN @a + _i * @c <= @b ELSE @a + _i * @c >= @b END)"
    body = (
        f"CASE WHEN @a IS NULL OR @b IS NULL OR @c IS NULL THEN NULL WHEN {_STEP_US} = 0 THEN {zero_step_failure}"
        f" ELSE list_transform({numbers_in_range}, lambda _i: {moment}) END"
    )
    return once(body, start, end, step)


_INTERVAL_MONTHS: Final = "(date_part('year', @a) * 12 + date_part('month', @a))"
_INTERVAL_MICROS: Final = (
    "(date_part('hour', @a) * 3600000000 + date_part('minute', @a) * 60000000 + date_part('microsecond', @a))"
)
# The text of an INTERVAL as BigQuery prints it: `Y-M D H:M:S`, each group with its own sign.
INTERVAL_TEXT: Final = (
    (
        "CASE WHEN @m < 0 THEN '-' ELSE '' END || (abs(@m) // 12) || '-' || (abs(@m) % 12) || ' ' || date_part('day', @a)"
        " || ' ' || CASE WHEN @s < 0 THEN '-' ELSE '' END || (abs(@s) // 3600000000) || ':' || (abs(@s) // 60000000 % 60)"
        " || ':' || (abs(@s) // 1000000 % 60) || CASE WHEN @s % 1000000 = 0 THEN ''"
        " WHEN @s % 1000 = 0 THEN printf('.%03d', abs(@s) // 1000 % 1000) ELSE printf('.%06d', abs(@s) % 1000000) END"
    )
    .replace("@m", _INTERVAL_MONTHS)
    .replace("@s", _INTERVAL_MICROS)
)


def _sum(node: exp.Expr) -> exp.Expr:
    """Lower `+` and `-` of times, intervals and numbers."""
    left, right = node.this, node.expression
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(left), kind_of(right))
    if Kind.INTERVAL in kinds:
        sum_ = _add_interval(node, sign, kinds)
        return timestamp_of(sum_) if Kind.TIMESTAMP in kinds else sum_
    if kinds[0] == kinds[1] and kinds[0] in TIME_KINDS:
        return _interval_between(left, right, kinds[0])
    if set(kinds) == {Kind.DATE, Kind.INT64}:
        return once(in_calendar(node, f"@a {sign} @b", Kind.DATE), *map(_day_or_days, (left, right)))
    return type(node)(this=_number(left), expression=_number(right))


def _add_interval(node: exp.Expr, sign: str, kinds: tuple[Kind | None, Kind | None]) -> exp.Expr:
    """Add or subtract an interval; a DATE becomes a DATETIME, and a TIMESTAMP its UTC wall clock."""
    sides = (_without_zone(node.this), _without_zone(node.expression))
    if kinds[0] is kinds[1] or Kind.TIME in kinds:
        return fragment(f"{{0}} {sign} {{1}}", *sides)
    return once(in_calendar(node, f"@a {sign} @b", Kind.DATETIME), *sides)


def _day_or_days(side: exp.Expr) -> exp.Expr:
    return fragment("{0}::INT", side) if kind_of(side) is Kind.INT64 else side


def _number(side: exp.Expr) -> exp.Expr:
    return read_as(side, Kind.FLOAT64) if kind_of(side) is Kind.VARIANT else side


def _interval_between(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("to_days(CAST({0} - {1} AS INT))", left, right)
    return fragment("to_microseconds(epoch_us({0}) - epoch_us({1}))", left, right)


def _without_zone(side: exp.Expr) -> exp.Expr:
    return utc_wall_clock(side) if kind_of(side) is Kind.TIMESTAMP else side


def _truncated_time(value: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    if unit not in MICROSECONDS:
        unsupported(node, f"The unit {unit}")
    return fragment(f"date_trunc('{unit.lower()}', '1970-01-01'::DATE + {{0}})::TIME", value)


def _boundaries(unit: str, node: exp.Expr) -> str:
    if week_start(unit) is not None:
        later, earlier = (_truncation(unit, node).replace("@a", side) for side in ("{0}", "{1}"))
        return f"date_diff('day', {earlier}, {later}) // 7"
    if unit == "ISOYEAR":
        return "isoyear({0}) - isoyear({1})"
    if unit not in _TRUNCATED_UNITS:
        unsupported(node, f"The unit {unit}")
    return f"date_diff('{unit.lower()}', {{1}}, {{0}})"


def _interval_of_parts(parts: list[tuple[str, str]]) -> exp.Expr:
    template = " + ".join(f"INTERVAL {{{index}}} {unit}" for index, (unit, _) in enumerate(parts))
    return fragment(template, *(text_part(count) for _, count in parts))


_TIMES: Final = Times(
    words=WORDS,
    zoned=wall_clock_in,
    unzoned=timestamp_in,
    day_of=TIME_TEXT.sql.day_of,
    to_kind=_to_kind,
    truncation=_truncation,
    truncated_time=_truncated_time,
    since_unit=f"((epoch_us({{{{1}}}}) + {_SINCE_YEAR_1}) % {{}})".format,
    boundaries=_boundaries,
    first_origin="TIMESTAMP '1950-01-01'",
    bucket="time_bucket(@b, @a, @c)",
    bucket_of_months=_BUCKET_OF_MONTHS,
    span=span,
    of_parts=_interval_of_parts,
    of_text=lambda node: fragment("{0}::INTERVAL", node.this),
    no_interval="INTERVAL 0 DAY",
)


_PARTS: Final = {
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


def _extract(node: exp.Expr) -> exp.Expr:
    part, value = read_extract_part(node), node.expression
    if kind_of(value) is Kind.INTERVAL:
        return fragment(_PARTS[part], value) if part in _PARTS else unsupported(node, f"The part {part}")
    if isinstance(value, exp.AtTimeZone):
        moment = read_as(value.this, Kind.TIMESTAMP)
        value = wall_clock_in(moment, value.args["zone"])
    elif kind_of(value) is Kind.TIME:
        value = fragment("('1970-01-01'::DATE + {0})", value)
    else:
        value = wall_clock(value)
    week_offset = week_start(part)
    if part not in _PARTS and week_offset is not None:
        return once(f"(dayofyear(@a) + 6 - (isodow(@a) - 1 - {week_offset} + 7) % 7) // 7", value)
    if part not in _PARTS:
        unsupported(node, f"The part {part}")
    return fragment(_PARTS[part], value)


def _read_argument(node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return the node's argument converted to the type `kind`; a text is parsed."""
    value = node.this
    return text_to_time(node, value, kind) if kind_of(value) is Kind.STRING else read_as(value, kind)


def _timestamp(node: exp.Expr) -> exp.Expr:
    """Lower TIMESTAMP(x[, zone]): the zone applies to a text without a zone and to a wall clock."""
    value, zone = node.this, node.args.get("zone")
    if zone is None:
        return _read_argument(node, Kind.TIMESTAMP)
    if kind_of(value) is Kind.STRING:
        return _text_in_zone(node, value, zone)
    return first_timestamp_in(wall_clock(value), zone)


def _text_in_zone(node: exp.Expr, value: exp.Expr, zone: exp.Expr) -> exp.Expr:
    """Parse a text as a TIMESTAMP; the zone applies if the text has none."""
    without_zone = attempt(node, "CAST(@a AS TIMESTAMP)", copied(value))
    with_zone = attempt(node, "CAST(@a AS TIMESTAMPTZ)", copied(value))
    names_zone = r"regexp_matches({0}, '\d.*([zZ]|[+-]\d{1,2}(:?\d\d)?|[A-Za-z]{3,}(/[A-Za-z_]+)*)\s*$')"
    template = names_zone.replace("\\d.*", "\\d:\\d.*")
    return fragment(
        f"CASE WHEN {template} THEN {{1}} ELSE {{2}} END", value, with_zone, first_timestamp_in(without_zone, zone)
    )


def _datetime(node: exp.Expr) -> exp.Expr:
    """Lower DATETIME(x), DATETIME(date, time) and DATETIME(timestamp, zone)."""
    value, other = node.this, node.args.get("expression")
    if isinstance(node, exp.TsOrDsToDatetime) or other is None:
        return _read_argument(node, Kind.DATETIME)
    if kind_of(other) is Kind.TIME:
        return fragment("({0} + {1})", read_as(value, Kind.DATE), other)
    return wall_clock_in(read_as(value, Kind.TIMESTAMP), other)


def _date(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if node.args.get("expressions"):
        unsupported(node, "DATE with these arguments")
    if zone is None:
        return _read_argument(node, Kind.DATE)
    return fragment("{0}::DATE", wall_clock_in(read_as(value, Kind.TIMESTAMP), zone))


def _time(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if zone is not None:
        return fragment("{0}::TIME", wall_clock_in(read_as(value, Kind.TIMESTAMP), zone))
    return (
        _read_argument(node, Kind.TIME) if kind_of(value) is Kind.STRING else fragment("{0}::TIME", wall_clock(value))
    )


def _from_epoch(node: exp.Expr) -> exp.Expr:
    scale = node.args.get("scale")
    digits = constant_int(scale) or 0
    factor = 10 ** (6 - digits)
    count = read_as(node.this, Kind.INT64)
    moment = "make_timestamptz(@a)" if factor == 1 else f"make_timestamptz(@a * {factor})"
    size = 10**digits
    return once(
        _check_count(node, Kind.TIMESTAMP, moment, (_FIRST_DAY * 86_400 * size, (_LAST_DAY + 1) * 86_400 * size - 1)),
        count,
    )


# 0001-01-01 and 9999-12-31 as days since 1970.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896


def _check_count(node: exp.Expr, kind: Kind, moment: str, bounds: tuple[int, int]) -> str:
    """Return `moment` with a check of the count @a, because DuckDB fails with its own error on a time out of range."""
    failure = fail(node, f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31")
    return f"CASE WHEN @a NOT BETWEEN {bounds[0]} AND {bounds[1]} THEN {failure} ELSE {moment} END"


def _current_time_rule(template: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        return fragment(template, wall_clock_in(fragment("now()"), zone))

    return rule


_FLOORED: Final = "(epoch_us(@a) - (epoch_us(@a) % {0} + {0}) % {0}) // {0}".format
_TEMPLATES: Final[Mapping[Key, Template]] = {
    exp.DateFromParts: "make_date(@a, @b, @c)",
    exp.TimestampFromParts: "make_timestamp(@a, @b, @c, @d, @e, @f::DOUBLE)",
    # DuckDB would accept 24:00:00 and 23:59:60.
    exp.TimeFromParts: Checked("@a > 23 OR @c > 59", "make_time(@a, @b, @c::DOUBLE)"),
    # Rounded down, also for times before 1970.
    exp.UnixSeconds: _FLOORED(1_000_000),
    exp.UnixMillis: _FLOORED(1_000),
    exp.UnixMicros: "epoch_us({0})",
    exp.UnixDate: "CAST({0} - '1970-01-01'::DATE AS BIGINT)",
    exp.DateFromUnixDate: Checked(f"@a NOT BETWEEN {_FIRST_DAY} AND {_LAST_DAY}", "('1970-01-01'::DATE + @a::INT)"),
}


RULES = RuleSet(
    nodes={
        **rules_from_templates(WORDS, TIMES, _TEMPLATES).nodes,
        exp.Extract: _extract,
        exp.Timestamp: _timestamp,
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _datetime),
        exp.Date: _date,
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _time),
        exp.UnixToTime: _from_epoch,
        exp.CurrentTimestamp: lambda _: fragment("now()"),
        exp.CurrentDate: _current_time_rule("{0}::DATE"),
        exp.CurrentDatetime: _current_time_rule("{0}"),
        exp.CurrentTime: _current_time_rule("{0}::TIME"),
        **_TIMES.rules().nodes,
        **shifting_rules(_shift("+"), _shift("-"), _sum).nodes,
        exp.LastDay: _last_day,
        exp.GenerateDateArray: _generate_date_array,
        exp.GenerateTimestampArray: _generate_timestamp_array,
    },
    by_name=_TIMES.rules().by_name,
)
