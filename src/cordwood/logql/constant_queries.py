"""Queries that read no entries: `vector(1) + vector(1)`, which Grafana sends to check whether the service answers."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.logql.syntax import BinaryOperation, Metric, NumberLiteral


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: math.fmod(left, right) if right and math.isfinite(left) else math.nan,
    "^": _power,
    # `or` yields the left operand, which always exists here.
    "or": lambda left, _: left,
}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
}
COMPARISON_OPERATORS: Final = frozenset(_COMPARISONS)


def fold_constant(node: Metric) -> float | None:
    """Return the value of a query that reads no entries; None if it reads entries."""
    if isinstance(node, NumberLiteral):
        return node.value
    if not isinstance(node, BinaryOperation):
        return None
    left, right = fold_constant(node.left), fold_constant(node.right)
    if left is None or right is None:
        return None
    if node.operator in _COMPARISONS:
        return float(_COMPARISONS[node.operator](left, right))
    return _ARITHMETIC[node.operator](left, right)


def is_vector(node: Metric) -> bool:
    """Return whether a constant is a vector because a number in it is written as `vector(…)`."""
    if isinstance(node, BinaryOperation):
        return is_vector(node.left) or is_vector(node.right)
    return isinstance(node, NumberLiteral) and node.is_vector
