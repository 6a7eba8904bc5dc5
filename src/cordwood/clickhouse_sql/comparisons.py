"""Comparisons: operands of a common type, membership, patterns, and tuples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.moments import as_moment
from cordwood.clickhouse_sql.template import fill, in_brackets
from cordwood.clickhouse_sql.values import CONDITIONS, FLAG, INT, MOMENTS, NUMBERS, Value, flag_value, literal_node
from cordwood.sql.budget import copied
from cordwood.sql.positions import start_of


def as_number(value: Value) -> Value:
    """Return the value, with a condition converted to 0 or 1."""
    if value.type.name not in CONDITIONS:
        return value
    if isinstance(value.constant, (int, bool)):
        return Value(literal_node(int(value.constant)), INT, constant=int(value.constant))
    made = fill("cast(@flag as int64)", flag=value.node)
    return Value(made, msgspec.structs.replace(INT, nullable=value.type.nullable))


COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_PYTHON: Final[Mapping[type[exp.Expr], Callable[[int], bool]]] = {
    exp.EQ: lambda order: order == 0,
    exp.NEQ: lambda order: order != 0,
    exp.GT: lambda order: order > 0,
    exp.GTE: lambda order: order >= 0,
    exp.LT: lambda order: order < 0,
    exp.LTE: lambda order: order <= 0,
}


def compared(kind: type[exp.Expr], left: object, right: object, *, is_swapped: bool = False) -> bool | None:
    """Return the result of comparing two constants, texts by their bytes; None if it is not known at compile time."""
    one, other = (right, left) if is_swapped else (left, right)
    if isinstance(one, str) and isinstance(other, str):
        first, second = one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass")
        return _PYTHON[kind]((first > second) - (first < second))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return _PYTHON[kind]((one > other) - (one < other))
    return None


def compare(t: Expressions, node: exp.Expr, left: Value, right: Value) -> Value:
    """Return a comparison; operands that may be missing are given their defaults."""
    left, right = left.as_plain(), right.as_plain()
    if "Nothing" in (left.type.name, right.type.name):
        return Value(exp.Null(), FLAG.or_null())
    if left.is_constant and right.is_constant:
        known = compared(type(node), left.constant, right.constant)
        if known is not None:
            return flag_value(is_true=known)
    left, right = alike(t, node, left, right)
    type_ = msgspec.structs.replace(FLAG, nullable=left.type.nullable or right.type.nullable)
    return Value(placed(node, type(node)(this=in_brackets(left.node), expression=in_brackets(right.node))), type_)


def placed(node: exp.Expr, made: exp.Expr) -> exp.Expr:
    start = start_of(node)
    if start is not None:
        made.meta["start"] = made.meta["end"] = start
    return made


def alike(t: Expressions, node: exp.Expr, left: Value, right: Value) -> tuple[Value, Value]:
    """Return both operands with a common type; refuse those without one."""
    names = {left.type.name, right.type.name}
    if names & set(MOMENTS):
        return as_moment(t, node, left), as_moment(t, node, right)
    if names <= set(NUMBERS):
        return as_number(left), as_number(right)
    if names == {"String"}:
        return left, right
    hint = "Convert the text, as in toInt64OrZero(…)." if "String" in names else None
    raise t.refused(node, f"A {left.type} and a {right.type} cannot be compared.", hint)


def is_null(value: Value) -> Value:
    if not value.type.nullable:
        return flag_value(is_true=False)
    return Value(exp.Is(this=in_brackets(value.node), expression=exp.Null()), FLAG)


def between(t: Expressions, node: exp.Expr) -> Value:
    value, low, high = (t.plain(part) for part in (node.this, node.args["low"], node.args["high"]))
    if "Nothing" in (value.type.name, low.type.name, high.type.name):
        return Value(exp.Null(), FLAG.or_null())
    value, low = alike(t, node, value, low)
    value, high = alike(t, node, value, high)
    parts = {key: in_brackets(part.node) for key, part in (("this", value), ("low", low), ("high", high))}
    nullable = any(part.type.nullable for part in (value, low, high))
    made = Value(placed(node, exp.Between(**parts)), msgspec.structs.replace(FLAG, nullable=nullable))
    return negated(made) if node.args.get("negate") else made


def negated(value: Value) -> Value:
    if value.is_constant:
        return flag_value(is_true=not value.constant)
    return Value(exp.Not(this=exp.Paren(this=value.node)), value.type)


def membership(t: Expressions, node: exp.Expr, *, may_be_null: bool = False) -> Value:
    """Return `x IN (…)`, for constants or columns of x's type."""
    if isinstance(node.this, exp.Tuple):
        return t.truth(tuples_in(t, node))
    return _is_among(t, node, may_be_null=may_be_null)


