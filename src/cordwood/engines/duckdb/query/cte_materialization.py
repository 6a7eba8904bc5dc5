"""Materialize a CTE that is read several times, where DuckDB would plan it anew at every place.

DuckDB decides by itself what to materialize, and inlines joins of joins: it took four minutes to plan 12 CTEs that each
read the previous one twice. It also replans a CTE that is read once for each correlated sub-query below the LIMIT of an
answer: eight took eleven seconds. Small statements are left unchanged, because filters then reach the scans.
"""

from collections import Counter
from typing import Final

from sqlglot import exp

from cordwood.sql.plan_size import MAX_POINTS, measure_plan

_LARGE: Final = MAX_POINTS // 5


def materialize_shared_ctes(tree: exp.Expr) -> None:
    """Mark CTEs to materialize until the plan is small.

    First those that are read several times, except filters; then filters; then all.
    """
    ctes = [cte for cte in tree.find_all(exp.CTE) if not _is_recursive(cte)]
    if not ctes or measure_plan(tree).size.total <= _LARGE:
        return
    uses = Counter(table.name for table in tree.find_all(exp.Table))
    filters = {id(cte) for cte in ctes if cte.args.get("materialized") is False}
    shared = [cte for cte in ctes if uses[cte.alias] > 1]
    for candidates in ([cte for cte in shared if id(cte) not in filters], shared, ctes):
        if measure_plan(tree).size.total <= _LARGE:
            return
        for cte in candidates:
            cte.set("materialized", True)  # noqa: FBT003 - an argument of the node


def _is_recursive(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.find_all(exp.Table))
