"""Quantiles, percentiles, most frequent values and APPROX_COUNT_DISTINCT, computed exactly, as BigQuery allows."""

from decimal import Decimal

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import fail, once
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.aggregates import read_argument, read_quantiles
from cordwood.sql.constants import constant
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import kind_of


def _distinct_count(node: exp.Expr) -> exp.Expr:
    """Lower APPROX_COUNT_DISTINCT to an exact count."""
    value = read_argument(node).value
    return fragment("count(DISTINCT {0})", read_as(value, Kind.STRING) if kind_of(value) is Kind.VARIANT else value)


def _quantiles(node: exp.Expr) -> exp.Expr:
    argument, count = read_quantiles(node)
    value = _number(argument.value)
    if argument.ignore_nulls is False:
        return _quantiles_with_nulls(value, count, distinct=argument.distinct)
    distinct = "DISTINCT " if argument.distinct else ""
    levels = ", ".join(repr(rank / count) for rank in range(count + 1))
    result = fragment(f"quantile_disc({distinct}{{0}}, [{levels}])", value)
    if not distinct:
        result.meta["quantiles"] = count
        result.meta["quantiles_filter"] = ""
    return result


def _number(value: exp.Expr) -> exp.Expr:
    return read_as(value, Kind.FLOAT64) if kind_of(value) is Kind.VARIANT else value


def _quantiles_with_nulls(value: exp.Expr, count: int, *, distinct: bool) -> exp.Expr:
    """Return quantiles that include NULL as the lowest value; DuckDB's own quantiles skip NULL."""
    rows = fragment(f"list_sort(array_agg({'DISTINCT ' if distinct else ''}{{0}}), 'ASC', 'NULLS FIRST')", value)
    elements = ", ".join(f"@a[greatest(1, ceil(len(@a) * {rank / count!r})::INT)]" for rank in range(count + 1))
    return once(f"CASE WHEN @a IS NULL THEN NULL ELSE [{elements}] END", rows)


def _top_count(node: exp.Expr) -> exp.Expr:
    """Lower APPROX_TOP_COUNT: values with their counts, the most frequent first; NULL counts as a value."""
    limit: exp.Expr = node.args.get("counters") or node.args["expression"]
    value = _comparable(read_argument(node).value)
    counted = "map_entries(histogram({0}))"
    entries = f"list_transform({counted}, lambda _e: struct_pack(s := _e.value::BIGINT, v := _e.key))"
    null_entries = "CASE WHEN count(*) > count({0}) THEN [struct_pack(s := (count(*) - count({0}))::BIGINT, v := NULL)] ELSE [] END"
    return _top(entries, null_entries, "count", [value, limit])


def _top_sum(node: exp.Expr) -> exp.Expr:
    limit = node.args["count"]
    value, weight = _comparable(node.this), node.expression
    weight = read_as(weight, Kind.FLOAT64) if kind_of(weight) is Kind.VARIANT else weight
    failure = fail(node, "APPROX_TOP_SUM takes no weight that is negative or NaN")
    # The check is inside the list and the aggregate outside of the lambdas: DuckDB's optimizer fails on either nesting.
    checked = f"CASE WHEN _r.w < 0 OR isnan(_r.w::DOUBLE) THEN {failure} ELSE _r.w END"
    keys = "list_distinct(list_transform(_a, lambda _r: struct_pack(v := _r.v)))"
    weights = f"list_transform(list_filter(_a, lambda _r: _r.v IS NOT DISTINCT FROM _k.v), lambda _r: {checked})"
    sums = f"list_transform({keys}, lambda _k: struct_pack(s := list_sum({weights}), v := _k.v))"
    entries = f"list_transform([array_agg(struct_pack(v := {{0}}, w := {{2}}))], lambda _a: {sums})[1]"
    return _top(entries, "[]", "sum", [value, limit, weight])


def _comparable(value: exp.Expr) -> exp.Expr:
    return read_as(value, Kind.STRING) if kind_of(value) is Kind.VARIANT else value


def _top(entries: str, null_entries: str, name: str, parts: list[exp.Expr]) -> exp.Expr:
    ranked = "struct_pack(n := _e.s IS NOT NULL, s := _e.s, v := _e.v)"
    sorted_entries = f"list_sort(list_transform(list_concat({entries}, {null_entries}), lambda _e: {ranked}), 'DESC')"
    result = f'list_transform(list_slice({sorted_entries}, 1, {{1}}), lambda _e: struct_pack("value" := _e.v, "{name}" := _e.s))'
    return fragment(f"CASE WHEN count(*) > 0 THEN {result} END", *parts)


def _percentile(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        if argument.ignore_nulls is False:
            unsupported(node, "A percentile with RESPECT NULLS")
        kind = Kind.FLOAT64 if name == "quantile_cont" else kind_of(argument.value)
        value = read_as(argument.value, kind) if kind else argument.value
        return fragment(f"{name}({{0}}, {{1}})", value, _decimal_fraction(node.expression))

    return rule


def _decimal_fraction(node: exp.Expr) -> exp.Expr:
    """Return the fraction as a decimal: multiplied by the number of rows, a double could round past an integer."""
    constant_value = constant(node)
    return fragment(format(Decimal(repr(constant_value)), "f")) if isinstance(constant_value, float) else node


RULES = RuleSet(
    nodes={
        exp.ApproxDistinct: _distinct_count,
        exp.ApproxQuantiles: _quantiles,
        exp.ApproxTopK: _top_count,
        exp.ApproxTopSum: _top_sum,
        exp.PercentileCont: _percentile("quantile_cont"),
        exp.PercentileDisc: _percentile("quantile_disc"),
    },
)
