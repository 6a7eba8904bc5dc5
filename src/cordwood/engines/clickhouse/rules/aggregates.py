"""Rules for aggregates, window functions and quantiles.

Quantiles are exact, which BigQuery allows but does not require. Aggregates such as SUM and MIN are NULL if there are no
rows. DISTINCT, ORDER BY, LIMIT, IGNORE NULLS and HAVING MAX are supported in arguments. The result of a window function
is cast outside of OVER. Window functions respect NULLs by default.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    MAY_BE_NULL_METADATA_KEY,
    TYPE_NAME_BY_KIND,
    convert_implicitly,
    fail_if_sql,
    fill_template,
    number_as_json_sql,
    type_name_node,
)
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.numbers import NUMBER_RULES
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, NUMBER_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import STRING, datatype_of, is_event_number, kind_of
from cordwood.sql.lowering import (
    LoweringRule,
    RuleSet,
    fragment_node,
    placeholders_text,
    quoted_literal_sql,
    raise_unsupported,
)
from cordwood.sql.nodes import constant_int, constant_python_value, is_int32_constant, may_be_number
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


def array_aggregate_template(argument: AggregateArgument, *, skip_nulls: bool) -> tuple[exp.Expr, str, list[exp.Expr]]:
    """Return the aggregate, the template and the template's other parts that make an array of a group's values.

    The aggregate collects each value in a tuple with its sort keys, because groupArray skips NULLs outside of tuples.
    In the template, `{0}` is the aggregate; the template sorts, deduplicates and limits the values.
    """
    value, ordered = argument.value, argument.order.expressions if argument.order is not None else []
    keys = [item.this if isinstance(item, exp.Ordered) else item for item in ordered]
    row = f"tuple({placeholders_text(len(keys) + 1)})"
    if skip_nulls:
        aggregate = fragment_node(f"groupArrayIf({row}, isNotNull({{0}}))", value, *keys)
    else:
        aggregate = fragment_node(f"groupArray({row})", value, *keys)
    template = "arrayDistinct({0})" if argument.is_distinct else "{0}"
    template = f"arrayMap(_t -> _t.1, {_append_sort_to_template(template, ordered)})"
    if argument.limit is not None:
        return aggregate, f"arraySlice({template}, 1, {{1}})", [argument.limit]
    return aggregate, template, []


def collect_array(argument: AggregateArgument, *, skip_nulls: bool) -> exp.Expr:
    """Return an expression for the array of a group's values."""
    aggregate, template, parts = array_aggregate_template(argument, skip_nulls=skip_nulls)
    return fragment_node(template, aggregate, *parts)


def _append_sort_to_template(template: str, ordered: list[exp.Expr]) -> str:
    """Return the template of an array with a sort by all keys of ORDER BY added to it.

    The array is sorted by one key after another, beginning with the last one. This works because ClickHouse's sort is
    stable.
    """
    for index, item in reversed(list(enumerate(ordered))):
        is_descending = isinstance(item, exp.Ordered) and bool(item.args.get("desc"))
        nulls_first = item.args.get("nulls_first") if isinstance(item, exp.Ordered) else None
        puts_nulls_first = (not is_descending) if nulls_first is None else bool(nulls_first)
        null_test = "isNotNull" if puts_nulls_first is not is_descending else "isNull"
        name = "arrayReverseSort" if is_descending else "arraySort"
        template = f"{name}(_t -> tuple({null_test}(_t.{index + 2}), _t.{index + 2}), {template})"
    return template


def _translate_array_agg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    aggregate, template, parts = array_aggregate_template(argument, skip_nulls=bool(argument.ignores_nulls))
    return apply_template_outside_window(node, aggregate, template, *parts)


def _translate_array_concat_agg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    aggregate, template, parts = array_aggregate_template(argument, skip_nulls=False)
    datatype = datatype_of(argument.value)
    name = type_name_node(datatype)
    if name is None or datatype is None or datatype.element is None or datatype.element.kind is not Kind.ARRAY:
        return apply_template_outside_window(node, aggregate, f"arrayFlatten({template})", *parts)
    # Use arrayFold, because ClickHouse's arrayFlatten would also flatten arrays inside the elements.
    joined = f"arrayFold((_x, _y) -> arrayConcat(_x, _y), {template}, CAST([], {{{len(parts) + 1}}}))"
    return apply_template_outside_window(node, aggregate, joined, *parts, name)


