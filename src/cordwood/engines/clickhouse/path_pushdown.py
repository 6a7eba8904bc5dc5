"""Push reads of event paths down to their subcolumns, through any number of sub-queries.

ClickHouse stores the paths of a JSON column as subcolumns and reads one without the others, but only if the path is in
the SELECT that reads the table. So each path that is read from a sub-query's column becomes a column of that sub-query,
down to the stream's table. Only paths at which the shape has only texts, numbers and booleans are read so; all others
are read from the stored JSON text.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.engines.clickhouse.rules.stored import Manner, event_of, stored
from cordwood.engines.clickhouse.tables import PATHS
from cordwood.model.shape import ValueKind
from cordwood.sql.nodes import KINDS, is_event_path, root_and_steps
from cordwood.sql.operations import RecordTest, has_operation

_TEXTS: Final = frozenset({ValueKind.TEXT})
_PLAIN: Final = frozenset({ValueKind.NUMBER, ValueKind.BOOL})
# Keys that need no escaping in a subcolumn's name; others are read from the text.
_STEP: Final = re.compile(r"[A-Za-z0-9_-]+")
_DEEPEST: Final = 50
# The meta key of a column that was generated for a read.
_PROVIDED: Final = "provided"


class _Read(msgspec.Struct, frozen=True):
    """A read of a path below a column."""

    column: str
    steps: tuple[str, ...]
    manner: Manner

    @property
    def name(self) -> str:
        """Return the generated column's name; if the author has a column of that name, the path is not pushed down."""
        return " ".join((self.column, *self.steps, *(["is record"] if self.manner is Manner.RECORD else [])))


def reach(tree: exp.Expr, streams: frozenset[str]) -> None:
    """Replace path reads in the resolved and typed tree by reads of the streams' subcolumns, where they exist."""
    if any(select.is_star for select in tree.find_all(exp.Select)):
        return
    for node in list(tree.find_all(exp.Anonymous)):
        is_test = has_operation(node, RecordTest)
        found = _path_of(node.expressions[0] if is_test else node)
        manner = Manner.RECORD if is_test else _manner(node)
        if found is not None and manner is not None:
            _move(node, found[0], _Read(found[0].name, found[1], manner), streams)


def _manner(node: exp.Expr) -> Manner | None:
    kinds = node.meta_get(KINDS) if is_event_path(node) else None
    if not kinds:
        return None
    if kinds == _TEXTS:
        return Manner.TEXT
    if kinds <= _PLAIN:
        return Manner.PLAIN
    return Manner.JSON if kinds <= _TEXTS | _PLAIN else None


def _move(node: exp.Expr, column: exp.Column, read: _Read, streams: frozenset[str]) -> None:
    select = node.find_ancestor(exp.Select)
    carrier = _provided(select, column.table, read, streams, 0) if isinstance(select, exp.Select) else None
    if carrier is not None:
        node.replace(event_of(carrier, read.manner, node))


def _provided(select: exp.Select, alias: str, read: _Read, streams: frozenset[str], depth: int) -> exp.Expr | None:
    """Return an expression for the path over one of the query's relations; None if that is impossible."""
    relation = _relation(select, alias)
    if relation is None or depth > _DEEPEST or not all(map(_STEP.fullmatch, read.steps)):
        return None
    query = _query(relation)
    if query is None:
        return _of_stream(select, relation, read) if relation.name in streams else None
    if not _widened(query, read, streams, depth):
        return None
    return exp.column(read.name, alias, quoted=True)


def _query(relation: exp.Table | exp.Subquery) -> exp.Expr | None:
    """Return the relation's sub-query; None for a table."""
    holder = cte_of(relation) if isinstance(relation, exp.Table) else relation
    query: exp.Expr | None = holder.this if holder is not None else None
    return query


def _of_stream(select: exp.Select, table: exp.Expr, read: _Read) -> exp.Expr | None:
    """Return the subcolumn, except in an outer join, which could not distinguish it from one of a missing row."""
    if read.column not in PATHS or any(join.side for join in select.args.get("joins") or ()):
        return None
    return stored(table.alias_or_name, read.column, read.steps, read.manner)


def _widened(query: exp.Expr, read: _Read, streams: frozenset[str], depth: int) -> bool:
    """Return whether the sub-query provides the path as a column, generated now or before."""
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in ("distinct", "group", "kind")):
        return False
    there = _projection(query, read.name)
    if there is not None:
        return bool(there.meta_get(_PROVIDED))
    found = _path_of(_projection(query, read.column))
    if found is None:
        return False
    column, steps = found
    further = _Read(column.name, (*steps, *read.steps), read.manner)
    carrier = _provided(query, column.table, further, streams, depth + 1)
    if carrier is not None:
        _append(query, carrier, read.name)
    return carrier is not None


def _projection(query: exp.Select, name: str) -> exp.Expr | None:
    return next((item for item in query.expressions if item.alias == name), None)


def _append(query: exp.Select, carrier: exp.Expr, name: str) -> None:
    provided = exp.alias_(carrier, name, quoted=True)
    provided.meta[_PROVIDED] = True
    query.append("expressions", provided)


def _path_of(node: exp.Expr | None) -> tuple[exp.Column, tuple[str, ...]] | None:
    """Return the column and the path below it; None unless the root is a qualified column."""
    root, steps = root_and_steps(node.unalias()) if node is not None else (None, ())
    return (root, steps) if isinstance(root, exp.Column) and root.table else None


def _relation(select: exp.Select, alias: str) -> exp.Table | exp.Subquery | None:
    """Return the relation of that alias in this query's FROM."""
    for relation in _relations(select):
        if isinstance(relation, exp.Table | exp.Subquery) and relation.alias_or_name == alias:
            return relation
    return None


def _relations(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or ())


def cte_of(table: exp.Table) -> exp.CTE | None:
    """Return the CTE that the table refers to; None if that may be recursive."""
    node: exp.Expr | None = table.parent
    while node is not None:
        with_ = node.args.get("with_")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            if cte.alias == table.name:
                return cte if isinstance(cte, exp.CTE) else None
        node = node.parent
    return None
