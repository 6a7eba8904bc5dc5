"""Ordinals in ORDER BY and GROUP BY, in a single spelling, and constant keys that are not mistaken for them.

Engines differ in which constants are ordinals: DuckDB takes `-(-1)`, ClickHouse `true` and `-1`. After `resolve` a
constant key is the plain decimal number of a column, or cannot be taken for an ordinal.
"""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied

# An expression without any of these is constant.
_ROW_DEPENDENT: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def written_ordinal(item: exp.Expr) -> exp.Expr | None:
    """Return the ordinal that the author wrote, also in parentheses, with leading zeros or in hexadecimal."""
    item = item.unnest()
    if isinstance(item, exp.Literal) and item.is_int:
        return exp.Literal.number(int(item.this))
    if isinstance(item, exp.HexString) and item.args.get("is_integer"):
        return exp.Literal.number(int(item.this, 16))
    return None


def is_ordinal(item: exp.Expr) -> bool:
    """Return whether a resolved key is an ordinal."""
    return isinstance(item, exp.Literal) and item.is_int


def is_constant(item: exp.Expr) -> bool:
    """Return whether the key is the same for all rows, and therefore does not sort."""
    return item.find(*_ROW_DEPENDENT) is None


def as_group_key(key: exp.Expr) -> exp.Expr:
    """Return the key; a constant one in a form that no engine takes for an ordinal."""
    return exp.Case(ifs=[exp.If(this=exp.true(), true=copied(key))]) if is_constant(key) else key


def set_order(owner: exp.Expr, keys: list[exp.Expr]) -> None:
    """Replace the keys of ORDER BY; without any, remove it."""
    order = owner.args["order"]
    order.set("expressions", keys)
    owner.set("order", order if keys else None)
