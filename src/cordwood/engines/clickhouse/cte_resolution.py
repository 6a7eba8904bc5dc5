"""Resolve CTEs as ClickHouse does: the body of a CTE is resolved where it is read, not where it is defined.

So if two CTEs have the same name, a body may refer to another CTE than its author intended, and if that leads back to a
CTE that is being resolved, the name refers to a table of the database: `WITH a AS (…), b AS (SELECT x FROM a) SELECT x
FROM (WITH a AS (SELECT x FROM b) SELECT x FROM b)` reads a table b.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from cordwood.engines.clickhouse import parse_tree as tree
from cordwood.engines.isolation import BreachError, children

_MAX_STEPS: Final = 50_000


class _Frame(msgspec.Struct, eq=False):
    """The CTEs of one WITH, and the enclosing frame."""

    ctes: dict[str, tree.WithElement]
    enclosing: "_Frame | None"
    recursive: bool = False


class CteResolution:
    """The resolution of one statement: wherever a table reference resolves, it must be a CTE or a permitted table."""

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._steps = 0
        self._visited: set[tuple[int, int, frozenset[int]]] = set()
        # Keeps frames alive, because `_visited` identifies them by their addresses.
        self._frames: list[_Frame] = []

    def follow(self, node: Any, frame: _Frame | None = None, resolving: frozenset[int] = frozenset()) -> None:
        """Raise BreachError if a reference below the node can resolve to another table."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise BreachError("CTEs of the same names that are read too often to be followed")
        kind = type(node)
        if kind is tree.TableIdentifier:
            self._follow_reference(node.name, frame, resolving)
        elif kind is tree.SelectWithUnionQuery:
            self._follow_union(node, frame, resolving)
        elif kind is tree.SelectQuery:
            inner_frame = self._frame_of(node, frame)
            for element in node.with_.children if node.with_ else ():
                if not isinstance(element, tree.WithElement):
                    self.follow(element, inner_frame, resolving)
            self._follow_children(node, inner_frame, resolving, "with_")
        else:
            self._follow_children(node, frame, resolving)

    def _follow_children(self, node: Any, frame: _Frame | None, resolving: frozenset[int], *excluded: str) -> None:
        for part, _ in children(node, frozenset(), *excluded):
            self.follow(part, frame, resolving)

    def _follow_union(self, union: tree.SelectWithUnionQuery, frame: _Frame | None, resolving: frozenset[int]) -> None:
        first, *others = union.list_of_selects.children
        self.follow(first, frame, resolving)
        union_frame = self._frame_of(first, frame) if isinstance(first, tree.SelectQuery) else frame
        for other in others:
            self.follow(other, union_frame, resolving)

    def _follow_reference(self, name: str, frame: _Frame | None, resolving: frozenset[int]) -> None:
        current_frame = frame
        while current_frame is not None:
            element = current_frame.ctes.get(name)
            if element is not None and id(element) not in resolving:
                self._follow_cte(element, frame, resolving)
                return
            if element is not None and current_frame.recursive:
                return
            current_frame = current_frame.enclosing
        if name not in self._tables:
            raise BreachError(f"the table {name}")

    def _follow_cte(self, element: tree.WithElement, frame: _Frame | None, resolving: frozenset[int]) -> None:
        key = (id(element), id(frame), resolving)
        if key not in self._visited:
            self._visited.add(key)
            self.follow(element.subquery, frame, resolving | {id(element)})

    def _frame_of(self, select: tree.SelectQuery, enclosing: _Frame | None) -> _Frame | None:
        elements = (
            [element for element in select.with_.children if isinstance(element, tree.WithElement)]
            if select.with_
            else []
        )
        if not elements:
            return enclosing
        self._frames.append(_Frame({element.name: element for element in elements}, enclosing, select.recursive_with))
        return self._frames[-1]


def has_duplicate_names(query: tree.SelectWithUnionQuery) -> bool:
    """Return whether two CTEs share a name; otherwise each name refers to one CTE wherever it is resolved."""
    names: Counter[str] = Counter()
    pending: list[msgspec.Struct] = [query]
    while pending:
        node = pending.pop()
        if isinstance(node, tree.WithElement):
            names[node.name] += 1
        pending += [part for part, _ in children(node, frozenset())]
    return any(count > 1 for count in names.values())