def _translate_string_agg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    separator = node.args.get("separator") or exp.Literal.string(",")
    if kind_of(argument.value) not in (None, Kind.STRING, Kind.BYTES):
        argument.value = cast_to(node, argument.value, STRING)
    aggregate, template, parts = array_aggregate_template(argument, skip_nulls=True)
    joined = f"arrayStringConcat(arrayMap(_s -> assumeNotNull(_s), {template}), {{{len(parts) + 1}}})"
    # The test for no values comes after the limit, because LIMIT 0 makes the result NULL, too.
    values = "{0}" if argument.limit is None else template
    return apply_template_outside_window(node, aggregate, f"if(empty({values}), NULL, {joined})", *parts, separator)


def _aggregate_rule(name: str, *, cast: str | None = None) -> LoweringRule:
    """Return the rule that lowers an aggregate to ClickHouse's aggregate `name` and casts the result to type `cast`."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        suffix = "Distinct" if argument.is_distinct else ""
        return _cast_aggregate(node, fragment_node(f"{name}{suffix}({{0}})", _aggregated_value(argument, node)), cast)

    return rule


def _cast_aggregate(node: exp.Expr, aggregate: exp.Expr, cast: str | None) -> exp.Expr:
    """Cast an aggregate's result to the type `cast`, if there is one.

    If the aggregate has an OVER, the rule for windows applies the cast, because a cast between an aggregate and its
    OVER is a syntax error.
    """
    return (
        apply_template_outside_window(node, aggregate, f"CAST({{0}}, {quoted_literal_sql(cast)})")
        if cast
        else aggregate
    )


def apply_template_outside_window(node: exp.Expr, aggregate: exp.Expr, template: str, *parts: exp.Expr) -> exp.Expr:
    """Apply a template in which `{0}` is the aggregate's result.

    If the aggregate has an OVER, the template is only stored on the aggregate. The rule for windows then applies it
    outside of the OVER.
    """
    if has_window_or_filter(node):
        aggregate.meta["wrap"] = template, parts
        return aggregate
    return fragment_node(template, aggregate, *parts)


def _aggregated_value(argument: AggregateArgument, node: exp.Expr) -> exp.Expr:
    kind = aggregated_event_value_kind(node)
    if is_event_number(argument.value) and kind is not None:
        return convert_implicitly(argument.value, kind)
    return argument.value


def _translate_sum(node: exp.Expr) -> exp.Expr:
    """Translate SUM, which is NULL if there are no values.

    A sum of INT64 fails on overflow, whereas ClickHouse's own sum would wrap around.
    """
    argument = read_aggregate_argument(node)
    kind = kind_of(node)
    suffix = "Distinct" if argument.is_distinct else ""
    value = _aggregated_value(argument, node)
    if kind is Kind.INT64 and not node.meta_get(_CANNOT_OVERFLOW_METADATA_KEY):
        aggregate = fragment_node(f"sumOrNull{suffix}(toInt128({{0}}))", value)
        return apply_template_outside_window(node, aggregate, "accurateCast({0}, 'Nullable(Int64)')")
    aggregate = fragment_node(f"sumOrNull{suffix}({{0}})", value)
    return _cast_aggregate(
        node,
        aggregate,
        f"Nullable({TYPE_NAME_BY_KIND[kind]})" if kind in (Kind.INT64, *EXACT_NUMERIC_KINDS) and kind else None,
    )


# The meta key that marks a sum which cannot overflow. It is lowered to ClickHouse's own sum, which is three times as
# fast as the sum with a check.
_CANNOT_OVERFLOW_METADATA_KEY: Final = "small"


def _mark_sum_that_cannot_overflow(node: exp.Expr) -> exp.Expr:
    node.meta[_CANNOT_OVERFLOW_METADATA_KEY] = _has_only_small_constants(read_aggregate_argument(node).value)
    return node


def _has_only_small_constants(node: exp.Expr | None) -> bool:
    """Return whether every possible value of the node is a small constant, as in counting by `SUM(IF(…, 1, 0))`."""
    if isinstance(node, exp.Case):
        branches = [branch.args.get("true") for branch in node.args["ifs"]]
        return all(map(_has_only_small_constants, [*branches, node.args.get("default")]))
    if isinstance(node, exp.If):
        return all(map(_has_only_small_constants, (node.args.get("true"), node.args.get("false"))))
    if isinstance(node, exp.Cast):
        return kind_of(node.this) is Kind.BOOL
    return node is None or isinstance(node, exp.Null) or is_int32_constant(node)


def _translate_avg(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    suffix = "Distinct" if argument.is_distinct else ""
    value = _aggregated_value(argument, node)
    kind = kind_of(node)
    if kind not in EXACT_NUMERIC_KINDS:
        return fragment_node(f"avgOrNull{suffix}({{0}})", value)
    count = fragment_node(f"{'uniqExact' if argument.is_distinct else 'count'}({{0}})", copy_tree(value))
    return combine_aggregates(_AVERAGE_TEMPLATE_BY_KIND[kind], fragment_node(f"sumOrNull{suffix}({{0}})", value), count)


# The templates of AVG for NUMERIC and BIGNUMERIC: the sum `{0}` divided by the count `{1}`. ClickHouse's own average
# would be a floating-point number.
_AVERAGE_TEMPLATE_BY_KIND: Final = {
    Kind.NUMERIC: "CAST(round(CAST({0}, 'Nullable(Decimal(76, 18))') / nullIf({1}, 0), 9), 'Nullable(Decimal(38, 9))')",
    Kind.BIGNUMERIC: "({0} / nullIf({1}, 0))",
}


_COUNT_TYPE_NAME = "Int64"


def _translate_count(node: exp.Expr) -> exp.Expr:
    if isinstance(node.this, exp.Star) or node.this is None:
        return _cast_aggregate(node, fragment_node("count()"), _COUNT_TYPE_NAME)
    argument = read_aggregate_argument(node)
    value = argument.value
    if kind_of(value) is Kind.VARIANT:
        value = convert_implicitly(value, Kind.STRING)
    if kind_of(value) is Kind.FLOAT64 and argument.is_distinct:
        value = fragment_node("({0} + 0.)", value)
    return _cast_aggregate(
        node, fragment_node(f"{'uniqExact' if argument.is_distinct else 'count'}({{0}})", value), _COUNT_TYPE_NAME
    )


def _translate_count_if(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    value = _aggregated_value(argument, node)
    template = "uniqExactIf({0}, {0})" if argument.is_distinct else "countIf({0})"
    return _cast_aggregate(node, fragment_node(template, value), _COUNT_TYPE_NAME)


def _boolean_aggregate_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = _aggregated_value(read_aggregate_argument(node), node)
        return _cast_aggregate(node, fragment_node(f"{name}OrNull(toUInt8({{0}}))", value), "Nullable(Bool)")

    return rule


def _min_or_max_rule(name: str) -> LoweringRule:
    """Return the rule of MIN or MAX, which is NaN if any value is NaN.

    Events' values are compared as numbers if all of them are numbers, and otherwise as texts.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        value = read_aggregate_argument(node).value
        if kind_of(value) is Kind.VARIANT:
            return _min_or_max_of_event_values(name, value)
        if kind_of(value) is Kind.FLOAT64:
            return _min_or_max_of_floats(node, name, value)
        if kind_of(value) is Kind.BOOL:
            return _cast_aggregate(node, fragment_node(f"{name}OrNull(toUInt8({{0}}))", value), "Nullable(Bool)")
        return fragment_node(f"{name}OrNull({{0}})", value)

    return rule


