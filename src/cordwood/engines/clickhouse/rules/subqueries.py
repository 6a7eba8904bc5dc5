"""Sub-queries: ambiguous table names, counts that are zero without rows, and clauses behind a parenthesis."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.with_wrapping import as_relation
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet

# The parents of a query that use its rows and not its value.
_OF_ROWS: Final = (exp.In, exp.Exists, exp.Any, exp.All, exp.Array, exp.SetOperation, exp.Subquery, exp.From, exp.Join)
_COUNTS_NONE: Final = "counts_none"
_CHANGES_ROWS: Final = ("group", "having", "qualify", "limit", "offset")


def name_apart(select: exp.Expr) -> None:
    """Rename relations that an inner query shadows: ClickHouse resolves `t.a` to an inner table t of any alias."""
    within = {
        table.name
        for table in select.find_all(exp.Table)
        if table.alias_or_name != table.name and table.parent_select is not select
    }
    for relation in list(_relations(select)) if within else []:
        name = relation.alias_or_name
        if name in within and isinstance(relation, (exp.Table, exp.Subquery)):
            _rename(select, name, f"{name}$")
            relation.set("alias", exp.TableAlias(this=exp.to_identifier(f"{name}$", quoted=True)))


def _relations(select: exp.Expr) -> Iterator[exp.Expr]:
    begun = select.args.get("from_")
    if begun is not None:
        yield begun.this
    yield from (join.this for join in select.args.get("joins") or [])


def _rename(select: exp.Expr, name: str, other: str) -> None:
    def is_shadowed(node: exp.Expr) -> bool:
        own = isinstance(node, exp.Select) and node is not select
        return own and any(relation.alias_or_name == name for relation in _relations(node))

    for node in list(select.walk(prune=is_shadowed)):
        if isinstance(node, exp.Column) and node.table == name and not is_shadowed(node):
            node.set("table", exp.to_identifier(other, quoted=True))


def mark_count(select: exp.Expr) -> None:
    """Mark a correlated COUNT, which ClickHouse returns as NULL if it finds nothing."""
    items = select.expressions
    counted = len(items) == 1 and isinstance(items[0].unalias(), (exp.Count, exp.CountIf))
    if counted and isinstance(select.parent, exp.Subquery) and not any(map(select.args.get, _CHANGES_ROWS)):
        own = {relation.alias_or_name for inner in select.find_all(exp.Select) for relation in _relations(inner)}
        select.meta[_COUNTS_NONE] = any(column.table not in own for column in select.find_all(exp.Column))


def _bracketed(node: exp.Expr) -> exp.Expr:
    if any(node.args.get(key) for key in ("order", "limit", "offset")):
        return as_relation(node)
    if node.this.meta_get(_COUNTS_NONE) and not isinstance(node.parent, _OF_ROWS):
        return fragment("ifNull({0}, 0)", exp.Subquery(this=node.this))
    return node


MEANING = RuleSet(nodes={exp.Subquery: _bracketed})
