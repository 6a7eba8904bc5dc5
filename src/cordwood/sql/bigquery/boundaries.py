"""RANGE_BUCKET's boundaries: checked for ascending order at compile time where constant, otherwise at run time."""

from itertools import pairwise

from sqlglot import exp

from cordwood.sql.constants import constant


def are_ascending(array: exp.Expr) -> bool:
    """Return whether the boundaries are ascending number literals; False also where that is not known."""
    values = [constant(item) for item in array.expressions] if isinstance(array, exp.Array) else [None]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == len(values) and all(low <= high for low, high in pairwise(numbers))