def _min_or_max_of_floats(node: exp.Expr, name: str, value: exp.Expr) -> exp.Expr:
    """Return MIN or MAX of floats, computed as the maximum of pairs of a flag and a number.

    The flag is true for NaN, so that NaN is greater than any number. For MIN, the number is negated.
    """
    sign = "" if name == "max" else "-"
    aggregate = fragment_node(
        f"maxOrNullIf(tuple(isNaN(assumeNotNull({{0}})), {sign}assumeNotNull({{0}})), isNotNull({{0}}))", value
    )
    return apply_template_outside_window(node, aggregate, f"if(isNull({{0}}), NULL, {sign}tupleElement({{0}}, 2))")


def _min_or_max_of_event_values(name: str, value: exp.Expr) -> exp.Expr:
    numbers, texts = convert_implicitly(value, Kind.FLOAT64), convert_implicitly(copy_tree(value), Kind.STRING)
    counts = (fragment_node("count({0})", copy_tree(values)) for values in (numbers, texts))
    extremes = (fragment_node(f"{name}OrNull({{0}})", copy_tree(values)) for values in (numbers, texts))
    large_integer = fragment_node(
        f"{name}OrNull(if(length({{0}}) >= {MIN_LARGE_INTEGER_DIGITS}, toInt64OrNull({{0}}), NULL))", texts
    )
    integer = "if(ifNull(toFloat64({4}) = {2}, false), {4}, accurateCastOrNull({2}, 'Int64'))"
    template = f"if({{0}} = {{1}}, {number_as_json_sql('{2}', integer)}, toJSONString({{3}}))"
    return combine_aggregates(template, *counts, *extremes, large_integer)


