"""Numbers: checks of FLOAT64 overflow, ROUND's mode, the numerals that are read, and RANGE_BUCKET's boundaries.

BigQuery reports an error for FLOAT64 arithmetic that overflows, where engines return infinity.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant, constant_text
from cordwood.sql.datatypes import inherit, kind_of
from cordwood.sql.lowering import unsupported
from cordwood.sql.nodes import Operation, has_operation, operation_node

_MODES = ("ROUND_HALF_AWAY_FROM_ZERO", "ROUND_HALF_EVEN")


def rounds_to_even(node: exp.Expr) -> bool:
    """Return whether ROUND rounds half to even; refuse a mode for values other than NUMERIC and BIGNUMERIC."""
    mode_argument = node.args.get("truncate")
    if mode_argument is None:
        return False
    mode = (constant_text(mode_argument) or "").upper()
    if mode not in _MODES:
        unsupported(node, f"ROUND other than by {' or '.join(_MODES)}")
    if kind_of(node.this) not in EXACT:
        unsupported(node, "ROUND by a mode of what is no NUMERIC")
    return mode == "ROUND_HALF_EVEN"


_NUMBER: Final = r"(,*\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?"

# Whitespace is allowed around the number and beside its sign, which may be trailing; commas before the point.
NUMERAL: Final = rf"\s*([+-]?\s*{_NUMBER}|{_NUMBER}\s*[+-])\s*"


def are_ascending(array: exp.Expr) -> bool:
    """Return whether the boundaries are ascending number literals; False also where that is not known."""
    values = [constant(item) for item in array.expressions] if isinstance(array, exp.Array) else [None]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == len(values) and all(low <= high for low, high in pairwise(numbers))


_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_DESCENDED: Final = (*_ARITHMETIC, exp.Neg, exp.Paren)
# Evaluating these twice would be expensive or give different results.
_NOT_REPEATABLE: Final = (exp.Query, exp.Window, exp.Rand, exp.SafeFunc)
_MAX_INPUTS: Final = 8

# Upper bounds of a value's magnitude, as powers of ten.
_MAX_INT64: Final = 19.0
_MAX_EXACT: Final = 40.0
_MAX_FLOAT64: Final = 308.3


class OverflowCheck(Operation, frozen=True):
    """Arithmetic, the first operand, that fails if it is infinite while none of its inputs, the others, is."""


def check_overflow(node: exp.Expr) -> exp.Expr:
    """Wrap an outermost FLOAT64 expression that could overflow in an `OverflowCheck`; return other nodes unchanged."""
    if not _is_outermost(node) or not may_overflow(node):
        return node
    inputs = list(_find_inputs(node))
    if (
        len(inputs) > _MAX_INPUTS
        or any(operand.find(*_NOT_REPEATABLE) for operand in inputs)
        or not _can_repeat(node, inputs)
    ):
        return node
    # The copies are lowered to identical SQL, which the engine evaluates once.
    return inherit(operation_node(OverflowCheck(), copied(node), *(copied(operand) for operand in inputs)), node)


def may_overflow(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.FLOAT64 and _magnitude(node) > _MAX_FLOAT64


def _can_repeat(node: exp.Expr, inputs: list[exp.Expr]) -> bool:
    """Return whether the inputs can be repeated here: in a grouped query, only within aggregates."""
    ancestor = node.parent
    while ancestor is not None and not isinstance(ancestor, (exp.AggFunc, exp.Select)):
        if isinstance(ancestor, exp.Group):
            return False
        ancestor = ancestor.parent
    is_grouped = isinstance(ancestor, exp.Select) and ancestor.args.get("group") is not None
    return not is_grouped or all(operand.find(exp.AggFunc) for operand in inputs)


def _is_outermost(node: exp.Expr) -> bool:
    """Return whether the arithmetic is not part of a larger expression, which is checked as a whole."""
    if has_operation(node.parent, OverflowCheck):
        return False
    parent = node.parent
    while isinstance(parent, (exp.Neg, exp.Paren)):
        parent = parent.parent
    return not (isinstance(parent, _ARITHMETIC) and kind_of(parent) is Kind.FLOAT64)


def _find_inputs(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the inputs of the arithmetic that are not constant; if one is infinite, the result may be."""
    for part in node.iter_expressions():
        if isinstance(part, _DESCENDED):
            yield from _find_inputs(part)
        elif constant(part) is None:
            yield part


def _magnitude(node: exp.Expr) -> float:
    """Return an upper bound of the value's magnitude, as a power of ten; above FLOAT64's range if it may overflow."""
    value = constant(node)
    if isinstance(value, (int, float)):
        return math.log10(abs(value)) if value else -_MAX_FLOAT64
    if isinstance(node, (exp.Neg, exp.Paren)):
        return _magnitude(node.this)
    if isinstance(node, exp.Mul):
        return _magnitude(node.this) + _magnitude(node.expression)
    if isinstance(node, (exp.Div, exp.SafeDivide)):
        return _magnitude(node.this) - _min_magnitude(node.expression)
    if isinstance(node, (exp.Add, exp.Sub)):
        return max(_magnitude(node.this), _magnitude(node.expression)) + math.log10(2)
    return _input_magnitude(node)


def _input_magnitude(node: exp.Expr) -> float:
    """Return the bound for a value that is not arithmetic; that of an average is its argument's."""
    if isinstance(node, exp.Avg):
        return _input_magnitude(node.this)
    if isinstance(node, (exp.Cast, exp.TryCast)) and kind_of(node) is Kind.FLOAT64:
        return _input_magnitude(node.this)
    kind = kind_of(node)
    return _MAX_INT64 if kind is Kind.INT64 else _MAX_EXACT if kind in EXACT else _MAX_FLOAT64


def _min_magnitude(node: exp.Expr) -> float:
    """Return a lower bound of a divisor's magnitude, as a power of ten; zero is refused elsewhere."""
    value = constant(node)
    if isinstance(value, (int, float)) and value:
        return math.log10(abs(value))
    return 0.0 if kind_of(node) is Kind.INT64 else -_MAX_FLOAT64
