"""GROUP BY keys."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant_int

_SETS: Final = (exp.Tuple, exp.Paren, exp.Rollup, exp.Cube, exp.GroupingSets)


def grouping_keys(group: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the keys of a GROUP BY, including those within grouping sets."""
    for key in group.iter_expressions():
        if isinstance(key, _SETS):
            yield from grouping_keys(key)
        else:
            yield key


def selected_value(select: exp.Expr, key: exp.Expr) -> exp.Expr:
    """Return the selected value that an ordinal in GROUP BY refers to; any other key unchanged."""
    position = constant_int(key)
    if position is None or not 0 < position <= len(select.expressions):
        return key
    value: exp.Expr = select.expressions[position - 1]
    return value.unalias()
