"""INTERVAL values, and `+` and `-` with times."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import in_calendar, once, timestamp_of, utc_wall_clock
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.engines.duckdb.rules.times import span
from cordwood.model.datatype import MOMENTS, Kind
from cordwood.sql.bigquery.units import interval_parts, unit_of
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import RuleSet
from cordwood.sql.typing import kind_of

_MONTHS: Final = "(date_part('year', @a) * 12 + date_part('month', @a))"
_MICROS: Final = (
    "(date_part('hour', @a) * 3600000000 + date_part('minute', @a) * 60000000 + date_part('microsecond', @a))"
)
# `Y-M D H:M:S`, each group with its own sign, as BigQuery prints it.
INTERVAL_TEXT: Final = (
    (
        "CASE WHEN @m < 0 THEN '-' ELSE '' END || (abs(@m) // 12) || '-' || (abs(@m) % 12) || ' ' || date_part('day', @a)"
        " || ' ' || CASE WHEN @s < 0 THEN '-' ELSE '' END || (abs(@s) // 3600000000) || ':' || (abs(@s) // 60000000 % 60)"
        " || ':' || (abs(@s) // 1000000 % 60) || CASE WHEN @s % 1000000 = 0 THEN ''"
        " WHEN @s % 1000 = 0 THEN printf('.%03d', abs(@s) // 1000 % 1000) ELSE printf('.%06d', abs(@s) % 1000000) END"
    )
    .replace("@m", _MONTHS)
    .replace("@s", _MICROS)
)


def _interval(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _interval_of_parts(node, unit)
    if unit is None:
        return fragment("{0}::INTERVAL", node.this)
    return span(node.this, unit_of(unit), node)


def _interval_of_parts(node: exp.Expr, unit: exp.Expr) -> exp.Expr:
    parts = interval_parts(node, unit)
    template = " + ".join(f"INTERVAL {{{index}}} {part}" for index, (part, _) in enumerate(parts))
    return fragment(template, *(text_part(value) for _, value in parts))


def _make_interval(node: exp.Expr) -> exp.Expr:
    parts = [(key.upper(), value) for key, value in node.args.items() if isinstance(value, exp.Expr)]
    spans = [span(value.expression if isinstance(value, exp.Kwarg) else value, unit, node) for unit, value in parts]
    template = " + ".join(f"{{{index}}}" for index in range(len(spans)))
    return fragment(template or "INTERVAL 0 DAY", *spans)


def _sum(node: exp.Expr) -> exp.Expr:
    """Lower `+` and `-` if one side is a time or an interval."""
    left, right = node.this, node.expression
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(left), kind_of(right))
    if Kind.INTERVAL in kinds:
        sum_ = _add_interval(node, sign, kinds)
        return timestamp_of(sum_) if Kind.TIMESTAMP in kinds else sum_
    if kinds[0] == kinds[1] and kinds[0] in MOMENTS:
        return _difference(left, right, kinds[0])
    if set(kinds) == {Kind.DATE, Kind.INT64}:
        return once(in_calendar(node, f"@a {sign} @b", Kind.DATE), *map(_day_or_days, (left, right)))
    return type(node)(this=_number(left), expression=_number(right))


def _add_interval(node: exp.Expr, sign: str, kinds: tuple[Kind | None, Kind | None]) -> exp.Expr:
    """Add an interval to a time, or to another interval; a DATE becomes a DATETIME."""
    sides = (_without_zone(node.this), _without_zone(node.expression))
    if kinds[0] is kinds[1] or Kind.TIME in kinds:
        return fragment(f"{{0}} {sign} {{1}}", *sides)
    return once(in_calendar(node, f"@a {sign} @b", Kind.DATETIME), *sides)


def _day_or_days(side: exp.Expr) -> exp.Expr:
    return fragment("{0}::INT", side) if kind_of(side) is Kind.INT64 else side


def _number(side: exp.Expr) -> exp.Expr:
    return read_as(side, Kind.FLOAT64) if kind_of(side) is Kind.VARIANT else side


def _difference(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("to_days(CAST({0} - {1} AS INT))", left, right)
    return fragment("to_microseconds(epoch_us({0}) - epoch_us({1}))", left, right)


def _without_zone(side: exp.Expr) -> exp.Expr:
    return utc_wall_clock(side) if kind_of(side) is Kind.TIMESTAMP else side


RULES = RuleSet(
    nodes={
        exp.Interval: _interval,
        exp.MakeInterval: _make_interval,
        **dict.fromkeys((exp.Add, exp.Sub), _sum),
    }
)
