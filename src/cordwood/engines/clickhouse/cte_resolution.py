"""Resolve CTEs as ClickHouse does: the body of a CTE is resolved where it is read, not where it is defined.

So if two CTEs have the same name, a body may refer to another CTE than its author intended, and if that leads back to a
CTE that is being resolved, the name refers to a table of the database: `WITH a AS (…), b AS (SELECT x FROM a) SELECT x
FROM (WITH a AS (SELECT x FROM b) SELECT x FROM b)` reads a table b.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from cordwood.engines.clickhouse import parse_tree as tree
from cordwood.engines.isolation import BreachError
from cordwood.engines.parse_trees import children

_MOST_STEPS: Final = 50_000


class _Frame(msgspec.Struct, eq=False):
    """The CTEs of one WITH, and the enclosing frame."""

    ctes: dict[str, tree.WithElement]
    around: "_Frame | None"
    recursive: bool = False


class CteResolution:
    """The resolution of one statement: wherever a table reference resolves, it must be a CTE or a permitted table."""

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._steps = 0
        self._seen: set[tuple[int, int, frozenset[int]]] = set()
        # Keeps frames alive, because `_seen` identifies them by their addresses.
        self._frames: list[_Frame] = []

    def follow(self, node: Any, frame: _Frame | None = None, under_way: frozenset[int] = frozenset()) -> None:
        """Raise BreachError if a reference below the node can resolve to another table."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise BreachError("CTEs of the same names that are read too often to be followed")
        kind = type(node)
        if kind is tree.TableIdentifier:
            self._follow_reference(node.name, frame, under_way)
        elif kind is tree.SelectWithUnionQuery:
            self._follow_union(node, frame, under_way)
        elif kind is tree.SelectQuery:
            within = self._framed(node, frame)
            for element in node.with_.children if node.with_ else ():
                if not isinstance(element, tree.WithElement):
                    self.follow(element, within, under_way)
            self._follow_parts(node, within, under_way, "with_")
        else:
            self._follow_parts(node, frame, under_way)

    def _follow_parts(self, node: Any, frame: _Frame | None, under_way: frozenset[int], *without: str) -> None:
        for part, _ in children(node, frozenset(), *without):
            self.follow(part, frame, under_way)

    def _follow_union(self, union: tree.SelectWithUnionQuery, frame: _Frame | None, under_way: frozenset[int]) -> None:
        first, *others = union.list_of_selects.children
        self.follow(first, frame, under_way)
        beside = self._framed(first, frame) if isinstance(first, tree.SelectQuery) else frame
        for other in others:
            self.follow(other, beside, under_way)

    def _follow_reference(self, name: str, frame: _Frame | None, under_way: frozenset[int]) -> None:
        at = frame
        while at is not None:
            element = at.ctes.get(name)
            if element is not None and id(element) not in under_way:
                self._follow_cte(element, frame, under_way)
                return
            if element is not None and at.recursive:
                return
            at = at.around
        if name not in self._tables:
            raise BreachError(f"the table {name}")

    def _follow_cte(self, element: tree.WithElement, frame: _Frame | None, under_way: frozenset[int]) -> None:
        key = (id(element), id(frame), under_way)
        if key not in self._seen:
            self._seen.add(key)
            self.follow(element.subquery, frame, under_way | {id(element)})

    def _framed(self, select: tree.SelectQuery, around: _Frame | None) -> _Frame | None:
        elements = [one for one in select.with_.children if isinstance(one, tree.WithElement)] if select.with_ else []
        if not elements:
            return around
        self._frames.append(_Frame({one.name: one for one in elements}, around, select.recursive_with))
        return self._frames[-1]


def has_names_twice(query: tree.SelectWithUnionQuery) -> bool:
    """Return whether two CTEs share a name; otherwise each name refers to one CTE wherever it is resolved."""
    names: Counter[str] = Counter()
    waiting: list[msgspec.Struct] = [query]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tree.WithElement):
            names[node.name] += 1
        waiting += [part for part, _ in children(node, frozenset())]
    return any(count > 1 for count in names.values())