def _translate_any_value(node: exp.Expr) -> exp.Expr:
    argument = read_aggregate_argument(node)
    if argument.having is not None:
        name = "Max" if argument.having.args.get("max") else "Min"
        return _value_at_min_or_max(name, argument.value, argument.having.expression)
    return (
        fragment_node("anyOrNull({0})", argument.value)
        if kind_of(argument.value) is not Kind.ARRAY
        else fragment_node("any({0})", argument.value)
    )


def _value_at_min_or_max(name: str, value: exp.Expr, key: exp.Expr) -> exp.Expr:
    """Return `value` from a row with the least or greatest `key`; NULL only if `value` is NULL in all such rows."""
    if kind_of(key) is Kind.VARIANT and may_be_number(key):
        key = convert_implicitly(key, Kind.FLOAT64)
    if kind_of(value) in (Kind.ARRAY, Kind.STRUCT):
        return combine_aggregates("tupleElement({0}, 1)", fragment_node(f"arg{name}(tuple({{0}}), {{1}})", value, key))
    extreme = fragment_node(f"{name.lower()}OrNull({{0}})", key)
    extreme_of_present = fragment_node(
        f"{name.lower()}OrNullIf({{0}}, isNotNull({{1}}))", copy_tree(key), copy_tree(value)
    )
    result = fragment_node(f"arg{name}OrNull({{0}}, {{1}})", value, copy_tree(key))
    return combine_aggregates("if({0} = {1}, {2}, NULL)", extreme, extreme_of_present, result)


def _arg_min_or_max_rule(name: str) -> LoweringRule:
    return lambda node: _value_at_min_or_max(name, node.this, node.expression)


def _translate_approx_count_distinct(node: exp.Expr) -> exp.Expr:
    """Translate APPROX_COUNT_DISTINCT to an exact count."""
    value = as_comparable(read_aggregate_argument(node).value)
    return _cast_aggregate(node, fragment_node("uniqExact({0})", value), _COUNT_TYPE_NAME)


def as_comparable(value: exp.Expr) -> exp.Expr:
    return convert_implicitly(value, Kind.STRING) if kind_of(value) is Kind.VARIANT else value


def _translate_grouping(node: exp.Expr) -> exp.Expr:
    return fragment_node("toInt64(grouping({0}))", node.expressions[0] if node.expressions else node.this)


def _covariance_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = convert_implicitly(node.this, Kind.FLOAT64), convert_implicitly(node.expression, Kind.FLOAT64)
        pair = "isNotNull({0}) AND isNotNull({1})"
        aggregate = fragment_node(f"{name}StableOrNullIf({{0}}, {{1}}, {pair})", left, right)
        if name.endswith("Pop"):
            return make_nan_for_infinite_value(
                aggregate, fragment_node("anyOrNull({0} + {1})", copy_tree(left), copy_tree(right))
            )
        return _null_below_two_values(aggregate, fragment_node(f"countIf({pair})", copy_tree(left), copy_tree(right)))

    return rule


