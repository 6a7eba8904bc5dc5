"""Translators of conditional functions, of functions that return conditions, and of functions for operators."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall, checked_arguments
from cordwood.clickhouse_sql.comparisons import compare_values, null_test
from cordwood.clickhouse_sql.translate import build_case, unify_values
from cordwood.clickhouse_sql.values import FLAG, TypedValue, flag_value, parenthesize_if_operation
from cordwood.sql.budget import copy_tree

_CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]


def _translate_if(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    condition, then, otherwise = checked_arguments(translator, call, 3)
    return build_case(
        translator,
        call.node,
        [translator.filter_condition_node(condition)],
        [translator.translate_expression(then), translator.translate_expression(otherwise)],
    )


def _translate_multi_if(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    parts = checked_arguments(translator, call, 3, -1)
    if len(parts) % 2 == 0:
        raise translator.refused_error(call.node, "multiIf takes pairs of a condition and a value, and one value more.")
    conditions = [translator.filter_condition_node(part) for part in parts[:-1:2]]
    return build_case(
        translator, call.node, conditions, [translator.translate_expression(part) for part in (*parts[1::2], parts[-1])]
    )


def _translate_coalesce(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    values = [translator.value_with_default_for_null(part) for part in checked_arguments(translator, call, 1, -1)]
    nodes, type_ = unify_values(translator, call.node, values)
    if len(nodes) == 1:
        return TypedValue(nodes[0], type_)
    coalesced = exp.Coalesce(this=nodes[0], expressions=nodes[1:])
    coalesced.meta["bigquery_name"] = "COALESCE"
    is_nullable = all(value.type.is_nullable for value in values)
    return TypedValue(coalesced, msgspec.structs.replace(type_, is_nullable=is_nullable))


def _translate_null_if(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    left, right = checked_arguments(translator, call, 2)
    value, sentinel = translator.translate_expression(left), translator.value_with_default_for_null(right)
    if value.type.name in ("Array", "Map", "Interval"):
        raise translator.refused_error(
            left, f"{value.type.with_capital_article} cannot be NULL.", "Compare a value of it."
        )
    if value.default_for_null is not None and value.default_for_null == sentinel.constant_value:
        # NULL in the first argument stands for a default, to which the second argument is equal. NULL need not be
        # replaced by this default, because nullif returns NULL in either case.
        nullif = translator.fill_template(call.node, "nullif(@value, @other)", value=value.node, other=sentinel.node)
        return TypedValue(nullif, value.type.as_nullable())
    value = value.with_default_for_null()
    if value.type.name != sentinel.type.name:
        nodes, type_ = unify_values(translator, call.node, [value, sentinel])
        value, sentinel = TypedValue(nodes[0], type_), TypedValue(nodes[1], type_)
    return TypedValue(
        translator.fill_template(call.node, "nullif(@value, @other)", value=value.node, other=sentinel.node),
        value.type.as_nullable(),
    )


def _null_test_translator(*, negated: bool) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        test = null_test(translator.value_with_default_for_null(*checked_arguments(translator, call, 1)))
        if not negated:
            return test
        if test.is_constant:
            return flag_value(is_true=not test.constant_value)
        return TypedValue(exp.Not(this=test.node), FLAG)

    return translate_call


def _comparison_translator(kind: type[exp.Expr]) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        left, right = checked_arguments(translator, call, 2)
        return compare_values(
            translator,
            kind(this=copy_tree(left), expression=copy_tree(right)),
            translator.translate_expression(left),
            translator.translate_expression(right),
        )

    return translate_call


def _operator_translator(
    make: Callable[[tuple[exp.Expr, ...]], exp.Expr], minimum: int, maximum: int
) -> _CallTranslator:
    """Return the translator of a function that does the same as an operator; `make` creates the operator's node."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        return translator.translate_expression(
            make(tuple(copy_tree(part) for part in checked_arguments(translator, call, minimum, maximum)))
        )

    return translate_call


def _translate_xor(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    left, right = (translator.condition_value(part) for part in checked_arguments(translator, call, 2))
    nullable = left.type.is_nullable or right.type.is_nullable
    inequality = exp.NEQ(this=parenthesize_if_operation(left.node), expression=parenthesize_if_operation(right.node))
    return TypedValue(inequality, msgspec.structs.replace(FLAG, is_nullable=nullable))


def _connector_node_maker(kind: type[exp.Expr]) -> Callable[[tuple[exp.Expr, ...]], exp.Expr]:
    def make_connector_node(parts: tuple[exp.Expr, ...]) -> exp.Expr:
        chained = parts[0]
        for part in parts[1:]:
            chained = kind(this=chained, expression=part)
        return chained

    return make_connector_node


TRANSLATOR_BY_FUNCTION: Final[Mapping[str, _CallTranslator]] = {
    "if": _translate_if,
    "multiif": _translate_multi_if,
    "coalesce": _translate_coalesce,
    "ifnull": _translate_coalesce,
    "nullif": _translate_null_if,
    "isnull": _null_test_translator(negated=False),
    "isnotnull": _null_test_translator(negated=True),
    "equals": _comparison_translator(exp.EQ),
    "notequals": _comparison_translator(exp.NEQ),
    "less": _comparison_translator(exp.LT),
    "lessorequals": _comparison_translator(exp.LTE),
    "greater": _comparison_translator(exp.GT),
    "greaterorequals": _comparison_translator(exp.GTE),
    "and": _operator_translator(_connector_node_maker(exp.And), 2, -1),
    "or": _operator_translator(_connector_node_maker(exp.Or), 2, -1),
    "not": _operator_translator(lambda parts: exp.Not(this=parts[0]), 1, 1),
    "xor": _translate_xor,
    "like": _operator_translator(lambda parts: exp.Like(this=parts[0], expression=parts[1]), 2, 2),
    "ilike": _operator_translator(lambda parts: exp.ILike(this=parts[0], expression=parts[1]), 2, 2),
    "notlike": _operator_translator(lambda parts: exp.Like(this=parts[0], expression=parts[1], negate=True), 2, 2),
    "notilike": _operator_translator(lambda parts: exp.ILike(this=parts[0], expression=parts[1], negate=True), 2, 2),
    "plus": _operator_translator(lambda parts: exp.Add(this=parts[0], expression=parts[1]), 2, 2),
    "minus": _operator_translator(lambda parts: exp.Sub(this=parts[0], expression=parts[1]), 2, 2),
    "multiply": _operator_translator(lambda parts: exp.Mul(this=parts[0], expression=parts[1]), 2, 2),
    "divide": _operator_translator(lambda parts: exp.Div(this=parts[0], expression=parts[1]), 2, 2),
    "modulo": _operator_translator(lambda parts: exp.Mod(this=parts[0], expression=parts[1]), 2, 2),
    "negate": _operator_translator(lambda parts: exp.Neg(this=parts[0]), 1, 1),
}
