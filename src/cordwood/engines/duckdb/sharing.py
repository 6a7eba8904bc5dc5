"""Computes a sub-query of WITH once that is read several times, where its plan would otherwise be put at every place.

DuckDB decides for itself what it computes once, and joins of joins it puts in place: 12 sub-queries that each read the
one before twice took it four minutes to plan. Small statements are left to it, for filters then reach the scans.
"""

from collections import Counter
from typing import Final

from sqlglot import exp

from cordwood.sql.plan_size import MOST_POINTS, plan_of

_LARGE: Final = MOST_POINTS // 5


def share(tree: exp.Expr) -> None:
    """Mark what is to be computed once: first what is not known to be a mere filter, then what is."""
    uses = Counter(table.name for table in tree.find_all(exp.Table))
    shared = [cte for cte in tree.find_all(exp.CTE) if uses[cte.alias] > 1 and not _is_recursive(cte)]
    for only_filters in (False, True):
        some = [cte for cte in shared if (cte.args.get("materialized") is False) is only_filters]
        if not some or plan_of(tree).size.total <= _LARGE:
            continue
        for cte in some:
            cte.set("materialized", True)  # noqa: FBT003 - an argument of the node


def _is_recursive(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.find_all(exp.Table))
