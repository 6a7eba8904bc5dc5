"""One row of constants: a SELECT without FROM is not joined but written where it is read, so that bounds reach the scan."""

from collections.abc import Iterable
from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.scope import Field, Relation, nature_of

# Marks a value that is written in place of its column's name.
FOLDED: Final = "folded"
_CLAUSES: Final = (
    "from_", "joins", "where", "group", "having", "qualify", "limit", "offset", "distinct", "with_", "kind", "order",
)  # fmt: skip
# What asks a sub-query for its rows, not for its value.
_SETS: Final = (exp.In, exp.Exists, exp.Any, exp.All, exp.Array, exp.SetOperation, exp.Subquery, exp.From, exp.Join)
_MANY: Final = (exp.AggFunc, exp.Window, exp.Unnest, exp.Star)


def constants(query: exp.Expr) -> dict[str, exp.Expr] | None:
    """The columns of a resolved query that is one row of values, by name; None for any other query."""
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in _CLAUSES):
        return None
    items = query.expressions
    if any(not isinstance(item, exp.Alias) or item.find(*_MANY) for item in items):
        return None
    return {item.alias: item.this for item in items}


def as_relation(alias: str, columns: dict[str, exp.Expr]) -> Relation:
    """A relation that stands in no FROM: its columns are the values themselves."""
    return Relation(
        alias, {name.lower(): Field(name, _folded(value), nature_of(value)) for name, value in columns.items()}
    )


def _folded(value: exp.Expr) -> exp.Expr:
    made = exp.Paren(this=copied(value))
    made.meta[FOLDED] = True
    return made


def are_keys(columns: Iterable[str], select: exp.Expr | None) -> bool:
    """Whether rows are grouped by one of these columns: there a value would be an ordinal, or no key at all."""
    if select is None or select.args.get("group") is None:
        return False
    group = select.args["group"]
    if group.args.get("all") or group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        return True
    # A name that is selected too becomes the ordinal of what is selected.
    selected = {item.alias_or_name.lower() for item in select.expressions}
    keys = set().union(*(_named(key, selected) for key in group.find_all(exp.Column)))
    return not keys.isdisjoint(name.lower() for name in columns)


def _named(column: exp.Column, selected: set[str]) -> set[str]:
    parts = {part.name.lower() for part in column.parts}
    return parts if column.table else parts - selected


def scalar(holder: exp.Expr) -> exp.Expr | None:
    """The one value of a resolved sub-query that reads nothing, where a value is wanted."""
    if isinstance(holder.parent, _SETS) or holder.args.get("limit") is not None:
        return None
    return row_value(holder.this)


def row_value(query: exp.Expr) -> exp.Expr | None:
    """The value of the one row of a resolved query that has no FROM, in brackets; None for any other query."""
    if str(query.args.get("kind") or "").upper() == "STRUCT":
        return _struct_of(query)
    columns = constants(query)
    if columns is None or len(columns) != 1:
        return None
    return exp.Paren(this=copied(next(iter(columns.values()))))


def _struct_of(query: exp.Expr) -> exp.Expr | None:
    clauses = [clause for clause in _CLAUSES if clause != "kind"]
    items = query.expressions
    if any(query.args.get(clause) for clause in clauses) or any(item.find(*_MANY) for item in items):
        return None
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(item.alias_or_name, quoted=True), expression=copied(item.unalias()))
        for item in items
    ]
    return exp.Struct(expressions=fields)
