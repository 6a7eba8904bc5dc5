"""Remove record tests that another condition of the same WHERE implies.

An unnested record leaves a test of whether the event has it, which reads the column `object_paths`. Where a condition
holds only if a path below the record has a value, the record exists: `r.status >= 500` needs no test of `r`.
"""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.sql.nodes import is_event_path, is_record_test, is_within, path_steps, swap

# Conditions that are NULL, and so drop the row, if an operand is NULL.
_STRICT: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.RegexpLike)
# Conditions that do not hold if the first operand is NULL.
_STRICT_IN_FIRST: Final = (exp.In, exp.Between)
_CASTS: Final = (exp.Cast, exp.TryCast, exp.Paren)


def drop_implied_tests(tree: exp.Expr) -> None:
    for where in list(tree.find_all(exp.Where)):
        conditions = list(_conditions(where.this))
        present_paths = [path for condition in conditions for path in _present_paths(condition)]
        for condition in conditions:
            if is_record_test(condition) and any(_is_below(path, condition.expressions[0]) for path in present_paths):
                _remove(condition)


def _conditions(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions of a conjunction."""
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, exp.And):
            pending += [one.expression, one.this]
        elif isinstance(one, exp.Paren):
            pending.append(one.this)
        else:
            yield one


def _present_paths(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the paths that have a value in every row for which the condition holds."""
    operands = (condition.this, condition.expression) if isinstance(condition, _STRICT) else ()
    for operand in (condition.this,) if isinstance(condition, _STRICT_IN_FIRST) else operands:
        value = operand
        while isinstance(value, _CASTS):
            value = value.this
        if is_event_path(value):
            yield value


def _is_below(path: exp.Expr, record: exp.Expr) -> bool:
    return is_within(path, record) and len(path_steps(path)) > len(path_steps(record))


def _remove(condition: exp.Expr) -> None:
    """Remove a condition of a conjunction of at least two."""
    node = condition
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    conjunction = node.parent
    if isinstance(conjunction, exp.And):
        swap(conjunction, conjunction.expression if node is conjunction.this else conjunction.this)
