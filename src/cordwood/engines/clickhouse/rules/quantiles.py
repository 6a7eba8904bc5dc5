"""Quantiles, percentiles and most frequent values, computed exactly, which BigQuery's definition allows."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.aggregates import apply_outside_window, collect_values, comparable
from cordwood.engines.clickhouse.rules.building_blocks import MAY_BE_NULL, fail_if, once, type_part
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.model.datatype import NUMBERS, Kind
from cordwood.sql.bigquery.aggregates import Argument, read_argument, read_quantiles
from cordwood.sql.constants import constant
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import datatype_of, kind_of


def _quantiles(node: exp.Expr) -> exp.Expr:
    argument, count = read_quantiles(node)
    value = read_as(argument.value, Kind.FLOAT64) if kind_of(argument.value) is Kind.VARIANT else argument.value
    argument.value = value
    aggregate, values_sql, parts = collect_values(argument, skip_nulls=argument.ignore_nulls is not False)
    in_order = f"arraySort(_t -> tuple(isNotNull(_t), _t), {values_sql})"
    # The smallest value whose rank is not below the given share of all values.
    rank = f"greatest(1, toInt64(ceil(length({in_order}) * _q / {count})))"
    picked = f"arrayMap(_q -> {in_order}[{rank}], range({count + 1}))"
    result = apply_outside_window(node, aggregate, f"if(empty({values_sql}), [], {picked})", *parts)
    # Without rows the result is NULL, and so is each of its elements.
    result.meta[MAY_BE_NULL] = True
    return result


def _top_count(node: exp.Expr) -> exp.Expr:
    """Lower APPROX_TOP_COUNT: values with their counts, the most frequent first; NULL counts as a value."""
    limit: exp.Expr = node.args.get("counters") or node.args["expression"]
    value = comparable(read_argument(node).value)
    return _top("sumMap([tuple({0})], [toInt64(1)])", node, [value, limit])


def _top_sum(node: exp.Expr) -> exp.Expr:
    """Lower APPROX_TOP_SUM by sums over arrays: ClickHouse's sumMap drops sums of zero."""
    weight = node.expression
    weight = read_as(weight, Kind.FLOAT64) if kind_of(weight) is Kind.VARIANT else weight
    message = "APPROX_TOP_SUM takes no weight that is negative or NaN"
    weight = once(fail_if(node, "NOT (@a >= 0)", message, "@a"), weight)
    rows = "groupArray(tuple(tuple({0}), {2}))"
    weights = f"arrayMap(_t -> _t.2, arrayFilter(_t -> _t.1 = _k AND isNotNull(_t.2), {rows}))"
    total = f"if(empty({weights}), NULL, arraySum(arrayMap(_w -> assumeNotNull(_w), {weights})))"
    keys = f"arrayDistinct(arrayMap(_t -> _t.1, {rows}))"
    total = total.replace("_t.1 = _k", "toString(_t.1) = toString(_k)")
    pairs = f"arrayMap(_k -> tuple(_k, {total}), {keys})"
    return _limit_pairs(
        f"arrayReverseSort(_t -> tuple(isNotNull(_t.2), _t.2), {pairs})",
        node,
        [comparable(node.this), node.args["count"], weight],
    )


def _top(counted: str, node: exp.Expr, parts: list[exp.Expr]) -> exp.Expr:
    pairs = f"arrayZip(({counted}).1, ({counted}).2)"
    return _limit_pairs(f"arrayReverseSort(_t -> tuple(_t.2, _t.1), {pairs})", node, parts)


def _limit_pairs(in_order: str, node: exp.Expr, parts: list[exp.Expr]) -> exp.Expr:
    """Return the first pairs up to the limit, cast to the type of the result."""
    pairs = f"arrayMap(_t -> tuple(_t.1.1, _t.2), arraySlice({in_order}, 1, {{1}}))"
    name = type_part(datatype_of(node))
    return fragment(f"CAST({pairs}, {{{len(parts)}}})", *parts, name) if name else fragment(pairs, *parts)


def _percentile(name: str) -> Rule:
    """Return the rule of a percentile; ClickHouse's exact quantiles accept no NULL, and return NaN for no rows."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        if argument.ignore_nulls is False:
            unsupported(node, "A percentile with RESPECT NULLS")
        if name == "disc":
            return _pick_value(node, argument)
        value = read_as(argument.value, Kind.FLOAT64) if kind_of(argument.value) else argument.value
        return fragment(f"{name}OrNull({{1}})({{0}})", value, _literal_level(node.expression))

    return rule


def _pick_value(node: exp.Expr, argument: Argument) -> exp.Expr:
    """Return the first value whose share of all values is not below the given one.

    The product of share and count is corrected, because it may be rounded past an integer.
    """
    aggregate, values_sql, parts = collect_values(argument, skip_nulls=True)
    share = f"{{{len(parts) + 1}}}"
    rank = f"arrayMap(_n -> _n + (_n / length(_l) < {share}), [toInt64(floor(length(_l) * {share}))])[1]"
    picked = f"arrayMap(_l -> _l[greatest(1, {rank})], [arraySort({values_sql})])[1]"
    return apply_outside_window(node, aggregate, f"if(empty({values_sql}), NULL, {picked})", *parts, node.expression)


def _literal_level(node: exp.Expr) -> exp.Expr:
    """Return the level as a literal, because it is a parameter of the aggregate."""
    value = constant(node)
    value = node.meta_get(_SHARE) if value is None else value
    return exp.Literal.number(float(value)) if value is not None else node


# The meta key of the value of a share that is written as NUMERIC '0.5'.
_SHARE: Final = "share"


def _note_share(node: exp.Expr) -> exp.Expr:
    share = node.expression
    if isinstance(share, exp.Cast) and kind_of(share) in NUMBERS:
        share.meta[_SHARE] = constant(share.this)
    return node


RULES = RuleSet(
    nodes={
        exp.ApproxQuantiles: _quantiles,
        exp.ApproxTopK: _top_count,
        exp.ApproxTopSum: _top_sum,
        exp.PercentileCont: _percentile("quantileExactInclusive"),
        exp.PercentileDisc: _percentile("disc"),
    },
    before_children={exp.PercentileCont: _note_share},
)