def _deviation_rule(name: str) -> LoweringRule:
    """Return the rule of a variance or standard deviation, which uses ClickHouse's numerically stable algorithm.

    ClickHouse's default algorithm subtracts sums of squares. If large values are close to each other, their difference
    loses all digits.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        suffix = "Distinct" if argument.is_distinct else ""
        value = fragment_node("toFloat64({0})", _aggregated_value(argument, node))
        aggregate = fragment_node(f"{name}StableOrNull{suffix}({{0}})", value)
        if name.endswith("Pop"):
            return make_nan_for_infinite_value(aggregate, fragment_node("anyOrNull({0})", copy_tree(value)))
        return _null_below_two_values(
            aggregate, fragment_node(f"{'uniqExact' if argument.is_distinct else 'count'}({{0}})", copy_tree(value))
        )

    return rule


def _null_below_two_values(aggregate: exp.Expr, count: exp.Expr) -> exp.Expr:
    """Return the aggregate with NULL for fewer than two values, for which ClickHouse would return NaN or infinity."""
    return combine_aggregates("if({0} < 2, NULL, {1})", count, aggregate)


def _translate_window(node: exp.Expr) -> exp.Expr:
    wrap = node.this.meta_get("wrap")
    if wrap is None:
        return distribute_window(node)
    template, parts = wrap
    # The node is copied, because it cannot be part of its own replacement.
    return fragment_node(template, copy_tree(node), *parts)


def _navigation_function_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        nulls = "" if argument.ignores_nulls else "_respect_nulls"
        arguments = [node.args[key] for key in ("offset", "default") if node.args.get(key) is not None]
        placeholders = "".join(f", {{{index}}}" for index in range(1, len(arguments) + 1))
        if name == "nth_value" and argument.ignores_nulls:
            # ClickHouse's nth_value does not support IGNORE NULLS. Use groupArray, which skips NULLs.
            return apply_template_outside_window(
                node, fragment_node("groupArray({0})", argument.value), "arrayElementOrNull({0}, {1})", *arguments
            )
        argument.value, arguments = _convert_to_common_type(node, argument.value, arguments)
        if name in ("lag", "lead", "nth_value"):
            return fragment_node(
                f"{name}({_nullable_template(argument.value)}{placeholders})", argument.value, *arguments
            )
        return fragment_node(f"{name}{nulls}({_nullable_template(argument.value)})", argument.value)

    return rule


def _convert_to_common_type(
    node: exp.Expr, value: exp.Expr, arguments: list[exp.Expr]
) -> tuple[exp.Expr, list[exp.Expr]]:
    """Return the value and the other arguments of a navigation function such as LAG.

    If the function has a default, the value and the default are converted to a common type.
    """
    kind = kind_of(node)
    if len(arguments) < 2 or kind is None or kind_of(arguments[1]) is kind_of(value):
        return value, arguments
    return convert_implicitly(value, kind), [arguments[0], convert_implicitly(arguments[1], kind)]


def _nullable_template(value: exp.Expr) -> str:
    """Return the template that makes the value of a navigation function, such as LAG, nullable.

    This is needed because the function returns NULL beyond the frame. Arrays and structs are left unchanged.
    """
    return "{0}" if kind_of(value) in (Kind.ARRAY, Kind.STRUCT) else "toNullable({0})"


def _rank_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        parts = [node.this] if isinstance(node.this, exp.Expr) else []
        return _cast_aggregate(node, fragment_node(f"{name}({{0}})" if parts else f"{name}()", *parts), "Int64")

    return rule


# A distance, in rows, that is greater than the number of rows of any partition.
_OFFSET_BEYOND_PARTITION_ROWS: Final = 1_000_000_000


def _translate_frame(node: exp.Expr) -> exp.Expr:
    """Replace a window frame that ends before it begins by a frame beyond all rows, which is empty as well.

    This is needed because ClickHouse rejects the original frame.
    """
    side = node.args.get("start_side")
    start, end = (_frame_offset(node.args.get(key)) for key in ("start", "end"))
    if start is None or end is None or side != node.args.get("end_side"):
        return node
    if (start < end) if side == "PRECEDING" else (start > end):
        beyond = exp.Literal.number(_OFFSET_BEYOND_PARTITION_ROWS)
        for key in ("start", "end"):
            node.set(key, copy_tree(beyond))
            node.set(f"{key}_side", "FOLLOWING")
    return node


def _frame_offset(bound: object) -> int | None:
    """Return the literal offset of a frame's bound; None for UNBOUNDED and CURRENT ROW, which are texts in the tree."""
    return constant_int(bound) if isinstance(bound, exp.Expr) else None


def _translate_approx_quantiles(node: exp.Expr) -> exp.Expr:
    argument, count = read_quantiles(node)
    argument.value = NUMBER_RULES.to_number(argument.value)
    aggregate, values_sql, parts = array_aggregate_template(argument, skip_nulls=argument.ignores_nulls is not False)
    in_order = f"arraySort(_t -> tuple(isNotNull(_t), _t), {values_sql})"
    # Quantile number q of `count` is the sorted value with the rank q / `count` times the number of values, rounded up.
    rank = f"greatest(1, toInt64(ceil(length({in_order}) * _q / {count})))"
    picked = f"arrayMap(_q -> {in_order}[{rank}], range({count + 1}))"
    result = apply_template_outside_window(node, aggregate, f"if(empty({values_sql}), [], {picked})", *parts)
    # Over no rows, the result is an empty array that stands for NULL. The mark makes a subscript of it NULL instead of
    # an error.
    result.meta[MAY_BE_NULL_METADATA_KEY] = True
    return result


