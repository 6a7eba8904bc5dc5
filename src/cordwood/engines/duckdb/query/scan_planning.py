"""Plan the scans of a lowered tree: the stored table of each stream, and its memtable if it has events.

DuckDB finds the first few rows of one table fast: it begins with the row groups that can have them and materializes
only those events. It does neither over a union. So a query for its first few rows runs on each table alone, and its
answer is the first few rows of both results.
"""

from collections.abc import Sequence

from sqlglot import exp

from cordwood.engines.duckdb.query.late_materialization import (
    materialize_late,
    requested_rows,
    selects_first_rows,
    selects_newest_events,
)
from cordwood.engines.duckdb.query.scan_source import EventTable, ScanSource
from cordwood.engines.duckdb.query.select_chain import aggregates_before_limit, selects_to_answer
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import inherit

# The alias of the union; the parts inside it cannot refer to it.
_UNION_ALIAS = "first of each"


def plan_scans(tree: exp.Expr, sources: Sequence[ScanSource], *, at_rest: bool = False) -> exp.Expr:
    """Replace each stream by a scan of its stored table, plus its memtable unless `at_rest`; mutates the tree."""
    if len(sources) == 1 and isinstance(tree, exp.Select) and selects_first_rows(tree, sources[0]):
        return (
            materialize_late(tree, sources[0], EventTable.FLUSHED, is_alone=True)
            if at_rest
            else _merge_first_rows(tree, sources[0])
        )
    for source in sources:
        reads_all = aggregates_before_limit(selects_to_answer(tree, source.table))
        tables = (EventTable.FLUSHED, EventTable.MEMTABLE)[: 1 if at_rest else 2]
        source.replace_table(*[source.events(table, reads_all=reads_all) for table in tables])
    return tree


def plan_arrived_scan(tree: exp.Expr, sources: Sequence[ScanSource]) -> exp.Expr:
    """Replace each stream by a scan of its arrived events; mutates the tree."""
    for source in sources:
        source.replace_table(source.events(EventTable.ARRIVED))
    return tree


def plan_recent_scan(tree: exp.Expr, sources: Sequence[ScanSource]) -> exp.Expr | None:
    """Return the tree over the recent table alone, if that table may contain all rows of the answer; else None."""
    if len(sources) != 1 or not isinstance(tree, exp.Select) or not selects_newest_events(tree, sources[0]):
        return None
    recent_tree = copied(tree)
    source = sources[0].in_copy(recent_tree)
    source.replace_table(source.events(EventTable.RECENT))
    return recent_tree


def _merge_first_rows(tree: exp.Select, source: ScanSource) -> exp.Select:
    merged = exp.Select(expressions=[_select_by_position(index, item) for index, item in enumerate(tree.expressions)])
    merged.set("order", _order_by_positions(tree))
    for name in ("limit", "offset"):
        merged.set(name, tree.args.get(name) and copied(tree.args[name]))
    tree.set("limit", exp.Limit(expression=exp.Literal.number(requested_rows(tree))))
    tree.set("offset", None)
    memtable_tree = copied(tree)
    union = exp.Union(
        this=materialize_late(tree, source, EventTable.FLUSHED),
        expression=materialize_late(memtable_tree, source.in_copy(memtable_tree), EventTable.MEMTABLE),
        distinct=False,
    )
    names = [_quoted_identifier(f"c{index}") for index, _ in enumerate(tree.expressions)]
    alias = exp.TableAlias(this=_quoted_identifier(_UNION_ALIAS), columns=names)
    return merged.from_(exp.Subquery(this=union, alias=alias), copy=False)


def _order_by_positions(tree: exp.Select) -> exp.Order:
    """Return the order by column positions; columns that are ordered by and not selected are added to the answer."""
    keys = []
    for key in tree.args["order"].expressions:
        keys.append(copied(key))
        keys[-1].set("this", _quoted_column(_column_index(tree, key.this)))
    return exp.Order(expressions=keys)


def _column_index(tree: exp.Select, value: exp.Expr) -> int:
    if isinstance(value, exp.Literal) and value.is_int:
        return int(value.this) - 1
    tree.append("expressions", exp.alias_(copied(value), f"key {len(tree.expressions)}", quoted=True))
    return len(tree.expressions) - 1


def _select_by_position(index: int, item: exp.Expr) -> exp.Expr:
    column = _quoted_column(index)
    inherit(column, item)
    alias = exp.alias_(column, item.alias, quoted=True)
    inherit(alias, item)
    return alias


def _quoted_column(index: int) -> exp.Column:
    return exp.column(f"c{index}", _UNION_ALIAS, quoted=True)


def _quoted_identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
