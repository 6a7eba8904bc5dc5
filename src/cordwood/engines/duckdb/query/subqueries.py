"""Rewrite sub-queries and CTEs that DuckDB plans slowly: flatten simple sub-queries, and materialize CTEs.

DuckDB plans one SELECT in less time than three SELECTs with the same result. By default, it inlines CTEs: in a
measurement, it took four minutes to plan 12 CTEs that each read the previous CTE twice. Even a CTE that is read only
once is planned again for each correlated sub-query below the LIMIT of an answer. With eight such sub-queries, planning
took eleven seconds. CTEs of small statements are not materialized, so that DuckDB can push filters down to the scans.
"""

from collections import Counter
from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.query.scan_planning import ChainedSelect, find_select_chain, is_single_chain
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import inherit_metadata
from cordwood.sql.nodes import replace_node
from cordwood.sql.plan_size import MAX_PLANNING_COST_POINTS, measure_plan


def flatten_sub_queries(tree: exp.Expr, table: exp.Table) -> None:
    """Merge sub-queries that only select and filter into the SELECTs that read them; mutates `tree`.

    Merging begins at the sub-query that reads `table`, and ends at the first sub-query that cannot be merged.
    """
    steps = find_select_chain(tree, table)
    if not is_single_chain(tree, steps):
        return
    for below, above in pairwise(steps):
        if not (_only_selects_columns(below.select) and _reads_only_selected_columns(above, below.select)):
            return
        _merge_selects(below.select, above)


def _only_selects_columns(select: exp.Select) -> bool:
    clauses = {key for key, value in select.args.items() if value}
    return clauses <= {"expressions", "from_", "where"} and all(
        isinstance(item.unalias(), exp.Column) for item in select.expressions
    )


def _reads_only_selected_columns(above: ChainedSelect, below: exp.Select) -> bool:
    """Return whether `above` names a relation for every column, and reads only columns that `below` selects.

    A column name without a relation could mean another column after the merge.
    """
    selected = {item.alias for item in below.expressions}
    columns = list(above.select.find_all(exp.Column))
    return all(column.table for column in columns) and selected >= {
        column.name
        for column in columns
        if column.table == above.relation_alias and column.find_ancestor(exp.Select) is above.select
    }


def _merge_selects(below: exp.Select, above: ChainedSelect) -> None:
    selected = {item.alias: item.unalias() for item in below.expressions}
    source, filters = below.args["from_"].pop(), [below.args.get("where"), above.select.args.get("where")]
    above.select.args["from_"].pop()
    _remove_unread_cte(below)
    for column in list(above.select.find_all(exp.Column)):
        if column.table == above.relation_alias:
            replace_node(column, inherit_metadata(copy_tree(selected[column.name]), column))
    above.select.set("from_", source)
    above.select.set("where", None)
    above.select.where(*(clause.this for clause in filters if clause is not None), copy=False)


def _remove_unread_cte(query: exp.Select) -> None:
    """Remove the CTE of `query`, because the query was merged into the only SELECT that read the CTE."""
    cte = query.parent
    if isinstance(cte, exp.CTE):
        with_ = cte.parent
        cte.pop()
        if with_ is not None and not with_.expressions:
            with_.pop()


# CTEs are materialized only in statements whose measured plan is larger than this.
_MAX_UNMATERIALIZED_PLAN_POINTS: Final = MAX_PLANNING_COST_POINTS // 5


def materialize_shared_ctes(tree: exp.Expr) -> None:
    """Mark CTEs for materialization, group by group, until the plan is small enough.

    The first group has CTEs that are read several times and are not marked as `NOT MATERIALIZED`. The second group has
    all CTEs that are read several times, and the third group has all CTEs. Recursive CTEs are never marked.
    """
    ctes = [cte for cte in tree.find_all(exp.CTE) if not _is_recursive(cte)]
    if not ctes or measure_plan(tree).size.total_cost_points <= _MAX_UNMATERIALIZED_PLAN_POINTS:
        return
    uses = Counter(table.name for table in tree.find_all(exp.Table))
    filters = {id(cte) for cte in ctes if cte.args.get("materialized") is False}
    shared = [cte for cte in ctes if uses[cte.alias] > 1]
    for candidates in ([cte for cte in shared if id(cte) not in filters], shared, ctes):
        if measure_plan(tree).size.total_cost_points <= _MAX_UNMATERIALIZED_PLAN_POINTS:
            return
        for cte in candidates:
            cte.set("materialized", True)  # noqa: FBT003 - an argument of the node


def _is_recursive(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.find_all(exp.Table))
