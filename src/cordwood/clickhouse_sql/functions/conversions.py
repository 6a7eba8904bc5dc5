"""Conversion functions: toInt64, toFloat64OrZero, toString and the like."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.casts import cast_to
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions.arguments import arguments
from cordwood.clickhouse_sql.values import BOOL, FLOAT, INT, STRING, Type, Value, literal_node, text_value
from cordwood.sql.nodes import internal

_Function = Callable[[Expressions, Call], Value]

_BITS: Final = {
    "toint8": 8,
    "toint16": 16,
    "toint32": 32,
    "toint64": 64,
    "touint8": 8,
    "touint16": 16,
    "touint32": 32,
    "touint64": 64,
}


def _whole_or(bits: int, *, is_signed: bool, is_null: bool) -> _Function:
    """Return the conversion of decimal text to an integer; other texts and numbers out of range are 0 or NULL."""
    least = -(2 ** (bits - 1)) if is_signed else 0
    most = 2 ** (bits - 1) - 1 if is_signed else min(2**bits, 2**63) - 1

    def function(t: Expressions, call: Call) -> Value:
        text = _text(t, *arguments(t, call, 1))
        bounds = [exp.Literal.string(str(least)), exp.Literal.string(str(most))]
        made = internal("whole_number", text.node, *bounds)
        return Value(made, INT.or_null()) if is_null else Value(made, INT, default=0)

    return function


def _float_or(*, is_null: bool) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        made = internal("float_number", _text(t, *arguments(t, call, 1)).node)
        return Value(made, FLOAT.or_null()) if is_null else Value(made, FLOAT, default=0)

    return function


def _text(t: Expressions, node: exp.Expr) -> Value:
    """Return the argument, which must be text.

    It may stay NULL for a missing key, since empty text is not a number either.
    """
    value = t.value(node)
    if value.type.name != "String":
        hint = "Numbers need no conversion: write toInt64(…) for another type."
        raise t.refused(node, f"A text is wanted here, and this is a {value.type}.", hint)
    return value


def _cast(type_: Type) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = arguments(t, call, 1)
        value = t.plain(node)
        found = cast_to(t, call.node, value, type_)
        return msgspec.structs.replace(found, type=msgspec.structs.replace(found.type, nullable=value.type.nullable))

    return function


def _whole(bits: int, *, is_signed: bool) -> _Function:
    """Return the conversion to an integer, of which the lower bits are kept."""
    cast = _cast(INT)
    count = 2**bits
    low = count // 2 if is_signed else 0

    def function(t: Expressions, call: Call) -> Value:
        found = cast(t, call)
        if bits == _MOST_BITS:
            return found
        if isinstance(found.constant, int):
            number = (found.constant + low) % count - low
            return msgspec.structs.replace(found, node=literal_node(number), constant=number)
        parts = {
            name: literal_node(number) for name, number in (("count", count), ("above", count + low), ("low", low))
        }
        made = t.fill(call.node, "mod(mod(@value, @count) + @above, @count) - @low", value=found.node, **parts)
        return Value(made, found.type)

    return function


_MOST_BITS: Final = 64


def _to_string(t: Expressions, call: Call) -> Value:
    (node,) = arguments(t, call, 1)
    value = t.value(node)
    return value if value.type.name == "String" else cast_to(t, call.node, value, STRING)


def _uuid(t: Expressions, call: Call) -> Value:
    """Return a constant UUID in the form of event ids: text in lower case."""
    (node,) = arguments(t, call, 1)
    text = t.constant_text(node, "A UUID")
    return text_value(text.lower())


def _by_bits() -> dict[str, _Function]:
    made: dict[str, _Function] = {}
    for name, bits in _BITS.items():
        is_signed = not name.startswith("tou")
        made[name] = _whole(bits, is_signed=is_signed)
        made[f"{name}orzero"] = _whole_or(bits, is_signed=is_signed, is_null=False)
        made[f"{name}ornull"] = _whole_or(bits, is_signed=is_signed, is_null=True)
    return made


FUNCTIONS: Final[Mapping[str, _Function]] = {
    **_by_bits(),
    "tofloat32": _cast(FLOAT),
    "tofloat64": _cast(FLOAT),
    "tofloat32orzero": _float_or(is_null=False),
    "tofloat64orzero": _float_or(is_null=False),
    "tofloat32ornull": _float_or(is_null=True),
    "tofloat64ornull": _float_or(is_null=True),
    "tobool": _cast(BOOL),
    "tostring": _to_string,
    "touuid": _uuid,
}
