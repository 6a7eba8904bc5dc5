"""Rules for aggregates and window functions: modifiers of their arguments, types of their results, and quantiles.

The result of a window function is cast outside of OVER. Quantiles are computed exactly, which is correct, because
BigQuery defines them as approximations of the exact values.
"""

from decimal import Decimal

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    convert_implicitly,
    event_value_as_text,
    failure_sql,
    fill_template,
    number_as_variant_sql,
    variant_as_text,
)
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.numbers import NUMBER_RULES
from cordwood.engines.duckdb.rules.sort_keys import number_of_event_value
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import STRING, is_event_number, kind_of
from cordwood.sql.lowering import LoweringRule, RuleSet, fragment_node, raise_unsupported
from cordwood.sql.nodes import constant_int, constant_python_value, may_be_number
from cordwood.sql.rules.aggregates import (
    MIN_LARGE_INTEGER_DIGITS,
    AggregateArgument,
    aggregated_event_value_kind,
    combine_aggregates,
    distribute_window,
    drop_nulls_modifier,
    has_window_or_filter,
    make_nan_for_infinite_value,
    read_aggregate_argument,
    read_quantiles,
)


def _build_array_agg(argument: AggregateArgument, *, skip_nulls: bool, value: str = "{0}") -> exp.Expr:
    """Return a call of `array_agg` with all modifiers of the argument."""
    if constant_int(argument.limit) == 0:
        return fragment_node("CASE WHEN count({0}) < 0 THEN array_agg({0}) END", argument.value)
    parts = [argument.value]
    template = f"array_agg({'DISTINCT ' if argument.is_distinct else ''}{value}"
    if argument.order is not None:
        template += " ORDER BY " + ", ".join(
            f"{{{len(parts) + index}}}" for index in range(len(argument.order.expressions))
        )
        parts += argument.order.expressions
    template += ")"
    if skip_nulls:
        template += " FILTER (WHERE {0} IS NOT NULL)"
    if argument.limit is not None:
        template = f"({template})[1:{{{len(parts)}}}]"
        parts.append(argument.limit)
    return fragment_node(template, *parts)


def _translate_array_agg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    if argument.ignores_nulls and has_window_or_filter(node):
        # NULLs are removed from the array instead of by a FILTER, because DuckDB does not accept OVER after a FILTER
        # inside parentheses.
        present = "nullif(list_filter({0}, lambda _e: _e IS NOT NULL), [])"
        return combine_aggregates(present, _build_array_agg(argument, skip_nulls=False))
    return _build_array_agg(argument, skip_nulls=bool(argument.ignores_nulls))


def _translate_array_concat_agg(node: exp.Expr) -> exp.Expr:
    return fragment_node("flatten({0})", _build_array_agg(read_aggregate_argument(node), skip_nulls=True))


def _translate_string_agg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    separator = node.args.get("separator") or exp.Literal.string(",")
    value, argument.value = argument.value, _convert_to_string_agg_text(node, argument.value)
    _order_by_distinct_text(argument, value)
    if argument.limit is not None:
        return fragment_node("array_to_string({0}, {1})", _build_array_agg(argument, skip_nulls=True), separator)
    distinct = "DISTINCT " if argument.is_distinct else ""
    order = argument.order.expressions if argument.order is not None else []
    return fragment_node(
        f"string_agg({distinct}{{0}}, {{1}}{_order_clause(len(order))})", argument.value, separator, *order
    )


def _order_clause(count: int) -> str:
    """Return an ORDER BY with `count` placeholders from `{2}` on; `{0}` and `{1}` are the value and the separator."""
    return " ORDER BY " + ", ".join(f"{{{index + 2}}}" for index in range(count)) if count else ""


def _order_by_distinct_text(argument: AggregateArgument, value: exp.Expr) -> None:
    """If a DISTINCT aggregate over the text of `value` sorts by the value itself, make it sort by the text.

    DuckDB requires that the aggregated expression and the sort key are the same.
    """
    if not argument.is_distinct or argument.order is None:
        return
    for item in argument.order.expressions:
        if isinstance(item, exp.Ordered) and item.this == value:
            item.set("this", copy_tree(argument.value))


