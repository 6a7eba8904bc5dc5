"""Translators of aggregate functions.

Over no rows, an aggregate returns the default value of its type. An average, deviation or quantile returns NaN instead.
If the argument is a condition, its values count as 0 or 1.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall
from cordwood.clickhouse_sql.casts import MAP_HINT
from cordwood.clickhouse_sql.translate import as_float, value_with_default_of_type
from cordwood.clickhouse_sql.values import FLOAT, INT, ClickHouseType, TypedValue, array_type_of, literal_node
from cordwood.sql.nodes import internal_call

_AggregateTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]

_NAN_SQL: Final = "cast('nan' as float64)"
_MAX_GROUP_ARRAY_ELEMENTS: Final = 10_000


def translate_aggregate(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate a call of an aggregate function; `translator` translates its arguments, which may read columns."""
    return _TRANSLATOR_BY_AGGREGATE[call.name](translator, call)


def _checked_arguments(
    translator: ArgumentTranslator, call: FunctionCall, count: int, parameters: int = 0
) -> tuple[exp.Expr, ...]:
    if call.is_distinct and call.name not in ("count", "uniq", "uniqexact", "sum", "grouparray"):
        raise translator.refused_error(call.node, f"{call.display_name} of DISTINCT values is not supported.")
    if len(call.arguments) != count:
        raise translator.refused_error(
            call.node, f"{call.display_name} takes {count} arguments, and {len(call.arguments)} were given."
        )
    if len(call.aggregate_parameters) > parameters:
        raise translator.refused_error(
            call.node, f"{call.display_name} has no parameters in brackets before its arguments."
        )
    return call.arguments


def _apply_if_condition(translator: ArgumentTranslator, call: FunctionCall, node: exp.Expr) -> exp.Expr:
    """Return an aggregate's argument; with the suffix If, the argument is NULL in rows that fail the condition."""
    if call.if_condition is None:
        return node
    return translator.fill_template(
        call.node,
        "if(@condition, @value, null)",
        condition=translator.filter_condition_node(call.if_condition),
        value=node,
    )


def _use_default_for_no_rows(
    translator: ArgumentTranslator, call: FunctionCall, aggregated: exp.Expr, type_: ClickHouseType
) -> TypedValue:
    return value_with_default_of_type(translator, call.node, aggregated, type_)


