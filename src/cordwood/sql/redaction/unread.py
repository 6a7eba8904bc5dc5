"""Which columns of a SELECT nothing in it reads: they may be handed on as they are.

This is proved, not assumed: a SELECT with a clause that is not known here to read no column by its place hands on none.
"""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

# Clauses that read only expressions of their own, in which every text is redacted. ORDER BY is looked at item by item.
# A GROUP BY, DISTINCT or a kind (AS STRUCT) reads what is selected; so might whatever else a SELECT can have.
_APART: Final = frozenset(
    {"expressions", "from_", "with_", "joins", "where", "qualify", "windows", "limit", "offset", "order"}
)
# What an engine can read neither as a place nor as the name of a column: it has to be asked row by row.
_OF_ROWS: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def unread_places(select: exp.Select) -> frozenset[int]:
    """The places, from 1, of selected values that no clause of the SELECT sorts, groups or compares by."""
    if any(value and key not in _APART for key, value in select.args.items()):
        return frozenset()
    order = select.args.get("order")
    places = frozenset(range(1, len(select.expressions) + 1))
    return _unsorted(places, [ordered.this for ordered in order.expressions]) if order is not None else places


def _unsorted(places: frozenset[int], keys: Sequence[exp.Expr]) -> frozenset[int]:
    """The places that no key means; none where a key may mean any."""
    sorted_by = [_place(key) for key in keys if not _is_of_rows(key)]
    return places.difference(sorted_by) if places.issuperset(sorted_by) else frozenset()


def _place(key: exp.Expr) -> int:
    """The ordinal, in the one form that `resolve` leaves: a bare number without a zero before it; 0 for all else."""
    if not isinstance(key, exp.Literal) or key.is_string or not str(key.this).isdecimal():
        return 0
    number = int(key.this)
    return number if str(number) == key.this else 0


def _is_of_rows(key: exp.Expr) -> bool:
    """A bare column must say whose it is: else it may be the name of a selected value."""
    if isinstance(key, exp.Column):
        return bool(key.table)
    return key.find(*_OF_ROWS) is not None
