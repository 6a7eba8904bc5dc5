"""INTERVAL values as months, days and microseconds; sums and differences of times."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.arithmetic import checked_arithmetic, operands
from cordwood.engines.clickhouse.rules.building_blocks import cast
from cordwood.engines.clickhouse.rules.times import DAYS, MONTHS, add_interval, span
from cordwood.model.datatype import MOMENTS, Kind
from cordwood.sql.bigquery.units import MICROSECONDS, interval_parts, unit_of
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.typing import kind_of


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
    if unit in MONTHS:
        totals[0] += value * MONTHS[unit]
    elif unit in DAYS:
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
    if kinds in _DAYS:
        return fragment(_DAYS[kinds].format(sign=sign), node.this, node.expression)
    if kinds[0] == kinds[1] and kinds[0] in MOMENTS and sign == "-":
        return _difference(node.this, node.expression, kinds[0])
    return checked_arithmetic(node, sign, *operands(node))


_DAYS: Final[dict[tuple[Kind | None, Kind | None], str]] = {
    (Kind.DATE, Kind.INT64): "addDays({{0}}, 0 {sign} {{1}})",
    (Kind.INT64, Kind.DATE): "addDays({{1}}, {{0}})",
}


def _sum_with_interval(left: exp.Expr, right: exp.Expr, sign: str) -> exp.Expr:
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind is right_kind:
        return fragment(f"tuple{'Minus' if sign == '-' else 'Plus'}({{0}}, {{1}})", left, right)
    if left_kind is Kind.INTERVAL:
        return add_interval(right, sign, left, right_kind or Kind.TIMESTAMP)
    return add_interval(left, sign, right, left_kind or Kind.TIMESTAMP)


def _difference(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("tuple(toInt64(0), toInt64(toInt64({0}) - toInt64({1})), toInt64(0))", left, right)
    left, right = (cast(side, Kind.DATETIME) for side in (left, right))
    microseconds = "toUnixTimestamp64Micro({0}) - toUnixTimestamp64Micro({1})"
    return fragment(f"tuple(toInt64(0), toInt64(0), {microseconds})", left, right)


RULES = RuleSet(
    nodes={
        exp.Interval: _interval,
        exp.MakeInterval: _make_interval,
        **dict.fromkeys((exp.Add, exp.Sub), _sum),
    }
)
