"""Sub-queries: ambiguous table names, counts that are zero without rows, and clauses behind a parenthesis."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.with_wrapping import as_relation
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet

# The parents of a query that use its rows and not its value.
_ROW_PARENTS: Final = (
    exp.In,
    exp.Exists,
    exp.Any,
    exp.All,
    exp.Array,
    exp.SetOperation,
    exp.Subquery,
    exp.From,
    exp.Join,
)
_COUNTS_ZERO: Final = "counts_none"
_CHANGES_ROWS: Final = ("group", "having", "qualify", "limit", "offset")


def rename_shadowed(select: exp.Expr) -> None:
    """Rename relations that an inner query shadows: ClickHouse resolves `t.a` to an inner table t of any alias."""
    inner_names = {
        table.name
        for table in select.find_all(exp.Table)
        if table.alias_or_name != table.name and table.parent_select is not select
    }
    for relation in list(_relations(select)) if inner_names else []:
        name = relation.alias_or_name
        if name in inner_names and isinstance(relation, (exp.Table, exp.Subquery)):
            _rename(select, name, f"{name}$")
            relation.set("alias", exp.TableAlias(this=exp.to_identifier(f"{name}$", quoted=True)))


def _relations(select: exp.Expr) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _rename(select: exp.Expr, name: str, new_name: str) -> None:
    def is_shadowed(node: exp.Expr) -> bool:
        is_inner = isinstance(node, exp.Select) and node is not select
        return is_inner and any(relation.alias_or_name == name for relation in _relations(node))

    for node in list(select.walk(prune=is_shadowed)):
        if isinstance(node, exp.Column) and node.table == name and not is_shadowed(node):
            node.set("table", exp.to_identifier(new_name, quoted=True))


def mark_count(select: exp.Expr) -> None:
    """Mark a correlated COUNT, which ClickHouse returns as NULL if it finds nothing."""
    items = select.expressions
    is_count = len(items) == 1 and isinstance(items[0].unalias(), (exp.Count, exp.CountIf))
    if is_count and isinstance(select.parent, exp.Subquery) and not any(map(select.args.get, _CHANGES_ROWS)):
        inner_relations = {
            relation.alias_or_name for inner in select.find_all(exp.Select) for relation in _relations(inner)
        }
        select.meta[_COUNTS_ZERO] = any(column.table not in inner_relations for column in select.find_all(exp.Column))


def _subquery(node: exp.Expr) -> exp.Expr:
    if any(node.args.get(key) for key in ("order", "limit", "offset")):
        return as_relation(node)
    if node.this.meta_get(_COUNTS_ZERO) and not isinstance(node.parent, _ROW_PARENTS):
        return fragment("ifNull({0}, 0)", exp.Subquery(this=node.this))
    return node


RULES = RuleSet(nodes={exp.Subquery: _subquery})
