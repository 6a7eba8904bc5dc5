"""Which columns of a SELECT nothing in it reads: they may be handed on as they are.

This is proved, not assumed: a SELECT with a clause that is not known here to read no column by its place hands on none.
"""

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
    places = frozenset(range(1, len(select.expressions) + 1))
    order = select.args.get("order")
    for ordered in order.expressions if order is not None else ():
        place = _place(ordered.this)
        if place is not None and place in places:
            places -= {place}
        elif place is not None or not _is_of_rows(ordered.this):
            return frozenset()
    return places


def _place(key: exp.Expr) -> int | None:
    """The ordinal, in the one form that `resolve` leaves: a bare number without a zero before it."""
    if isinstance(key, exp.Literal) and not key.is_string and str(key.this).isdecimal():
        number = int(key.this)
        return number if str(number) == key.this else 0
    return None


def _is_of_rows(key: exp.Expr) -> bool:
    """A bare column must say whose it is: else it may be the name of a selected value."""
    if isinstance(key, exp.Column):
        return bool(key.table)
    return key.find(*_OF_ROWS) is not None
