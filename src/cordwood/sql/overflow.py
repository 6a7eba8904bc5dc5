"""Which arithmetic on FLOAT64 may leave its range: BigQuery fails there, where engines go on with infinity."""

import math
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant
from cordwood.sql.operations import Operation, does, operation
from cordwood.sql.typing import inherit, kind_of

_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_INNER: Final = (*_ARITHMETIC, exp.Neg, exp.Paren)
# Said twice, these would be asked twice, or give two answers.
_COSTLY: Final = (exp.Query, exp.Window, exp.Rand, exp.SafeFunc)
_MOST_LEAVES: Final = 8

# Powers of ten that a value's size stays below.
_WHOLE: Final = 19.0
_EXACT: Final = 40.0
_ANY: Final = 308.3


class OverflowCheck(Operation, frozen=True):
    """Arithmetic, the first operand, that fails where it is infinite and none of the others is, of which it is made."""


def check_overflow(node: exp.Expr) -> exp.Expr:
    """Put an `OverflowCheck` around a whole FLOAT64 sum or product that could overflow; return any other node as it is."""
    if not _is_whole(node) or not may_overflow(node):
        return node
    leaves = list(_leaves(node))
    if len(leaves) > _MOST_LEAVES or any(leaf.find(*_COSTLY) for leaf in leaves) or not _may_be_said(node, leaves):
        return node
    # The copies are lowered each for itself, to the same words: the engine works them out once.
    return inherit(operation(OverflowCheck(), copied(node), *(copied(leaf) for leaf in leaves)), node)


def may_overflow(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.FLOAT64 and _size(node) > _ANY


def _may_be_said(node: exp.Expr, leaves: list[exp.Expr]) -> bool:
    """Beside GROUP BY its keys alone may be said, and only as they are there: what is within aggregates is free."""
    around = node.parent
    while around is not None and not isinstance(around, (exp.AggFunc, exp.Select)):
        if isinstance(around, exp.Group):
            return False
        around = around.parent
    is_grouped = isinstance(around, exp.Select) and around.args.get("group") is not None
    return not is_grouped or all(leaf.find(exp.AggFunc) for leaf in leaves)


def _is_whole(node: exp.Expr) -> bool:
    """Whether it is no part of greater arithmetic, which is looked at as one."""
    if does(node.parent, OverflowCheck):
        return False
    parent = node.parent
    while isinstance(parent, (exp.Neg, exp.Paren)):
        parent = parent.parent
    return not (isinstance(parent, _ARITHMETIC) and kind_of(parent) is Kind.FLOAT64)


def _leaves(node: exp.Expr) -> Iterator[exp.Expr]:
    """What is infinite there may be so in the result too."""
    for part in node.iter_expressions():
        if isinstance(part, _INNER):
            yield from _leaves(part)
        elif constant(part) is None:
            yield part


def _size(node: exp.Expr) -> float:
    """The power of ten that the value stays below; more than any FLOAT64 has where it may leave the range."""
    value = constant(node)
    if isinstance(value, (int, float)):
        return math.log10(abs(value)) if value else -_ANY
    if isinstance(node, (exp.Neg, exp.Paren)):
        return _size(node.this)
    if isinstance(node, exp.Mul):
        return _size(node.this) + _size(node.expression)
    if isinstance(node, (exp.Div, exp.SafeDivide)):
        return _size(node.this) - _least(node.expression)
    if isinstance(node, (exp.Add, exp.Sub)):
        return max(_size(node.this), _size(node.expression)) + math.log10(2)
    return _size_of_leaf(node)


def _size_of_leaf(node: exp.Expr) -> float:
    """An average is no greater than what it is of."""
    if isinstance(node, exp.Avg):
        return _size_of_leaf(node.this)
    if isinstance(node, (exp.Cast, exp.TryCast)) and kind_of(node) is Kind.FLOAT64:
        return _size_of_leaf(node.this)
    kind = kind_of(node)
    return _WHOLE if kind is Kind.INT64 else _EXACT if kind in EXACT else _ANY


def _least(node: exp.Expr) -> float:
    """The power of ten that a divisor is not below; zero is refused elsewhere."""
    value = constant(node)
    if isinstance(value, (int, float)) and value:
        return math.log10(abs(value))
    return 0.0 if kind_of(node) is Kind.INT64 else -_ANY
