"""Inline constant sub-queries: the values of a SELECT without FROM replace its columns.

Then an engine can use such values as bounds of a scan.
"""

from collections.abc import Iterable
from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.scope import Field, Relation, lineage_of

# The metadata key of a value that replaces a column reference.
FOLDED_KEY: Final = "folded"
_NON_CONSTANT_CLAUSES: Final = (
    "from_", "joins", "where", "group", "having", "qualify", "limit", "offset", "distinct", "with_", "kind", "order",
)  # fmt: skip
# Expressions that use a sub-query's rows rather than its value.
_SETS: Final = (exp.In, exp.Exists, exp.Any, exp.All, exp.Array, exp.SetOperation, exp.Subquery, exp.From, exp.Join)
_USES_OF_ROWS: Final = (exp.AggFunc, exp.Window, exp.Unnest, exp.Star)


def constant_columns(query: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns of a resolved query that is one row of values, by name; None for any other query."""
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in _NON_CONSTANT_CLAUSES):
        return None
    items = query.expressions
    if any(not isinstance(item, exp.Alias) or item.find(*_USES_OF_ROWS) for item in items):
        return None
    return {item.alias: item.this for item in items}


def constant_relation(alias: str, columns: dict[str, exp.Expr]) -> Relation:
    """Return a relation that is in no FROM: its columns are the values themselves."""
    return Relation(
        alias, {name.lower(): Field(name, _mark_folded(value), lineage_of(value)) for name, value in columns.items()}
    )


def _mark_folded(value: exp.Expr) -> exp.Expr:
    paren = exp.Paren(this=copied(value))
    paren.meta[FOLDED_KEY] = True
    return paren


def are_group_keys(columns: Iterable[str], select: exp.Expr | None) -> bool:
    """Return whether rows are grouped by one of these columns, where a constant would be an ordinal or invalid."""
    if select is None or select.args.get("group") is None:
        return False
    group = select.args["group"]
    if group.args.get("all") or group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        return True
    # A name that is also a select alias refers to the select list.
    selected = {item.alias_or_name.lower() for item in select.expressions}
    keys = set().union(*(_names_in(key, selected) for key in group.find_all(exp.Column)))
    return not keys.isdisjoint(name.lower() for name in columns)


def _names_in(column: exp.Column, selected: set[str]) -> set[str]:
    parts = {part.name.lower() for part in column.parts}
    return parts if column.table else parts - selected


def constant_scalar(sub_query: exp.Expr) -> exp.Expr | None:
    """Return the value of a resolved scalar sub-query that reads nothing; None for any other sub-query."""
    if isinstance(sub_query.parent, _SETS) or sub_query.args.get("limit") is not None:
        return None
    return row_value(sub_query.this)


def row_value(query: exp.Expr) -> exp.Expr | None:
    """Return the parenthesised value of a resolved query that has one row and no FROM; None for any other query."""
    if str(query.args.get("kind") or "").upper() == "STRUCT":
        return _struct_value(query)
    columns = constant_columns(query)
    if columns is None or len(columns) != 1:
        return None
    return exp.Paren(this=copied(next(iter(columns.values()))))


def _struct_value(query: exp.Expr) -> exp.Expr | None:
    clauses = [clause for clause in _NON_CONSTANT_CLAUSES if clause != "kind"]
    items = query.expressions
    if any(query.args.get(clause) for clause in clauses) or any(item.find(*_USES_OF_ROWS) for item in items):
        return None
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(item.alias_or_name, quoted=True), expression=copied(item.unalias()))
        for item in items
    ]
    return exp.Struct(expressions=fields)
