"""The chain of SELECTs between a scan and the answer."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
from sqlglot import exp

from cordwood.sql.budget import check_time
from cordwood.sql.nodes import cte_of


class ChainedSelect(msgspec.Struct, frozen=True):
    """A SELECT between the scan and the answer, and its alias for the relation that it reads."""

    select: exp.Select
    alias: str


def selects_to_answer(tree: exp.Expr, table: exp.Table) -> list[ChainedSelect]:
    """Return the SELECTs from the scan to the answer if each is read only once, by the next; else an empty list."""
    steps: list[ChainedSelect] = []
    uses = RelationUses(tree)
    relation: exp.Expr | None = table
    while relation is not None:
        select = reading_select(relation)
        if select is None:
            return []
        steps.append(ChainedSelect(select, relation.alias_or_name))
        if select is tree:
            return steps
        relation = uses.only_use(select)
    return []


def is_one_scan(tree: exp.Expr, steps: Sequence[ChainedSelect]) -> bool:
    """Return whether the tree consists of these SELECTs only."""
    return bool(steps) and tree.find(exp.Join) is None and len(list(tree.find_all(exp.Select))) == len(steps)


def aggregates_before_limit(steps: Sequence[ChainedSelect]) -> bool:
    """Return whether events are aggregated before a LIMIT, so that all events that pass the filters are read."""
    for step in steps:
        if step.select.args.get("group"):
            return True
        if step.select.args.get("limit") or step.select.args.get("offset"):
            return False
    return False


def reading_select(relation: exp.Expr) -> exp.Select | None:
    """Return the SELECT that reads the relation; None for a pivot, and for an outer join that keeps unmatched rows."""
    if relation.args.get("pivots"):
        return None
    clause = relation.parent
    select = clause.parent if clause is not None else None
    if not isinstance(clause, exp.From | exp.Join) or not isinstance(select, exp.Select):
        return None
    return None if any(map(_is_outer_or_filtering_join, select.args.get("joins") or ())) else select


def _is_outer_or_filtering_join(join: exp.Join) -> bool:
    return bool(join.side or join.method or join.kind in ("SEMI", "ANTI"))


class RelationUses:
    """For each sub-query of a syntax tree, the relations that refer to it; found by one walk when first requested."""

    def __init__(self, tree: exp.Expr) -> None:
        self._tree = tree

    @cached_property
    def _tables(self) -> Mapping[str, Sequence[exp.Table]]:
        tables: dict[str, list[exp.Table]] = {}
        for table in self._tree.find_all(exp.Table):
            tables.setdefault(table.name, []).append(table)
        return tables

    def only_use(self, select: exp.Select) -> exp.Expr | None:
        """Return the only relation through which a sub-query is read; None if there are several."""
        check_time()
        container = select.parent
        if isinstance(container, exp.Subquery):
            return container
        if not isinstance(container, exp.CTE):
            return None
        uses = [table for table in self._tables.get(container.alias, ()) if cte_of(table) is container]
        return uses[0] if len(uses) == 1 else None
