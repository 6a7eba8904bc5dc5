"""Conditional functions, and functions that are conditions."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.comparisons import compare, is_null
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions.arguments import arguments
from cordwood.clickhouse_sql.template import in_brackets
from cordwood.clickhouse_sql.translate import chosen, unified
from cordwood.clickhouse_sql.values import FLAG, Value, flag_value
from cordwood.sql.budget import copied

_Function = Callable[[Expressions, Call], Value]


def _if(t: Expressions, call: Call) -> Value:
    condition, then, otherwise = arguments(t, call, 3)
    return chosen(t, call.node, [t.filter(condition)], [t.value(then), t.value(otherwise)])


def _multi_if(t: Expressions, call: Call) -> Value:
    parts = arguments(t, call, 3, -1)
    if len(parts) % 2 == 0:
        raise t.refused(call.node, "multiIf takes pairs of a condition and a value, and one value more.")
    conditions = [t.filter(part) for part in parts[:-1:2]]
    return chosen(t, call.node, conditions, [t.value(part) for part in (*parts[1::2], parts[-1])])


def _coalesce(t: Expressions, call: Call) -> Value:
    values = [t.plain(part) for part in arguments(t, call, 1, -1)]
    nodes, type_ = unified(t, call.node, values)
    if len(nodes) == 1:
        return Value(nodes[0], type_)
    made = exp.Coalesce(this=nodes[0], expressions=nodes[1:])
    made.meta["bigquery_name"] = "COALESCE"
    is_nullable = all(value.type.nullable for value in values)
    return Value(made, msgspec.structs.replace(type_, nullable=is_nullable))


def _null_if(t: Expressions, call: Call) -> Value:
    left, right = arguments(t, call, 2)
    value, other = t.value(left), t.plain(right)
    if value.default is not None and value.default == other.constant:
        # A missing value is NULL already, and a value equal to the default becomes NULL.
        made = t.fill(call.node, "nullif(@value, @other)", value=value.node, other=other.node)
        return Value(made, value.type.or_null())
    value = value.as_plain()
    if value.type.name != other.type.name:
        nodes, type_ = unified(t, call.node, [value, other])
        value, other = Value(nodes[0], type_), Value(nodes[1], type_)
    return Value(t.fill(call.node, "nullif(@value, @other)", value=value.node, other=other.node), value.type.or_null())


def _is_null(*, negated: bool) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        found = is_null(t.plain(*arguments(t, call, 1)))
        if not negated:
            return found
        if found.is_constant:
            return flag_value(is_true=not found.constant)
        return Value(exp.Not(this=found.node), FLAG)

    return function


def _comparison(kind: type[exp.Expr]) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        left, right = arguments(t, call, 2)
        return compare(t, kind(this=copied(left), expression=copied(right)), t.value(left), t.value(right))

    return function


def _node(make: Callable[[tuple[exp.Expr, ...]], exp.Expr], least: int, most: int) -> _Function:
    """Return a function that is equivalent to an operator."""

    def function(t: Expressions, call: Call) -> Value:
        return t.value(make(tuple(copied(part) for part in arguments(t, call, least, most))))

    return function


def _xor(t: Expressions, call: Call) -> Value:
    left, right = (t.truth(part) for part in arguments(t, call, 2))
    nullable = left.type.nullable or right.type.nullable
    made = exp.NEQ(this=in_brackets(left.node), expression=in_brackets(right.node))
    return Value(made, msgspec.structs.replace(FLAG, nullable=nullable))


def _chained(kind: type[exp.Expr]) -> Callable[[tuple[exp.Expr, ...]], exp.Expr]:
    def make(parts: tuple[exp.Expr, ...]) -> exp.Expr:
        made = parts[0]
        for part in parts[1:]:
            made = kind(this=made, expression=part)
        return made

    return make


FUNCTIONS: Final[Mapping[str, _Function]] = {
    "if": _if,
    "multiif": _multi_if,
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nullif": _null_if,
    "isnull": _is_null(negated=False),
    "isnotnull": _is_null(negated=True),
    "equals": _comparison(exp.EQ),
    "notequals": _comparison(exp.NEQ),
    "less": _comparison(exp.LT),
    "lessorequals": _comparison(exp.LTE),
    "greater": _comparison(exp.GT),
    "greaterorequals": _comparison(exp.GTE),
    "and": _node(_chained(exp.And), 2, -1),
    "or": _node(_chained(exp.Or), 2, -1),
    "not": _node(lambda parts: exp.Not(this=parts[0]), 1, 1),
    "xor": _xor,
    "like": _node(lambda parts: exp.Like(this=parts[0], expression=parts[1]), 2, 2),
    "ilike": _node(lambda parts: exp.ILike(this=parts[0], expression=parts[1]), 2, 2),
    "notlike": _node(lambda parts: exp.Like(this=parts[0], expression=parts[1], negate=True), 2, 2),
    "notilike": _node(lambda parts: exp.ILike(this=parts[0], expression=parts[1], negate=True), 2, 2),
    "plus": _node(lambda parts: exp.Add(this=parts[0], expression=parts[1]), 2, 2),
    "minus": _node(lambda parts: exp.Sub(this=parts[0], expression=parts[1]), 2, 2),
    "multiply": _node(lambda parts: exp.Mul(this=parts[0], expression=parts[1]), 2, 2),
    "divide": _node(lambda parts: exp.Div(this=parts[0], expression=parts[1]), 2, 2),
    "modulo": _node(lambda parts: exp.Mod(this=parts[0], expression=parts[1]), 2, 2),
    "negate": _node(lambda parts: exp.Neg(this=parts[0]), 1, 1),
}