def _translate_approx_top_count(node: exp.Expr) -> exp.Expr:
    """Translate APPROX_TOP_COUNT, which returns the most frequent values with their counts; NULL counts as a value."""
    limit: exp.Expr = node.args.get("counters") or node.args["expression"]
    value = as_comparable(read_aggregate_argument(node).value)
    return _sort_top_pairs("sumMap([tuple({0})], [toInt64(1)])", node, [value, limit])


def _translate_approx_top_sum(node: exp.Expr) -> exp.Expr:
    """Translate APPROX_TOP_SUM by adding up arrays of weights, because ClickHouse's sumMap omits sums that are zero."""
    weight = NUMBER_RULES.to_number(node.expression)
    message = "A weight of APPROX_TOP_SUM must not be negative or NaN"
    weight = fill_template(fail_if_sql(node, "NOT (@a >= 0)", message, "@a"), weight)
    rows = "groupArray(tuple(tuple({0}), {2}))"
    weights = f"arrayMap(_t -> _t.2, arrayFilter(_t -> _t.1 = _k AND isNotNull(_t.2), {rows}))"
    total = f"if(empty({weights}), NULL, arraySum(arrayMap(_w -> assumeNotNull(_w), {weights})))"
    keys = f"arrayDistinct(arrayMap(_t -> _t.1, {rows}))"
    total = total.replace("_t.1 = _k", "toString(_t.1) = toString(_k)")
    pairs = f"arrayMap(_k -> tuple(_k, {total}), {keys})"
    return _limit_top_pairs(
        f"arrayReverseSort(_t -> tuple(isNotNull(_t.2), _t.2), {pairs})",
        node,
        [as_comparable(node.this), node.args["count"], weight],
    )


def _sort_top_pairs(counted: str, node: exp.Expr, parts: list[exp.Expr]) -> exp.Expr:
    pairs = f"arrayZip(({counted}).1, ({counted}).2)"
    return _limit_top_pairs(f"arrayReverseSort(_t -> tuple(_t.2, _t.1), {pairs})", node, parts)


def _limit_top_pairs(in_order: str, node: exp.Expr, parts: list[exp.Expr]) -> exp.Expr:
    """Return the first pairs of a value and its count or sum, up to the limit, as an array of the result's type."""
    pairs = f"arrayMap(_t -> tuple(_t.1.1, _t.2), arraySlice({in_order}, 1, {{1}}))"
    type_name = type_name_node(datatype_of(node))
    return (
        fragment_node(f"CAST({pairs}, {{{len(parts)}}})", *parts, type_name)
        if type_name
        else fragment_node(pairs, *parts)
    )


def _percentile_rule(name: str) -> LoweringRule:
    """Return the rule of PERCENTILE_CONT or PERCENTILE_DISC.

    RESPECT NULLS is refused, because ClickHouse's exact quantiles do not accept NULL. For no rows, these quantiles
    would return NaN; the suffix OrNull changes this to NULL.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_aggregate_argument(node)
        if argument.ignores_nulls is False:
            raise_unsupported(node, "A percentile with RESPECT NULLS")
        if name == "disc":
            return _discrete_percentile(node, argument)
        value = convert_implicitly(argument.value, Kind.FLOAT64) if kind_of(argument.value) else argument.value
        return fragment_node(f"{name}OrNull({{1}})({{0}})", value, _percentile_fraction_literal(node.expression))

    return rule


def _discrete_percentile(node: exp.Expr, argument: AggregateArgument) -> exp.Expr:
    """Return the first of the sorted values whose rank divided by the number of values is at least the given share.

    The rank is computed as the share times the number of values, rounded down. If the rank divided by the number of
    values is still below the share, the rank is increased by one. This also corrects a product that floating-point
    arithmetic has rounded to just below an integer.
    """
    aggregate, values_sql, parts = array_aggregate_template(argument, skip_nulls=True)
    share = f"{{{len(parts) + 1}}}"
    rank = f"arrayMap(_n -> _n + (_n / length(_l) < {share}), [toInt64(floor(length(_l) * {share}))])[1]"
    picked = f"arrayMap(_l -> _l[greatest(1, {rank})], [arraySort({values_sql})])[1]"
    return apply_template_outside_window(
        node, aggregate, f"if(empty({values_sql}), NULL, {picked})", *parts, node.expression
    )


def _percentile_fraction_literal(node: exp.Expr) -> exp.Expr:
    """Return a percentile's share as a literal, because ClickHouse takes it as a parameter of the aggregate."""
    value = constant_python_value(node)
    value = node.meta_get(_PERCENTILE_FRACTION_METADATA_KEY) if value is None else value
    return exp.Literal.number(float(value)) if value is not None else node