def _is_among(t: Expressions, node: exp.Expr, *, may_be_null: bool) -> Value:
    value = t.value(node.this)
    others = [t.plain(one) for one in node.expressions]
    if value.type.name == "Nothing":
        return Value(exp.Null(), FLAG.or_null())
    known = _is_one_of(value.constant, others) if value.is_constant else None
    if known is not None:
        return flag_value(is_true=known)
    if may_be_null and value.default is not None and _is_one_of(value.default, others) is False:
        value.default = None
    value = value.as_plain()
    pairs = [alike(t, node, msgspec.structs.replace(value), one) for one in others if one.type.name != "Nothing"]
    if not pairs:
        return flag_value(is_true=False)
    made = exp.In(this=in_brackets(pairs[0][0].node), expressions=[in_brackets(other.node) for _, other in pairs])
    nullable = any(one.type.nullable for one in (value, *others))
    return Value(placed(node, made), msgspec.structs.replace(FLAG, nullable=nullable))


_MOST_IN_A_TUPLE: Final = 8
_STRICT: Final[Mapping[type[exp.Expr], type[exp.Expr]]] = {exp.LTE: exp.LT, exp.GTE: exp.GT}


def tuples_compared(t: Expressions, node: exp.Expr) -> exp.Expr:
    """Write `(a, b) < (c, d)` as `a < c OR a = c AND b < d`."""
    pairs = _pairs(t, node, node.this, node.expression)
    kind = type(node)
    if kind in (exp.EQ, exp.NEQ):
        return _chained(exp.And if kind is exp.EQ else exp.Or, [_pair(node, kind, pair) for pair in pairs])
    strict = _STRICT.get(kind, kind)
    made = _pair(node, kind, pairs[-1])
    for pair in reversed(pairs[:-1]):
        rest = exp.And(this=_pair(node, exp.EQ, pair), expression=exp.Paren(this=made))
        made = exp.Or(this=_pair(node, strict, pair), expression=exp.Paren(this=rest))
    return made


def tuples_in(t: Expressions, node: exp.Expr) -> exp.Expr:
    """Write `(a, b) IN ((1, 2), (3, 4))` as a disjunction of equalities."""
    choices = [
        _chained(exp.And, [_pair(node, exp.EQ, pair) for pair in _pairs(t, node, node.this, other)])
        for other in node.expressions
    ]
    made = _chained(exp.Or, [exp.Paren(this=choice) for choice in choices])
    return exp.Not(this=exp.Paren(this=made)) if node.args.get("negate") else made


def _pairs(t: Expressions, node: exp.Expr, one: exp.Expr, other: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    if not isinstance(other, exp.Tuple) or len(one.expressions) != len(other.expressions):
        raise t.refused(node, "A tuple can be compared with a tuple of as many values.", "Write (a, b) < (c, d).")
    if not 1 <= len(one.expressions) <= _MOST_IN_A_TUPLE:
        raise t.refused(node, f"Tuples of 1 to {_MOST_IN_A_TUPLE} values can be compared.")
    return list(zip(one.expressions, other.expressions, strict=True))


def _pair(node: exp.Expr, kind: type[exp.Expr], pair: tuple[exp.Expr, exp.Expr]) -> exp.Expr:
    one, other = (exp.Paren(this=copied(part)) for part in pair)
    return placed(node, kind(this=one, expression=other))


def _chained(kind: type[exp.Expr], parts: Sequence[exp.Expr]) -> exp.Expr:
    made = parts[0]
    for part in parts[1:]:
        made = kind(this=made, expression=part)
    return made


def _is_one_of(constant: object, others: Sequence[Value]) -> bool | None:
    """Return whether a constant is among these values; None if it is not known at compile time."""
    found = [compared(exp.EQ, constant, one.constant) if one.is_constant else None for one in others]
    return True if True in found else None if None in found else False


def like(t: Expressions, node: exp.Expr, *, may_be_null: bool = False) -> Value:
    """Return LIKE or ILIKE as a comparison."""
    value = t.value(node.this)
    pattern = t.string(node.expression)
    if value.type.name == "Nothing":
        return Value(exp.Null(), FLAG.or_null())
    if value.type.name != "String":
        raise t.refused(node, f"LIKE wants a text, and this is a {value.type}.", "Convert it with toString(…).")
    constant = pattern.constant if isinstance(pattern.constant, str) else None
    if may_be_null and value.default == "" and constant is not None and constant.strip("%") != "":
        value.default = None
    text, wanted = value.plain(), pattern.node
    if isinstance(node, exp.ILike):
        text, wanted = t.fill(node, "lower(@text)", text=text), _lowered(t, node, wanted, constant)
    nullable = value.type.nullable or pattern.type.nullable
    made = Value(placed(node, exp.Like(this=text, expression=wanted)), msgspec.structs.replace(FLAG, nullable=nullable))
    return negated(made) if node.args.get("negate") else made


def _lowered(t: Expressions, node: exp.Expr, pattern: exp.Expr, constant: str | None) -> exp.Expr:
    if constant is not None and constant.isascii():
        return literal_node(constant.lower())
    return t.fill(node, "lower(@text)", text=pattern)
