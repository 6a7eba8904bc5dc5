"""Conversions between times and their parts: EXTRACT, constructors, epochs, and the current time."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import attempt, fail, once
from cordwood.engines.duckdb.rules.coercions import read_as, text_to_time, wall_clock
from cordwood.engines.duckdb.rules.words import WORDS
from cordwood.engines.duckdb.rules.zones import first_timestamp_in, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.units import read_extract_part, week_start
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.rules.functions import Checked, Key, Template, table_rules
from cordwood.sql.rules.signatures import TIMES
from cordwood.sql.typing import kind_of

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
    """Return the argument converted to that type of time."""
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
    """Lower DATETIME(date, time), and the wall clock of a TIMESTAMP in a zone."""
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
    """Check the range of the count, because DuckDB fails with its own error on a time that is too large."""
    failure = fail(node, f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31")
    return f"CASE WHEN @a NOT BETWEEN {bounds[0]} AND {bounds[1]} THEN {failure} ELSE {moment} END"


def _current(template: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        return fragment(template, wall_clock_in(fragment("now()"), zone))

    return rule


_FLOORED: Final = "(epoch_us(@a) - (epoch_us(@a) % {0} + {0}) % {0}) // {0}".format
_TEMPLATES: Final[Mapping[Key, Template]] = {
    exp.DateFromParts: "make_date(@a, @b, @c)",
    exp.TimestampFromParts: "make_timestamp(@a, @b, @c, @d, @e, @f::DOUBLE)",
    # DuckDB accepts 24:00:00 and 23:59:60.
    exp.TimeFromParts: Checked("@a > 23 OR @c > 59", "make_time(@a, @b, @c::DOUBLE)"),
    # Rounded down, also before 1970.
    exp.UnixSeconds: _FLOORED(1_000_000),
    exp.UnixMillis: _FLOORED(1_000),
    exp.UnixMicros: "epoch_us({0})",
    exp.UnixDate: "CAST({0} - '1970-01-01'::DATE AS BIGINT)",
    exp.DateFromUnixDate: Checked(f"@a NOT BETWEEN {_FIRST_DAY} AND {_LAST_DAY}", "('1970-01-01'::DATE + @a::INT)"),
}

RULES = RuleSet(
    nodes={
        **table_rules(WORDS, TIMES, _TEMPLATES).nodes,
        exp.Extract: _extract,
        exp.Timestamp: _timestamp,
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _datetime),
        exp.Date: _date,
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _time),
        exp.UnixToTime: _from_epoch,
        exp.CurrentTimestamp: lambda _: fragment("now()"),
        exp.CurrentDate: _current("{0}::DATE"),
        exp.CurrentDatetime: _current("{0}"),
        exp.CurrentTime: _current("{0}::TIME"),
    }
)