def _translate_count(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    if call.is_distinct:
        return _translate_uniq(translator, call)
    if len(call.arguments) > 1:
        raise translator.refused_error(call.node, "count takes at most 1 argument.")
    value = translator.value_with_default_for_null(call.arguments[0]) if call.arguments else None
    if call.if_condition is not None:
        condition = translator.filter_condition_node(call.if_condition)
        if value is not None and value.type.is_nullable:
            condition = translator.fill_template(
                call.node, "@condition and @value is not null", condition=condition, value=value.node
            )
        return TypedValue(translator.fill_template(call.node, "countif(@condition)", condition=condition), INT)
    if value is None or not value.type.is_nullable:
        return TypedValue(translator.fill_template(call.node, "count(*)"), INT)
    return TypedValue(translator.fill_template(call.node, "count(@value)", value=value.node), INT)


def _translate_uniq(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate uniq and related functions to an exact count, whereas ClickHouse's uniq is approximate."""
    if len(call.arguments) > 1:
        hint = "Write uniq(concat(a, '/', b)), or count the rows of SELECT DISTINCT a, b in brackets."
        raise translator.refused_error(call.node, f"{call.display_name} of several values is not supported.", hint)
    (node,) = _checked_arguments(translator, call, 1)
    value = translator.value_with_default_for_null(node)
    if value.type.name == "Map":
        raise translator.refused_error(node, "Maps cannot be counted so.", MAP_HINT)
    distinct = _apply_if_condition(translator, call, value.node)
    return TypedValue(translator.fill_template(call.node, "count(distinct @value)", value=distinct), INT)


def _translate_sum(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = _checked_arguments(translator, call, 1)
    value = translator.number_value(node)
    distinct = "distinct " if call.is_distinct else ""
    aggregated = translator.fill_template(
        call.node, f"sum({distinct}@value)", value=_apply_if_condition(translator, call, value.node)
    )
    return _use_default_for_no_rows(translator, call, aggregated, value.type)


def _translate_avg(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = _checked_arguments(translator, call, 1)
    value = as_float(translator.number_value(node))
    aggregated = translator.fill_template(
        call.node, "avg(@value)", value=_apply_if_condition(translator, call, value.node)
    )
    return _use_nan_for_no_rows(translator, call, aggregated, value)


def _use_nan_for_no_rows(
    translator: ArgumentTranslator, call: FunctionCall, aggregated: exp.Expr, value: TypedValue
) -> TypedValue:
    """Return the aggregate with NaN as its result over no rows; if `value` is nullable, the result stays NULL."""
    if value.type.is_nullable:
        return TypedValue(aggregated, FLOAT.as_nullable())
    return TypedValue(translator.fill_template(call.node, f"coalesce(@value, {_NAN_SQL})", value=aggregated), FLOAT)


def _dispersion_translator(name: str) -> _AggregateTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = _checked_arguments(translator, call, 1)
        value = as_float(translator.number_value(node))
        aggregated = translator.fill_template(
            call.node, f"{name}(@value)", value=_apply_if_condition(translator, call, value.node)
        )
        return _use_nan_for_no_rows(translator, call, aggregated, value)

    return translate_call


def _single_value_translator(name: str) -> _AggregateTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = _checked_arguments(translator, call, 1)
        value = _replace_nan_with_null(_comparable_value(translator, node), name)
        aggregated = translator.fill_template(
            call.node, f"{name}(@value)", value=_apply_if_condition(translator, call, value.node)
        )
        return _use_default_for_no_rows(translator, call, aggregated, value.type)

    return translate_call


def _replace_nan_with_null(value: TypedValue, name: str = "") -> TypedValue:
    """Return the value with NaN replaced by NULL, because ClickHouse's aggregates ignore NaN."""
    if value.type.name != "Float64" or value.is_constant or name == "any_value":
        return value
    return msgspec.structs.replace(value, node=internal_call("not_nan", value.node))


def _comparable_value(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    value = translator.value_with_default_for_null(node)
    if value.type.name in ("UInt8", "Bool"):
        return translator.number_value(node)
    if value.type.name in ("Map", "Array", "Interval"):
        raise translator.refused_error(node, f"{value.type.with_capital_article} cannot be aggregated so.")
    return value


def _argument_at_extreme_translator(name: str) -> _AggregateTranslator:
    """Return the translator of argMin or argMax.

    These functions return the first argument's value in a row where the second argument is smallest or largest. Rows in
    which one of the arguments is NULL are ignored. If an argument may be NULL, the result over no rows is NULL.
    """

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, order_node = _checked_arguments(translator, call, 2)
        value, order = _comparable_value(translator, node), _comparable_value(translator, order_node)
        parts = {"value": value.node, "order": _apply_if_condition(translator, call, order.node)}
        if value.type.is_nullable:
            parts["order"] = translator.fill_template(call.node, "if(@value is null, null, @order)", **parts)
        type_ = value.type.as_nullable() if order.type.is_nullable else value.type
        return _use_default_for_no_rows(
            translator, call, translator.fill_template(call.node, f"{name}(@value, @order)", **parts), type_
        )

    return translate_call


def _group_array_translator(*, is_distinct: bool) -> _AggregateTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = _checked_arguments(translator, call, 1, parameters=1)
        value = _comparable_value(translator, node)
        if value.type.name == "Nothing":
            raise translator.refused_error(call.node, "NULL cannot be gathered in an array.")
        distinct = "distinct " if is_distinct or call.is_distinct else ""
        limit = f" limit {_read_max_elements(translator, call)}" if call.aggregate_parameters else ""
        template = f"array_agg({distinct}@value ignore nulls{limit})"
        aggregated = translator.fill_template(
            call.node, template, value=_apply_if_condition(translator, call, value.node)
        )
        return TypedValue(
            translator.fill_template(call.node, "coalesce(@value, [])", value=aggregated),
            array_type_of(value.type.as_not_null()),
        )

    return translate_call


def _read_max_elements(translator: ArgumentTranslator, call: FunctionCall) -> int:
    maximum = int(translator.constant_number(call.aggregate_parameters[0], "The number of values"))
    if not 1 <= maximum <= _MAX_GROUP_ARRAY_ELEMENTS:
        raise translator.refused_error(call.node, f"From 1 to {_MAX_GROUP_ARRAY_ELEMENTS} values can be gathered.")
    return maximum


def _quantile_translator(name: str, level: float | None = None) -> _AggregateTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = _checked_arguments(translator, call, 1, parameters=1)
        share = (
            translator.constant_number(call.aggregate_parameters[0], "The level of a quantile")
            if call.aggregate_parameters
            else level or 0.5
        )
        if not 0 <= share <= 1:
            raise translator.refused_error(call.node, "The level of a quantile lies between 0 and 1.")
        value = _replace_nan_with_null(as_float(translator.number_value(node)))
        aggregated = internal_call(name, _apply_if_condition(translator, call, value.node), literal_node(float(share)))
        return _use_nan_for_no_rows(translator, call, aggregated, value)

    return translate_call


_TRANSLATOR_BY_AGGREGATE: Final[Mapping[str, _AggregateTranslator]] = {
    "any": _single_value_translator("any_value"),
    "anylast": _single_value_translator("any_value"),
    "argmax": _argument_at_extreme_translator("max_by"),
    "argmin": _argument_at_extreme_translator("min_by"),
    "avg": _translate_avg,
    "count": _translate_count,
    "countdistinct": _translate_uniq,
    "grouparray": _group_array_translator(is_distinct=False),
    "groupuniqarray": _group_array_translator(is_distinct=True),
    "max": _single_value_translator("max"),
    "median": _quantile_translator("quantile"),
    "min": _single_value_translator("min"),
    "quantile": _quantile_translator("quantile"),
    "quantileexactinclusive": _quantile_translator("quantile"),
    "quantiletdigest": _quantile_translator("quantile_tdigest"),
    "stddevpop": _dispersion_translator("stddev_pop"),
    "stddevsamp": _dispersion_translator("stddev_samp"),
    "sum": _translate_sum,
    **dict.fromkeys(("uniq", "uniqcombined", "uniqexact", "uniqhll12"), _translate_uniq),
    "varpop": _dispersion_translator("var_pop"),
    "varsamp": _dispersion_translator("var_samp"),
}

AGGREGATE_NAMES: Final = frozenset(_TRANSLATOR_BY_AGGREGATE)