def _convert_to_string_agg_text(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    kind = kind_of(value)
    if kind is Kind.BYTES:
        raise_unsupported(node, "STRING_AGG of BYTES")
    if kind is Kind.VARIANT:
        return event_value_as_text(value)
    return value if kind in (None, Kind.STRING) else cast_to(node, value, STRING)


def _aggregate_rule(name: str, template: str = "{0}") -> LoweringRule:
    """Return the rule of an aggregate that DuckDB has as the function `name`; `template` converts its result."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        return fragment_node(
            template.replace("{0}", _aggregate_call_template(name, argument)), _convert_aggregated_value(argument, node)
        )

    return rule


def _aggregate_call_template(name: str, argument: AggregateArgument) -> str:
    """Return the template that calls the one-argument aggregate `name`, with DISTINCT if the query has it."""
    return f"{name}({'DISTINCT ' if argument.is_distinct else ''}{{0}})"


def _convert_aggregated_value(argument: AggregateArgument, node: exp.Expr) -> exp.Expr:
    kind = aggregated_event_value_kind(node)
    if is_event_number(argument.value) and kind is not None:
        return convert_implicitly(argument.value, kind)
    return argument.value


def _translate_sum(node: exp.Expr) -> exp.Expr:
    """Translate SUM; if it has a window, its result is cast outside of OVER."""
    argument = read_aggregate_argument(node)
    aggregate = fragment_node(_aggregate_call_template("sum", argument), _convert_aggregated_value(argument, node))
    return cast_outside_window(node, aggregate, "BIGINT" if kind_of(node) is Kind.INT64 else None)


def _translate_avg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    value = _convert_aggregated_value(argument, node)
    kind = kind_of(node)
    if kind not in EXACT_NUMERIC_KINDS:
        return fragment_node(_aggregate_call_template("avg", argument), value)
    total, count = (
        fragment_node(_aggregate_call_template(name, argument), copy_tree(value)) for name in ("sum", "count")
    )
    return combine_aggregates(
        _exact_average_template("DECIMAL(38, 9)" if kind is Kind.NUMERIC else "DECIMAL(38, 18)"), total, count
    )


def _exact_average_template(decimal: str) -> str:
    """Return the template of an exact average, which is computed with integers; it rounds halves away from zero.

    DuckDB's own average is computed as a double, so it is not exact. The template uses no lambda, because DuckDB does
    not accept lambdas in HAVING.
    """
    exponent = "e-9" if decimal.endswith(" 9)") else "e-18"
    units = f"replace({{0}}::{decimal}::VARCHAR, '.', '')::HUGEINT"
    return f"(({units} // {{1}} + {units} % {{1}} * 2 // {{1}}) || '{exponent}')::{decimal}"


def cast_outside_window(node: exp.Expr, aggregate: exp.Expr, cast: str | None) -> exp.Expr:
    """Cast an aggregate to the type `cast`; if it has OVER or FILTER, `_translate_window` adds the cast later.

    OVER and FILTER must follow the aggregate directly, so the cast must be outside of them.
    """
    if cast is None:
        return aggregate
    if has_window_or_filter(node):
        aggregate.meta["cast"] = cast
        return aggregate
    return fragment_node(f"{{0}}::{cast}", aggregate)


def _translate_count(node: exp.Expr) -> exp.Expr:
    if isinstance(node.this, exp.Star) or node.this is None:
        return fragment_node("count(*)")
    argument = read_aggregate_argument(node)
    value = argument.value
    if kind_of(value) is Kind.VARIANT and argument.is_distinct:
        value = convert_implicitly(value, Kind.STRING)
    return fragment_node(_aggregate_call_template("count", argument), value)


def _translate_count_if(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    value = _convert_aggregated_value(argument, node)
    distinct = "DISTINCT " if argument.is_distinct else ""
    return fragment_node(f"count({distinct}CASE WHEN {{0}} THEN 1 END)", value)


def _min_or_max_rule(name: str) -> LoweringRule:
    """Return the rule of MIN or MAX.

    The result is NaN if any value is NaN. Values from events are compared as numbers if all of them are numbers.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        if kind_of(argument.value) is Kind.VARIANT:
            return _min_or_max_of_event_values(name, argument.value)
        if kind_of(argument.value) is Kind.FLOAT64 and name == "min":
            any_nan = fragment_node("bool_or(isnan({0}))", copy_tree(argument.value))
            minimum = fragment_node("min({0})", argument.value)
            return combine_aggregates("CASE WHEN {0} THEN 'nan'::DOUBLE ELSE {1} END", any_nan, minimum)
        return fragment_node(f"{name}({{0}})", argument.value)

    return rule


def _min_or_max_of_event_values(name: str, value: exp.Expr) -> exp.Expr:
    """Return SQL for the minimum or maximum of the numbers if all values are numbers, otherwise of the texts."""
    numbers, texts = convert_implicitly(value, Kind.FLOAT64), convert_implicitly(copy_tree(value), Kind.STRING)
    # The text of a scalar shows whether there is a value and whether it is an integer, and is shorter to write.
    scalars = variant_as_text(copy_tree(value))
    counts = (fragment_node("count({0})", copy_tree(values)) for values in (numbers, scalars))
    extremes = (fragment_node(f"{name}({{0}})", copy_tree(values)) for values in (numbers, texts))
    # Only integers with many digits are converted a second time, because the conversion takes longer than all the rest.
    large_integer = f"CASE WHEN strlen({{0}}) >= {MIN_LARGE_INTEGER_DIGITS} THEN try_cast({{0}} AS BIGINT) END"
    exact_extreme = fragment_node(f"{name}({large_integer})", scalars)
    # The aggregates are repeated few times, because a path may have a name of thousands of characters.
    number = f"CASE WHEN {{4}}::DOUBLE = {{2}} THEN {{4}}::VARIANT ELSE {number_as_variant_sql('{2}', 'try_cast({2} AS BIGINT)')} END"
    template = f"CASE WHEN {{0}} = {{1}} THEN {number} ELSE ({{3}})::VARIANT END"
    return combine_aggregates(template, *counts, *extremes, exact_extreme)


def _translate_any_value(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    if argument.having is not None:
        name = "max" if argument.having.args.get("max") else "min"
        return _value_at_min_or_max(name, argument.value, argument.having.expression)
    return fragment_node("any_value({0})", argument.value)


def _value_at_min_or_max(name: str, value: exp.Expr, key: exp.Expr) -> exp.Expr:
    """Return SQL for the value in the row with the lowest or highest key.

    If several rows have this key, the result is NULL only if the value is NULL in all of them.
    """
    if kind_of(key) is Kind.VARIANT:
        key = number_of_event_value(key) if may_be_number(key) else key
        return fragment_node(f"arg_{name}_null({{0}}, {{1}})", value, key)
    extreme = fragment_node(f"{name}({{0}})", key)
    extreme_of_present = fragment_node(
        f"{name}(CASE WHEN {{1}} IS NOT NULL THEN {{0}} END)", copy_tree(key), copy_tree(value)
    )
    return combine_aggregates(
        "CASE WHEN {0} = {1} THEN {2} END",
        extreme,
        extreme_of_present,
        fragment_node(f"arg_{name}({{0}}, {{1}})", value, copy_tree(key)),
    )


def _arg_min_or_max_rule(name: str) -> LoweringRule:
    return lambda node: _value_at_min_or_max(name, node.this, node.expression)


def _translate_grouping(node: exp.Expr) -> exp.Expr:
    return fragment_node("grouping({0})", node.expressions[0] if node.expressions else node.this)


def _bitwise_aggregate_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        return fragment_node(_aggregate_call_template(name, argument), _convert_aggregated_value(argument, node))

    return rule


def _covariance_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = convert_implicitly(node.this, Kind.FLOAT64), convert_implicitly(node.expression, Kind.FLOAT64)
        aggregate = fragment_node(f"{name}({{0}}, {{1}})", left, right)
        if name.endswith("samp"):
            return aggregate
        return make_nan_for_infinite_value(
            aggregate, fragment_node("any_value({0} + {1})", copy_tree(left), copy_tree(right))
        )

    return rule


def _population_statistic_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        value = fragment_node("{0}::DOUBLE", _convert_aggregated_value(argument, node))
        aggregate = fragment_node(_aggregate_call_template(name, argument), value)
        return make_nan_for_infinite_value(aggregate, fragment_node("any_value({0})", copy_tree(value)))

    return rule


def _translate_corr(node: exp.Expr) -> exp.Expr:
    """Translate CORR; for fewer than two pairs, it returns NULL, where DuckDB returns NaN."""
    pair = convert_implicitly(node.this, Kind.FLOAT64), convert_implicitly(node.expression, Kind.FLOAT64)
    count = fragment_node("regr_count({0}, {1})", *(copy_tree(side) for side in pair))
    return combine_aggregates("CASE WHEN {0} > 1 THEN {1} END", count, fragment_node("corr({0}, {1})", *pair))


def _translate_window(node: exp.Expr) -> exp.Expr:
    cast = node.this.meta_get("cast")
    # Copy the node, because a node cannot be part of its own replacement.
    return fragment_node(f"{{0}}::{cast}", copy_tree(node)) if cast else distribute_window(node)


def _navigation_function_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        nulls = " IGNORE NULLS" if argument.ignores_nulls else ""
        arguments = [node.args[key] for key in ("offset", "default") if node.args.get(key) is not None]
        kind = kind_of(node)
        if len(arguments) > 1 and kind is not None and kind_of(arguments[1]) is not kind_of(argument.value):
            argument.value, arguments[1] = (
                convert_implicitly(argument.value, kind),
                convert_implicitly(arguments[1], kind),
            )
        placeholders = "".join(f", {{{index + 1}}}" for index in range(len(arguments)))
        return fragment_node(f"{name}({{0}}{placeholders}{nulls})", argument.value, *arguments)

    return rule


def _translate_approx_count_distinct(node: exp.Expr) -> exp.Expr:
    """Translate APPROX_COUNT_DISTINCT into an exact count."""
    value = read_aggregate_argument(node).value
    return fragment_node("count(DISTINCT {0})", _convert_to_comparable(value))


def _translate_approx_quantiles(node: exp.Expr) -> exp.Expr:
    argument, count = read_quantiles(node)
    value = NUMBER_RULES.to_number(argument.value)
    if argument.ignores_nulls is False:
        return _quantiles_with_nulls(value, count, distinct=argument.is_distinct)
    distinct = "DISTINCT " if argument.is_distinct else ""
    levels = ", ".join(repr(rank / count) for rank in range(count + 1))
    result = fragment_node(f"quantile_disc({distinct}{{0}}, [{levels}])", value)
    if not distinct:
        result.meta["quantiles"] = count
        result.meta["quantiles_filter"] = ""
    return result


def _quantiles_with_nulls(value: exp.Expr, count: int, *, distinct: bool) -> exp.Expr:
    """Return quantiles in which NULL counts as the lowest value; DuckDB's own quantiles would skip NULL."""
    rows = fragment_node(f"list_sort(array_agg({'DISTINCT ' if distinct else ''}{{0}}), 'ASC', 'NULLS FIRST')", value)
    elements = ", ".join(f"@a[greatest(1, ceil(len(@a) * {rank / count!r})::INT)]" for rank in range(count + 1))
    return fill_template(f"CASE WHEN @a IS NULL THEN NULL ELSE [{elements}] END", rows)


def _translate_approx_top_count(node: exp.Expr) -> exp.Expr:
    """Translate APPROX_TOP_COUNT, which returns the most frequent values with their counts; NULL counts as a value."""
    limit: exp.Expr = node.args.get("counters") or node.args["expression"]
    value = _convert_to_comparable(read_aggregate_argument(node).value)
    counted = "map_entries(histogram({0}))"
    entries = f"list_transform({counted}, lambda _e: struct_pack(s := _e.value::BIGINT, v := _e.key))"
    null_entries = "CASE WHEN count(*) > count({0}) THEN [struct_pack(s := (count(*) - count({0}))::BIGINT, v := NULL)] ELSE [] END"
    return _sorted_top_entries(entries, null_entries, "count", [value, limit])


def _translate_approx_top_sum(node: exp.Expr) -> exp.Expr:
    limit = node.args["count"]
    value, weight = _convert_to_comparable(node.this), NUMBER_RULES.to_number(node.expression)
    failure = failure_sql(node, "A weight of APPROX_TOP_SUM must not be negative or NaN")
    # The weights must be checked inside the lambda over the list, and the aggregate must be outside of all lambdas.
    # DuckDB's optimizer fails on other nestings.
    checked = f"CASE WHEN _r.w < 0 OR isnan(_r.w::DOUBLE) THEN {failure} ELSE _r.w END"
    keys = "list_distinct(list_transform(_a, lambda _r: struct_pack(v := _r.v)))"
    weights = f"list_transform(list_filter(_a, lambda _r: _r.v IS NOT DISTINCT FROM _k.v), lambda _r: {checked})"
    sums = f"list_transform({keys}, lambda _k: struct_pack(s := list_sum({weights}), v := _k.v))"
    entries = f"list_transform([array_agg(struct_pack(v := {{0}}, w := {{2}}))], lambda _a: {sums})[1]"
    return _sorted_top_entries(entries, "[]", "sum", [value, limit, weight])


def _convert_to_comparable(value: exp.Expr) -> exp.Expr:
    return convert_implicitly(value, Kind.STRING) if kind_of(value) is Kind.VARIANT else value


def _sorted_top_entries(entries: str, null_entries: str, name: str, parts: list[exp.Expr]) -> exp.Expr:
    ranked = "struct_pack(n := _e.s IS NOT NULL, s := _e.s, v := _e.v)"
    sorted_entries = f"list_sort(list_transform(list_concat({entries}, {null_entries}), lambda _e: {ranked}), 'DESC')"
    result = f'list_transform(list_slice({sorted_entries}, 1, {{1}}), lambda _e: struct_pack("value" := _e.v, "{name}" := _e.s))'
    return fragment_node(f"CASE WHEN count(*) > 0 THEN {result} END", *parts)


def _percentile_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        if argument.ignores_nulls is False:
            raise_unsupported(node, "A percentile with RESPECT NULLS")
        kind = Kind.FLOAT64 if name == "quantile_cont" else kind_of(argument.value)
        value = convert_implicitly(argument.value, kind) if kind else argument.value
        return fragment_node(f"{name}({{0}}, {{1}})", value, _fraction_as_decimal(node.expression))

    return rule


def _fraction_as_decimal(node: exp.Expr) -> exp.Expr:
    """Return the fraction of a percentile as a decimal instead of a double.

    DuckDB multiplies the fraction by the number of rows. With a double, rounding could lead to the wrong row.
    """
    constant_value = constant_python_value(node)
    return fragment_node(format(Decimal(repr(constant_value)), "f")) if isinstance(constant_value, float) else node


RULES = RuleSet(
    by_node_class={
        exp.ApproxDistinct: _translate_approx_count_distinct,
        exp.ApproxQuantiles: _translate_approx_quantiles,
        exp.ApproxTopK: _translate_approx_top_count,
        exp.ApproxTopSum: _translate_approx_top_sum,
        exp.PercentileCont: _percentile_rule("quantile_cont"),
        exp.PercentileDisc: _percentile_rule("quantile_disc"),
        exp.ArrayAgg: _translate_array_agg,
        exp.ArrayConcatAgg: _translate_array_concat_agg,
        exp.GroupConcat: _translate_string_agg,
        exp.Count: _translate_count,
        exp.CountIf: _translate_count_if,
        exp.LogicalAnd: _aggregate_rule("bool_and"),
        exp.LogicalOr: _aggregate_rule("bool_or"),
        exp.Sum: _translate_sum,
        exp.Avg: _translate_avg,
        exp.Min: _min_or_max_rule("min"),
        exp.Max: _min_or_max_rule("max"),
        exp.AnyValue: _translate_any_value,
        exp.ArgMax: _arg_min_or_max_rule("max"),
        exp.ArgMin: _arg_min_or_max_rule("min"),
        **dict.fromkeys((exp.IgnoreNulls, exp.RespectNulls), drop_nulls_modifier),
        exp.Grouping: _translate_grouping,
        exp.BitwiseAndAgg: _bitwise_aggregate_rule("bit_and"),
        exp.BitwiseOrAgg: _bitwise_aggregate_rule("bit_or"),
        exp.BitwiseXorAgg: _bitwise_aggregate_rule("bit_xor"),
        exp.Stddev: _aggregate_rule("stddev_samp"),
        exp.StddevSamp: _aggregate_rule("stddev_samp"),
        exp.StddevPop: _population_statistic_rule("stddev_pop"),
        exp.Variance: _aggregate_rule("var_samp"),
        exp.VariancePop: _population_statistic_rule("var_pop"),
        exp.Corr: _translate_corr,
        exp.CovarPop: _covariance_rule("covar_pop"),
        exp.CovarSamp: _covariance_rule("covar_samp"),
        exp.Window: _translate_window,
        exp.Filter: _translate_window,
        exp.FirstValue: _navigation_function_rule("first_value"),
        exp.LastValue: _navigation_function_rule("last_value"),
        exp.NthValue: _navigation_function_rule("nth_value"),
        exp.Lead: _navigation_function_rule("lead"),
        exp.Lag: _navigation_function_rule("lag"),
    },
)
