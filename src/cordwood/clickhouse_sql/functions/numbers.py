"""Translators of ClickHouse's numeric functions."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall, checked_arguments
from cordwood.clickhouse_sql.translate import as_float, unify_values
from cordwood.clickhouse_sql.values import FLAG, FLOAT, INT, ClickHouseType, TypedValue, literal_node
from cordwood.sql.nodes import internal_call

_CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]


def _copy_nullability(type_: ClickHouseType, value: TypedValue) -> ClickHouseType:
    return msgspec.structs.replace(type_, is_nullable=value.type.is_nullable)


def _rounding_translator(name: str) -> _CallTranslator:
    """Return the translator of a rounding function. Integers stay integers; `round` rounds floats half to even."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, *rest = checked_arguments(translator, call, 1, 2)
        value = translator.number_value(node)
        digits = int(translator.constant_number(rest[0], "The number of digits")) if rest else 0
        if value.type.name == "Int64":
            if digits >= 0:
                return value
            if name == "round" and digits >= -15:
                parts = {"value": value.node, "digits": literal_node(digits)}
                rounded = translator.fill_template(
                    call.node, "cast(round(cast(@value as float64), @digits) as int64)", **parts
                )
                return TypedValue(rounded, value.type)
            raise translator.refused_error(call.node, "A negative number of digits is not supported.")
        if not -15 <= digits <= 15:
            raise translator.refused_error(call.node, "At most 15 digits are supported.")
        if name == "round":
            return TypedValue(
                internal_call("round_even", value.node, exp.Literal.string(str(digits))),
                _copy_nullability(FLOAT, value),
            )
        if digits == 0:
            return TypedValue(
                translator.fill_template(call.node, f"{name}(@value)", value=value.node),
                _copy_nullability(FLOAT, value),
            )
        scaled = internal_call("ieee_multiply", value.node, literal_node(float(10**digits)))
        template = f"ieee_divide({name}(@scaled), @scale)"
        return TypedValue(
            translator.fill_template(call.node, template, scaled=scaled, scale=literal_node(float(10**digits))),
            _copy_nullability(FLOAT, value),
        )

    return translate_call


def _translate_sqrt(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    value = as_float(translator.number_value(*checked_arguments(translator, call, 1)))
    template = "if(@value < 0, cast('nan' as float64), sqrt(@value))"
    return TypedValue(translator.fill_template(call.node, template, value=value.node), _copy_nullability(FLOAT, value))


def _ieee_function_translator(name: str, count: int) -> _CallTranslator:
    """Return the translator of a function that never fails; it calls the internal function `name` of `count` floats."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        values = [as_float(translator.number_value(part)) for part in checked_arguments(translator, call, count)]
        type_ = msgspec.structs.replace(FLOAT, is_nullable=any(value.type.is_nullable for value in values))
        return TypedValue(internal_call(name, *(value.node for value in values)), type_)

    return translate_call


def _translate_abs(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    value = translator.number_value(*checked_arguments(translator, call, 1))
    return TypedValue(translator.fill_template(call.node, "abs(@value)", value=value.node), value.type)


def _translate_int_div(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    left, right = (translator.number_value(part) for part in checked_arguments(translator, call, 2))
    if "Float64" in (left.type.name, right.type.name):
        raise translator.refused_error(call.node, "intDiv takes whole numbers.", "Convert them with toInt64(…).")
    quotient = translator.fill_template(call.node, "div(@left, @right)", left=left.node, right=right.node)
    return TypedValue(
        quotient, msgspec.structs.replace(INT, is_nullable=left.type.is_nullable or right.type.is_nullable)
    )


def _greatest_or_least_translator(name: str) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        values = [translator.value_with_default_for_null(part) for part in checked_arguments(translator, call, 1, -1)]
        nodes, type_ = unify_values(translator, call.node, values)
        if any(value.type.is_nullable for value in values):
            raise translator.refused_error(
                call.node, f"{name} of what may be NULL is not supported.", "Write coalesce(…) around it."
            )
        kind = exp.Greatest if name == "greatest" else exp.Least
        extreme = kind(this=nodes[0], expressions=nodes[1:])
        extreme.meta["bigquery_name"] = name.upper()
        return TypedValue(extreme, type_)

    return translate_call


def _float_test_translator(template: str) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        value = as_float(translator.number_value(*checked_arguments(translator, call, 1)))
        return TypedValue(translator.fill_template(call.node, template, a=value.node), _copy_nullability(FLAG, value))

    return translate_call


TRANSLATOR_BY_FUNCTION: Final[Mapping[str, _CallTranslator]] = {
    "round": _rounding_translator("round"),
    "floor": _rounding_translator("floor"),
    "ceil": _rounding_translator("ceil"),
    "ceiling": _rounding_translator("ceil"),
    "trunc": _rounding_translator("trunc"),
    "truncate": _rounding_translator("trunc"),
    "abs": _translate_abs,
    "intdiv": _translate_int_div,
    "exp": _ieee_function_translator("ieee_exp", 1),
    "sqrt": _translate_sqrt,
    "pow": _ieee_function_translator("ieee_power", 2),
    "power": _ieee_function_translator("ieee_power", 2),
    "greatest": _greatest_or_least_translator("greatest"),
    "least": _greatest_or_least_translator("least"),
    "isnan": _float_test_translator("is_nan(@a)"),
    "isinfinite": _float_test_translator("is_inf(@a)"),
    "isfinite": _float_test_translator("not (is_nan(@a) or is_inf(@a))"),
}
