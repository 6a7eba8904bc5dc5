"""Translation of comparisons: operators, BETWEEN, IN, LIKE, and comparisons of tuples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator
from cordwood.clickhouse_sql.datetimes import can_be_datetime, time_conversion_hint, to_datetime
from cordwood.clickhouse_sql.values import (
    CONDITION_TYPE_NAMES,
    FLAG,
    INT,
    NUMBER_TYPE_NAMES,
    TIME_TYPE_NAMES,
    TypedValue,
    fill_template,
    flag_value,
    literal_node,
    parenthesize_if_operation,
)
from cordwood.errors import QueryRefused
from cordwood.sql.budget import copy_tree
from cordwood.sql.diagnostics import start_offset


def as_number(value: TypedValue) -> TypedValue:
    """Return the value as a number; a condition becomes 0 or 1."""
    if value.type.name not in CONDITION_TYPE_NAMES:
        return value
    if isinstance(value.constant_value, (int, bool)):
        return TypedValue(literal_node(int(value.constant_value)), INT, constant_value=int(value.constant_value))
    integer = fill_template("cast(@flag as int64)", flag=value.node)
    return TypedValue(integer, msgspec.structs.replace(INT, is_nullable=value.type.is_nullable))


COMPARISON_NODES: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_ORDER_TEST_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], Callable[[int], bool]]] = {
    exp.EQ: lambda order: order == 0,
    exp.NEQ: lambda order: order != 0,
    exp.GT: lambda order: order > 0,
    exp.GTE: lambda order: order >= 0,
    exp.LT: lambda order: order < 0,
    exp.LTE: lambda order: order <= 0,
}


def compare_constants(kind: type[exp.Expr], left: object, right: object, *, is_swapped: bool = False) -> bool | None:
    """Return the result of comparing two constants; return None if it cannot be known before the query runs.

    `kind` is the class of the comparison's node. If `is_swapped` is true, `right` is compared with `left` instead of
    `left` with `right`. Texts are compared by their bytes in UTF-8.
    """
    low, high = (right, left) if is_swapped else (left, right)
    if isinstance(low, str) and isinstance(high, str):
        first, second = low.encode(errors="surrogatepass"), high.encode(errors="surrogatepass")
        return _ORDER_TEST_BY_NODE_CLASS[kind]((first > second) - (first < second))
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        return _ORDER_TEST_BY_NODE_CLASS[kind]((low > high) - (low < high))
    return None


def compare_values(translator: ArgumentTranslator, node: exp.Expr, left: TypedValue, right: TypedValue) -> TypedValue:
    """Return the comparison of two values; if an operand has a default, the default is compared in place of NULL."""
    left, right = left.with_default_for_null(), right.with_default_for_null()
    if "Nothing" in (left.type.name, right.type.name):
        return TypedValue(exp.Null(), FLAG.as_nullable())
    if left.is_constant and right.is_constant:
        outcome = compare_constants(type(node), left.constant_value, right.constant_value)
        if outcome is not None:
            return flag_value(is_true=outcome)
    left, right = unify_types(translator, node, left, right)
    type_ = msgspec.structs.replace(FLAG, is_nullable=left.type.is_nullable or right.type.is_nullable)
    return TypedValue(
        copy_source_position(
            node,
            type(node)(this=parenthesize_if_operation(left.node), expression=parenthesize_if_operation(right.node)),
        ),
        type_,
    )


def copy_source_position(node: exp.Expr, positioned: exp.Expr) -> exp.Expr:
    start = start_offset(node)
    if start is not None:
        positioned.meta["start"] = positioned.meta["end"] = start
    return positioned


def unify_types(
    translator: ArgumentTranslator, node: exp.Expr, left: TypedValue, right: TypedValue
) -> tuple[TypedValue, TypedValue]:
    """Return both operands converted to a common type; refuse operands that have no common type."""
    names = {left.type.name, right.type.name}
    if names & set(TIME_TYPE_NAMES):
        other = next((operand for operand in (left, right) if not can_be_datetime(operand)), None)
        if other is None:
            return to_datetime(translator, node, left), to_datetime(translator, node, right)
        raise _incomparable_types_error(translator, node, left, right, time_conversion_hint(other))
    if names <= set(NUMBER_TYPE_NAMES):
        return as_number(left), as_number(right)
    if names == {"String"}:
        return left, right
    hint = "Convert the text, as in toInt64OrZero(…)." if "String" in names else None
    raise _incomparable_types_error(translator, node, left, right, hint)


def _incomparable_types_error(
    translator: ArgumentTranslator, node: exp.Expr, left: TypedValue, right: TypedValue, hint: str | None
) -> QueryRefused:
    message = f"{left.type.with_capital_article} and {right.type.with_article} cannot be compared."
    return translator.refused_error(node, message, hint)


def null_test(value: TypedValue) -> TypedValue:
    if not value.type.is_nullable:
        return flag_value(is_true=False)
    return TypedValue(exp.Is(this=parenthesize_if_operation(value.node), expression=exp.Null()), FLAG)


def translate_between(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    value, low, high = (
        translator.value_with_default_for_null(part) for part in (node.this, node.args["low"], node.args["high"])
    )
    if "Nothing" in (value.type.name, low.type.name, high.type.name):
        return TypedValue(exp.Null(), FLAG.as_nullable())
    value, low = unify_types(translator, node, value, low)
    value, high = unify_types(translator, node, value, high)
    parts = {key: parenthesize_if_operation(part.node) for key, part in (("this", value), ("low", low), ("high", high))}
    nullable = any(part.type.is_nullable for part in (value, low, high))
    condition = TypedValue(
        copy_source_position(node, exp.Between(**parts)), msgspec.structs.replace(FLAG, is_nullable=nullable)
    )
    return negate_condition(condition) if node.args.get("negate") else condition


def negate_condition(value: TypedValue) -> TypedValue:
    if value.is_constant:
        return flag_value(is_true=not value.constant_value)
    return TypedValue(exp.Not(this=exp.Paren(this=value.node)), value.type)


def translate_in(translator: ArgumentTranslator, node: exp.Expr, *, may_be_null: bool = False) -> TypedValue:
    """Return the translation of `x IN (…)`.

    With `may_be_null`, the translated expression may yield NULL for a row for which ClickHouse yields false. Then NULL
    in x need not be replaced by a default.
    """
    if isinstance(node.this, exp.Tuple):
        return translator.condition_value(rewrite_tuple_in(translator, node))
    return _translate_in_constants(translator, node, may_be_null=may_be_null)


def _translate_in_constants(translator: ArgumentTranslator, node: exp.Expr, *, may_be_null: bool) -> TypedValue:
    value = translator.translate_expression(node.this)
    choices = [translator.value_with_default_for_null(choice) for choice in node.expressions]
    if value.type.name == "Nothing":
        return TypedValue(exp.Null(), FLAG.as_nullable())
    is_member = _is_constant_among(value.constant_value, choices) if value.is_constant else None
    if is_member is not None:
        return flag_value(is_true=is_member)
    if (
        may_be_null
        and value.default_for_null is not None
        and _is_constant_among(value.default_for_null, choices) is False
    ):
        value.default_for_null = None
    value = value.with_default_for_null()
    pairs = [
        unify_types(translator, node, msgspec.structs.replace(value), choice)
        for choice in choices
        if choice.type.name != "Nothing"
    ]
    if not pairs:
        return flag_value(is_true=False)
    membership_node = exp.In(
        this=parenthesize_if_operation(pairs[0][0].node),
        expressions=[parenthesize_if_operation(operand.node) for _, operand in pairs],
    )
    nullable = any(choice.type.is_nullable for choice in (value, *choices))
    return TypedValue(copy_source_position(node, membership_node), msgspec.structs.replace(FLAG, is_nullable=nullable))


_MAX_TUPLE_LENGTH: Final = 8
_STRICT_COMPARISON_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], type[exp.Expr]]] = {exp.LTE: exp.LT, exp.GTE: exp.GT}


def rewrite_tuple_comparison(translator: ArgumentTranslator, node: exp.Expr) -> exp.Expr:
    """Rewrite `(a, b) < (c, d)` as `a < c OR a = c AND b < d`."""
    pairs = _pair_tuple_elements(translator, node, node.this, node.expression)
    kind = type(node)
    if kind in (exp.EQ, exp.NEQ):
        return _join_with_connector(
            exp.And if kind is exp.EQ else exp.Or, [_compare_pair(node, kind, pair) for pair in pairs]
        )
    strict = _STRICT_COMPARISON_BY_NODE_CLASS.get(kind, kind)
    comparison = _compare_pair(node, kind, pairs[-1])
    for pair in reversed(pairs[:-1]):
        equal_so_far = exp.And(this=_compare_pair(node, exp.EQ, pair), expression=exp.Paren(this=comparison))
        comparison = exp.Or(this=_compare_pair(node, strict, pair), expression=exp.Paren(this=equal_so_far))
    return comparison


def rewrite_tuple_in(translator: ArgumentTranslator, node: exp.Expr) -> exp.Expr:
    """Rewrite `(a, b) IN ((1, 2), (3, 4))` as a disjunction of equalities."""
    choices = [
        _join_with_connector(
            exp.And,
            [_compare_pair(node, exp.EQ, pair) for pair in _pair_tuple_elements(translator, node, node.this, other)],
        )
        for other in node.expressions
    ]
    disjunction = _join_with_connector(exp.Or, [exp.Paren(this=choice) for choice in choices])
    return exp.Not(this=exp.Paren(this=disjunction)) if node.args.get("negate") else disjunction


def _pair_tuple_elements(
    translator: ArgumentTranslator, node: exp.Expr, left: exp.Expr, right: exp.Expr
) -> list[tuple[exp.Expr, exp.Expr]]:
    if not isinstance(right, exp.Tuple) or len(left.expressions) != len(right.expressions):
        raise translator.refused_error(
            node, "A tuple can be compared with a tuple of as many values.", "Write (a, b) < (c, d)."
        )
    if not 1 <= len(left.expressions) <= _MAX_TUPLE_LENGTH:
        raise translator.refused_error(node, f"Tuples of 1 to {_MAX_TUPLE_LENGTH} values can be compared.")
    return list(zip(left.expressions, right.expressions, strict=True))


def _compare_pair(node: exp.Expr, kind: type[exp.Expr], pair: tuple[exp.Expr, exp.Expr]) -> exp.Expr:
    left, right = (exp.Paren(this=copy_tree(part)) for part in pair)
    return copy_source_position(node, kind(this=left, expression=right))


def _join_with_connector(kind: type[exp.Expr], parts: Sequence[exp.Expr]) -> exp.Expr:
    chained = parts[0]
    for part in parts[1:]:
        chained = kind(this=chained, expression=part)
    return chained


def _is_constant_among(constant: object, choices: Sequence[TypedValue]) -> bool | None:
    """Return whether a constant equals one of the choices; return None if only the running query can tell."""
    results = [
        compare_constants(exp.EQ, constant, choice.constant_value) if choice.is_constant else None for choice in choices
    ]
    return True if True in results else None if None in results else False


def translate_like(translator: ArgumentTranslator, node: exp.Expr, *, may_be_null: bool = False) -> TypedValue:
    """Return the translation of LIKE or ILIKE.

    With `may_be_null`, the translated expression may yield NULL for a row for which ClickHouse yields false. Then NULL
    in the text need not be replaced by a default.
    """
    value = translator.translate_expression(node.this)
    pattern = translator.string_value(node.expression)
    if value.type.name == "Nothing":
        return TypedValue(exp.Null(), FLAG.as_nullable())
    if value.type.name != "String":
        raise translator.refused_error(
            node, f"LIKE needs a text, but this is {value.type.with_article}.", "Convert it with toString(…)."
        )
    constant = pattern.constant_value if isinstance(pattern.constant_value, str) else None
    if may_be_null and value.default_for_null == "" and constant is not None and constant.strip("%") != "":
        value.default_for_null = None
    text, pattern_node = value.node_with_default_for_null(), pattern.node
    if isinstance(node, exp.ILike):
        text, pattern_node = (
            translator.fill_template(node, "lower(@text)", text=text),
            _to_lower_case_pattern(translator, node, pattern_node, constant),
        )
    nullable = value.type.is_nullable or pattern.type.is_nullable
    condition = TypedValue(
        copy_source_position(node, exp.Like(this=text, expression=pattern_node)),
        msgspec.structs.replace(FLAG, is_nullable=nullable),
    )
    return negate_condition(condition) if node.args.get("negate") else condition


def _to_lower_case_pattern(
    translator: ArgumentTranslator, node: exp.Expr, pattern: exp.Expr, constant: str | None
) -> exp.Expr:
    if constant is not None and constant.isascii():
        return literal_node(constant.lower())
    return translator.fill_template(node, "lower(@text)", text=pattern)
