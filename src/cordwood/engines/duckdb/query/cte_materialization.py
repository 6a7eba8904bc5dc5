"""Materialize a CTE that is read several times, where DuckDB would plan it anew at every place.

DuckDB decides by itself what to materialize, and inlines joins of joins: 12 CTEs that each read the one before twice
took it four minutes to plan. It also plans a CTE that is read once anew for correlated sub-queries below the LIMIT of an
answer: eight took eleven seconds. Small statements are left to it, since filters then reach the scans.
"""

from collections import Counter
from typing import Final

from sqlglot import exp

from cordwood.sql.plan_size import MOST_POINTS, plan_of

_LARGE: Final = MOST_POINTS // 5


def share(tree: exp.Expr) -> None:
    """Mark the CTEs to materialize: first those that are read often and are no mere filters, then filters, then all others."""
    ctes = [cte for cte in tree.find_all(exp.CTE) if not _is_recursive(cte)]
    if not ctes or plan_of(tree).size.total <= _LARGE:
        return
    uses = Counter(table.name for table in tree.find_all(exp.Table))
    filters = {id(cte) for cte in ctes if cte.args.get("materialized") is False}
    shared = [cte for cte in ctes if uses[cte.alias] > 1]
    for some in ([cte for cte in shared if id(cte) not in filters], shared, ctes):
        if plan_of(tree).size.total <= _LARGE:
            return
        for cte in some:
            cte.set("materialized", True)  # noqa: FBT003 - an argument of the node


def _is_recursive(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.find_all(exp.Table))
