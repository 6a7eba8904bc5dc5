"""RANGE_BUCKET's boundaries: seen to be in order before it runs, or else as it runs."""

from itertools import pairwise

from sqlglot import exp

from cordwood.sql.constants import constant


def are_in_order(array: exp.Expr) -> bool:
    """Whether they are numbers that rise, written out; of others it is not known."""
    values = [constant(item) for item in array.expressions] if isinstance(array, exp.Array) else [None]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == len(values) and all(low <= high for low, high in pairwise(numbers))
