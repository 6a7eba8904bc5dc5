"""Computes a sub-query of WITH once that is read several times, where its plan would otherwise be put at every place.

DuckDB decides for itself what it computes once, and joins of joins it puts in place: 12 sub-queries that each read the
one before twice took it four minutes to plan. So it does where each is read once, by correlated sub-queries below the
LIMIT of an answer: eight took eleven seconds. Small statements are left to it, for filters then reach the scans.
"""

from collections import Counter
from typing import Final

from sqlglot import exp

from cordwood.sql.plan_size import MOST_POINTS, plan_of

_LARGE: Final = MOST_POINTS // 5


def share(tree: exp.Expr) -> None:
    """Mark what is to be computed once: first what is read often and no mere filter, then what is, last all the others."""
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
