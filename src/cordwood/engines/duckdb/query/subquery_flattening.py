"""Flatten sub-queries that only select and filter columns of events into the SELECT that reads them.

The result is the same, and DuckDB plans one SELECT in less time than three.
"""

from itertools import pairwise

from sqlglot import exp

from cordwood.engines.duckdb.query.plan_path import Step, is_one_scan, way_of
from cordwood.sql.budget import copied
from cordwood.sql.nodes import swap
from cordwood.sql.typing import inherit


def flatten(tree: exp.Expr, table: exp.Table) -> None:
    """Flatten upwards from the only table of the tree, as long as the SELECTs only select columns and filter."""
    way = way_of(tree, table)
    if not is_one_scan(tree, way):
        return
    for below, above in pairwise(way):
        if not (_only_picks(below.select) and _reads_only_what_is_picked(above, below.select)):
            return
        _merge(below.select, above)


def _only_picks(select: exp.Select) -> bool:
    told = {key for key, value in select.args.items() if value}
    return told <= {"expressions", "from_", "where"} and all(
        isinstance(item.unalias(), exp.Column) for item in select.expressions
    )


def _reads_only_what_is_picked(above: Step, below: exp.Select) -> bool:
    """Return whether every column is qualified and selected below; an unqualified name could be another column."""
    picked = {item.alias for item in below.expressions}
    columns = list(above.select.find_all(exp.Column))
    return all(column.table for column in columns) and picked >= {
        column.name
        for column in columns
        if column.table == above.alias and column.find_ancestor(exp.Select) is above.select
    }


def _merge(below: exp.Select, above: Step) -> None:
    picked = {item.alias: item.unalias() for item in below.expressions}
    source, filters = below.args["from_"].pop(), [below.args.get("where"), above.select.args.get("where")]
    above.select.args["from_"].pop()
    _forget(below)
    for column in list(above.select.find_all(exp.Column)):
        if column.table == above.alias:
            swap(column, inherit(copied(picked[column.name]), column))
    above.select.set("from_", source)
    above.select.set("where", None)
    above.select.where(*(each.this for each in filters if each is not None), copy=False)


def _forget(named: exp.Select) -> None:
    """Remove a CTE that is no longer read."""
    cte = named.parent
    if isinstance(cte, exp.CTE):
        with_ = cte.parent
        cte.pop()
        if with_ is not None and not with_.expressions:
            with_.pop()