# The meta key of a percentile's share that is written with a type, such as NUMERIC '0.5'. Its value is the share as a
# number.
_PERCENTILE_FRACTION_METADATA_KEY: Final = "share"


def _record_percentile_fraction(node: exp.Expr) -> exp.Expr:
    share = node.expression
    if isinstance(share, exp.Cast) and kind_of(share) in NUMBER_KINDS:
        share.meta[_PERCENTILE_FRACTION_METADATA_KEY] = constant_python_value(share.this)
    return node


RULES = RuleSet(
    by_node_class={
        exp.ApproxQuantiles: _translate_approx_quantiles,
        exp.ApproxTopK: _translate_approx_top_count,
        exp.ApproxTopSum: _translate_approx_top_sum,
        exp.PercentileCont: _percentile_rule("quantileExactInclusive"),
        exp.PercentileDisc: _percentile_rule("disc"),
        exp.ArrayAgg: _translate_array_agg,
        exp.ArrayConcatAgg: _translate_array_concat_agg,
        exp.GroupConcat: _translate_string_agg,
        exp.Count: _translate_count,
        exp.CountIf: _translate_count_if,
        exp.LogicalAnd: _boolean_aggregate_rule("min"),
        exp.LogicalOr: _boolean_aggregate_rule("max"),
        exp.Sum: _translate_sum,
        exp.Avg: _translate_avg,
        exp.Min: _min_or_max_rule("min"),
        exp.Max: _min_or_max_rule("max"),
        exp.AnyValue: _translate_any_value,
        exp.ArgMax: _arg_min_or_max_rule("Max"),
        exp.ArgMin: _arg_min_or_max_rule("Min"),
        exp.ApproxDistinct: _translate_approx_count_distinct,
        **dict.fromkeys((exp.IgnoreNulls, exp.RespectNulls), drop_nulls_modifier),
        exp.Grouping: _translate_grouping,
        exp.BitwiseAndAgg: _aggregate_rule("groupBitAndOrNull", cast="Nullable(Int64)"),
        exp.BitwiseOrAgg: _aggregate_rule("groupBitOrOrNull", cast="Nullable(Int64)"),
        exp.BitwiseXorAgg: _aggregate_rule("groupBitXorOrNull", cast="Nullable(Int64)"),
        exp.Stddev: _deviation_rule("stddevSamp"),
        exp.StddevSamp: _deviation_rule("stddevSamp"),
        exp.StddevPop: _deviation_rule("stddevPop"),
        exp.Variance: _deviation_rule("varSamp"),
        exp.VariancePop: _deviation_rule("varPop"),
        exp.Corr: _covariance_rule("corr"),
        exp.CovarPop: _covariance_rule("covarPop"),
        exp.CovarSamp: _covariance_rule("covarSamp"),
        exp.WindowSpec: _translate_frame,
        exp.Window: _translate_window,
        exp.FirstValue: _navigation_function_rule("first_value"),
        exp.LastValue: _navigation_function_rule("last_value"),
        exp.NthValue: _navigation_function_rule("nth_value"),
        exp.Lead: _navigation_function_rule("lead"),
        exp.Lag: _navigation_function_rule("lag"),
        exp.RowNumber: _rank_rule("row_number"),
        exp.Rank: _rank_rule("rank"),
        exp.DenseRank: _rank_rule("dense_rank"),
        exp.Ntile: _rank_rule("ntile"),
        exp.CumeDist: lambda _: fragment_node("cume_dist()"),
    },
    by_node_class_before_children={
        exp.Sum: _mark_sum_that_cannot_overflow,
        exp.PercentileCont: _record_percentile_fraction,
    },
)
