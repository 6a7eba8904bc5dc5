"""Conversion functions: toInt64, toFloat64OrZero, toString and the like."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.casts import cast_to
from cordwood.clickhouse_sql.expressions import ArgumentTranslator, arguments
from cordwood.clickhouse_sql.values import BOOL, FLOAT, INT, STRING, Type, Value, literal_node, text_value
from cordwood.sql.nodes import internal

_FunctionTranslation = Callable[[ArgumentTranslator, Call], Value]

_INTEGER_BITS: Final = {
    "toint8": 8,
    "toint16": 16,
    "toint32": 32,
    "toint64": 64,
    "touint8": 8,
    "touint16": 16,
    "touint32": 32,
    "touint64": 64,
}


def _int_or_default(bits: int, *, is_signed: bool, is_null: bool) -> _FunctionTranslation:
    """Return the conversion of decimal text to an integer; other texts and numbers out of range are 0 or NULL."""
    minimum = -(2 ** (bits - 1)) if is_signed else 0
    maximum = 2 ** (bits - 1) - 1 if is_signed else min(2**bits, 2**63) - 1

    def translate_call(translator: ArgumentTranslator, call: Call) -> Value:
        text = _text_argument(translator, *arguments(translator, call, 1))
        bounds = [exp.Literal.string(str(minimum)), exp.Literal.string(str(maximum))]
        converted = internal("whole_number", text.node, *bounds)
        return Value(converted, INT.or_null()) if is_null else Value(converted, INT, default=0)

    return translate_call


def _float_or_default(*, is_null: bool) -> _FunctionTranslation:
    def translate_call(translator: ArgumentTranslator, call: Call) -> Value:
        converted = internal("float_number", _text_argument(translator, *arguments(translator, call, 1)).node)
        return Value(converted, FLOAT.or_null()) if is_null else Value(converted, FLOAT, default=0)

    return translate_call


def _text_argument(translator: ArgumentTranslator, node: exp.Expr) -> Value:
    """Return the argument, which must be text.

    NULL for a missing key needs no default, since neither NULL nor empty text is a number.
    """
    value = translator.value(node)
    if value.type.name != "String":
        hint = "Numbers need no conversion: write toInt64(…) for another type."
        raise translator.refusal(node, f"A text is wanted here, and this is a {value.type}.", hint)
    return value


def _cast_function(type_: Type) -> _FunctionTranslation:
    def translate_call(translator: ArgumentTranslator, call: Call) -> Value:
        (node,) = arguments(translator, call, 1)
        value = translator.value_with_default(node)
        converted = cast_to(translator, call.node, value, type_)
        return msgspec.structs.replace(
            converted, type=msgspec.structs.replace(converted.type, nullable=value.type.nullable)
        )

    return translate_call


def _to_int(bits: int, *, is_signed: bool) -> _FunctionTranslation:
    """Return the conversion to an integer, of which the lower bits are kept."""
    cast = _cast_function(INT)
    count = 2**bits
    low = count // 2 if is_signed else 0

    def translate_call(translator: ArgumentTranslator, call: Call) -> Value:
        converted = cast(translator, call)
        if bits == _MAX_BITS:
            return converted
        if isinstance(converted.constant, int):
            number = (converted.constant + low) % count - low
            return msgspec.structs.replace(converted, node=literal_node(number), constant=number)
        parts = {
            name: literal_node(number) for name, number in (("count", count), ("above", count + low), ("low", low))
        }
        wrapped = translator.fill(
            call.node, "mod(mod(@value, @count) + @above, @count) - @low", value=converted.node, **parts
        )
        return Value(wrapped, converted.type)

    return translate_call


_MAX_BITS: Final = 64


def _to_string(translator: ArgumentTranslator, call: Call) -> Value:
    (node,) = arguments(translator, call, 1)
    value = translator.value(node)
    return value if value.type.name == "String" else cast_to(translator, call.node, value, STRING)


def _translate_uuid(translator: ArgumentTranslator, call: Call) -> Value:
    """Return a constant UUID in the form of event ids: text in lower case."""
    (node,) = arguments(translator, call, 1)
    text = translator.constant_text(node, "A UUID")
    return text_value(text.lower())


def _integer_functions() -> dict[str, _FunctionTranslation]:
    functions: dict[str, _FunctionTranslation] = {}
    for name, bits in _INTEGER_BITS.items():
        is_signed = not name.startswith("tou")
        functions[name] = _to_int(bits, is_signed=is_signed)
        functions[f"{name}orzero"] = _int_or_default(bits, is_signed=is_signed, is_null=False)
        functions[f"{name}ornull"] = _int_or_default(bits, is_signed=is_signed, is_null=True)
    return functions


FUNCTIONS: Final[Mapping[str, _FunctionTranslation]] = {
    **_integer_functions(),
    "tofloat32": _cast_function(FLOAT),
    "tofloat64": _cast_function(FLOAT),
    "tofloat32orzero": _float_or_default(is_null=False),
    "tofloat64orzero": _float_or_default(is_null=False),
    "tofloat32ornull": _float_or_default(is_null=True),
    "tofloat64ornull": _float_or_default(is_null=True),
    "tobool": _cast_function(BOOL),
    "tostring": _to_string,
    "touuid": _translate_uuid,
}
