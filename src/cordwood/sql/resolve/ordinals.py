"""Numbers in ORDER BY and GROUP BY that stand for a selected value: one spelling, and no other constant beside them.

Engines differ in which constants they take for the place of a column: DuckDB `-(-1)`, ClickHouse `true` and `-1`. After
`resolve` a constant key is the bare decimal number of a place, or cannot be taken for one.
"""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied

# An expression without any of these is the same for every row.
_OF_ROWS: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def written_ordinal(item: exp.Expr) -> exp.Expr | None:
    """The place that the author wrote, in brackets, with zeros before it or in hexadecimal."""
    item = item.unnest()
    if isinstance(item, exp.Literal) and item.is_int:
        return exp.Literal.number(int(item.this))
    if isinstance(item, exp.HexString) and item.args.get("is_integer"):
        return exp.Literal.number(int(item.this, 16))
    return None


def is_ordinal(item: exp.Expr) -> bool:
    """Whether a resolved key stands for a selected value."""
    return isinstance(item, exp.Literal) and item.is_int


def is_constant(item: exp.Expr) -> bool:
    """Whether rows cannot differ in it: it puts nothing in order."""
    return item.find(*_OF_ROWS) is None


def as_value(key: exp.Expr) -> exp.Expr:
    """The key, where it is constant in a form that no engine takes for a place."""
    return exp.Case(ifs=[exp.If(this=exp.true(), true=copied(key))]) if is_constant(key) else key


def set_order(owner: exp.Expr, kept: list[exp.Expr]) -> None:
    """Leave these keys of the ORDER BY, or none at all."""
    order = owner.args["order"]
    order.set("expressions", kept)
    owner.set("order", order if kept else None)
