"""Numeric functions."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions.arguments import arguments
from cordwood.clickhouse_sql.translate import as_float, unified
from cordwood.clickhouse_sql.values import FLAG, FLOAT, INT, Type, Value, literal_node
from cordwood.sql.nodes import internal

_Function = Callable[[Expressions, Call], Value]


def _like(type_: Type, value: Value) -> Type:
    return msgspec.structs.replace(type_, nullable=value.type.nullable)


def _rounded(name: str) -> _Function:
    """Return a rounding function. Integers stay integers; `round` rounds half to even."""

    def function(t: Expressions, call: Call) -> Value:
        node, *rest = arguments(t, call, 1, 2)
        value = t.number(node)
        digits = int(t.constant_number(rest[0], "The number of digits")) if rest else 0
        if value.type.name == "Int64":
            if digits >= 0:
                return value
            if name == "round" and digits >= -15:
                parts = {"value": value.node, "digits": literal_node(digits)}
                made = t.fill(call.node, "cast(round(cast(@value as float64), @digits) as int64)", **parts)
                return Value(made, value.type)
            raise t.refused(call.node, "A negative number of digits is not supported.")
        if not -15 <= digits <= 15:
            raise t.refused(call.node, "At most 15 digits are supported.")
        if name == "round":
            return Value(internal("round_even", value.node, exp.Literal.string(str(digits))), _like(FLOAT, value))
        if digits == 0:
            return Value(t.fill(call.node, f"{name}(@value)", value=value.node), _like(FLOAT, value))
        scale = literal_node(float(10**digits))
        template = f"ieee_divide({name}(@value * @scale), @scale)"
        return Value(t.fill(call.node, template, value=value.node, scale=scale), _like(FLOAT, value))

    return function


def _of_float(template: str, count: int = 1) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        values = [as_float(t.number(part)) for part in arguments(t, call, count)]
        parts = {letter: value.node for letter, value in zip("ab", values, strict=False)}
        nullable = any(value.type.nullable for value in values)
        return Value(t.fill(call.node, template, **parts), msgspec.structs.replace(FLOAT, nullable=nullable))

    return function


def _abs(t: Expressions, call: Call) -> Value:
    value = t.number(*arguments(t, call, 1))
    return Value(t.fill(call.node, "abs(@value)", value=value.node), value.type)


def _int_div(t: Expressions, call: Call) -> Value:
    left, right = (t.number(part) for part in arguments(t, call, 2))
    if "Float64" in (left.type.name, right.type.name):
        raise t.refused(call.node, "intDiv takes whole numbers.", "Convert them with toInt64(…).")
    made = t.fill(call.node, "div(@left, @right)", left=left.node, right=right.node)
    return Value(made, msgspec.structs.replace(INT, nullable=left.type.nullable or right.type.nullable))


def _extreme(name: str) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        values = [t.plain(part) for part in arguments(t, call, 1, -1)]
        nodes, type_ = unified(t, call.node, values)
        if any(value.type.nullable for value in values):
            raise t.refused(call.node, f"{name} of what may be NULL is not supported.", "Write coalesce(…) around it.")
        kind = exp.Greatest if name == "greatest" else exp.Least
        made = kind(this=nodes[0], expressions=nodes[1:])
        made.meta["bigquery_name"] = name.upper()
        return Value(made, type_)

    return function


def _asked(template: str) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        value = as_float(t.number(*arguments(t, call, 1)))
        return Value(t.fill(call.node, template, a=value.node), _like(FLAG, value))

    return function


FUNCTIONS: Final[Mapping[str, _Function]] = {
    "round": _rounded("round"),
    "floor": _rounded("floor"),
    "ceil": _rounded("ceil"),
    "ceiling": _rounded("ceil"),
    "trunc": _rounded("trunc"),
    "truncate": _rounded("trunc"),
    "abs": _abs,
    "intdiv": _int_div,
    "exp": _of_float("exp(@a)"),
    "sqrt": _of_float("if(@a < 0, cast('nan' as float64), sqrt(@a))"),
    "pow": _of_float("pow(@a, @b)", 2),
    "power": _of_float("pow(@a, @b)", 2),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "isnan": _asked("is_nan(@a)"),
    "isinfinite": _asked("is_inf(@a)"),
    "isfinite": _asked("not (is_nan(@a) or is_inf(@a))"),
}
