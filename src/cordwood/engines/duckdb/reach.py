"""Reads paths of events where the events lie, however many sub-queries are between them and their reader.

DuckDB takes a path from its shredded columns only where the path stands beside the table itself: read through a
sub-query, the same path has every event put together first, which costs a hundred times as much. So each path
that is read of a sub-query's column becomes a column of that sub-query, down to the stream's own tables.
"""

import re
from dataclasses import dataclass, field
from enum import Enum

from sqlglot import exp

from cordwood.engines.duckdb.rules.events import RECORD_TEMPLATE
from cordwood.engines.duckdb.tables import COLUMNS, quoted
from cordwood.model.event import written_path
from cordwood.sql.fragment import is_fragment, template_of

_PATH = re.compile(r'\{0\}((?:\."(?:[^"]|"")*")+)')
_STEP = re.compile(r'\."((?:[^"]|"")*)"')
_AS_TEXT = "{0}::VARCHAR"

Relation = exp.Expr


class _Manner(Enum):
    """How a path is read: as it is, as text, or only as to whether it holds an object."""

    VALUE = "value"
    TEXT = "text"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class _Read:
    """A path below a column, as SQL: `."request"."path"`."""

    column: str
    path: str
    manner: _Manner

    @property
    def name(self) -> str:
        return f"{self.column}{self.path} {self.manner.value}"

    def below(self, column: str, path: str) -> "_Read":
        return _Read(column, path + self.path, self.manner)

    def printed(self) -> str:
        return f"{self._value()} AS {quoted(self.name)}"

    def _value(self) -> str:
        value = f"{quoted(self.column)}{self.path}"
        if self.manner is _Manner.RECORD:
            return f'contains("object_paths", {_literal(written_path(self._steps()))})'
        return f"{value}::VARCHAR" if self.manner is _Manner.TEXT else value

    def _steps(self) -> list[str]:
        steps = [step.replace('""', '"') for step in _STEP.findall(self.path)]
        return steps if self.column == "extras" else [self.column, *steps]


@dataclass(frozen=True, slots=True)
class Source:
    """A place where a stream is read, and what is read beside its own columns, as SQL."""

    table: exp.Table
    columns: tuple[str, ...]


@dataclass(slots=True)
class _Reach:
    """`streams` are the names of streams; reads of each of their tables are kept by the table's node."""

    streams: frozenset[str]
    tables: dict[int, list[_Read]] = field(default_factory=dict)

    def provide(self, relation: Relation, read: _Read, depth: int = 0) -> str | None:
        """Make the relation have a column that is the read, and name it; None where it cannot."""
        if depth > 50:
            return None
        if isinstance(relation, exp.Subquery):
            return self._provide_in(relation.this, read, depth)
        if not isinstance(relation, exp.Table):
            return None
        if relation.name in self.streams and cte_of(relation) is None:
            return self._provide_of_stream(relation, read)
        cte = cte_of(relation)
        return None if cte is None else self._provide_in(cte.this, read, depth)

    def _provide_of_stream(self, table: exp.Table, read: _Read) -> str | None:
        if COLUMNS.get(read.column) != "VARIANT":
            return None
        reads = self.tables.setdefault(id(table), [])
        if read not in reads:
            reads.append(read)
        return read.name

    def _provide_in(self, query: exp.Expr, read: _Read, depth: int) -> str | None:
        if not isinstance(query, exp.Select) or not _may_widen(query):
            return None
        projections = {item.alias: item.this for item in query.expressions}
        if read.name in projections:
            return read.name
        found = _path_of(projections.get(read.column))
        if found is None:
            return None
        column, path = found
        name = self._provide_within(query, column.table, read.below(column.name, path), depth)
        if name is not None:
            query.append("expressions", exp.alias_(_column(name, column.table), read.name, quoted=True))
        return name and read.name

    def _provide_within(self, query: exp.Select, alias: str, read: _Read, depth: int) -> str | None:
        relation = _relation(query, alias)
        return None if relation is None else self.provide(relation, read, depth + 1)


def reach(tree: exp.Expr, streams: frozenset[str]) -> list[Source]:
    """Read the lowered tree's paths at the streams' tables, and tell what those are to be read with."""
    work = _Reach(streams)
    fragments = [node for node in tree.find_all(exp.Anonymous) if is_fragment(node)]
    for node in filter(_asks_for_record, fragments):
        _move(node, node.expressions[1], _Manner.RECORD, work)
    for node in filter(_path_of, fragments):
        _move_path(node, work)
    tables = [table for table in tree.find_all(exp.Table) if table.name in streams and cte_of(table) is None]
    return [Source(table, tuple(read.printed() for read in work.tables.get(id(table), ()))) for table in tables]


def _move_path(node: exp.Expr, work: _Reach) -> None:
    reader = node.parent
    if reader is not None and is_fragment(reader) and _reads_as_text(reader):
        if _move(node, node, _Manner.TEXT, work):
            reader.expressions[0].replace(exp.Literal.string(template_of(reader).replace(_AS_TEXT, "{0}")))
    else:
        _move(node, node, _Manner.VALUE, work)


def _move(node: exp.Expr, value: exp.Expr, manner: _Manner, work: _Reach) -> bool:
    """Put a column of the value's relation in the node's place; whether there can be one."""
    found = _path_of(value)
    select = node.find_ancestor(exp.Select)
    if found is None or select is None:
        return False
    column, path = found
    relation = _relation(select, column.table)
    name = None if relation is None else work.provide(relation, _Read(column.name, path, manner))
    if name is not None:
        node.replace(_column(name, column.table))
    return name is not None


def _asks_for_record(node: exp.Expr) -> bool:
    return template_of(node) == RECORD_TEMPLATE


def _path_of(node: exp.Expr | None) -> tuple[exp.Column, str] | None:
    """The column and what follows it; the path is empty for a column alone."""
    if node is None:
        return None
    if not is_fragment(node):
        return _column_and(node, "")
    match = _PATH.fullmatch(template_of(node))
    return _column_and(node.expressions[1], match[1]) if match else None


def _column_and(value: exp.Expr, path: str) -> tuple[exp.Column, str] | None:
    return (value, path) if isinstance(value, exp.Column) and value.table else None


def _reads_as_text(node: exp.Expr) -> bool:
    template = template_of(node)
    return len(node.expressions) == 2 and template.count("{0}") == template.count(_AS_TEXT) > 0


def _relation(select: exp.Select, alias: str) -> Relation | None:
    """What the alias stands for in this query's own FROM; sources that repeat rows cannot be widened."""
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    for relation in ([from_.this] if isinstance(from_, exp.From) else []) + joined:
        if isinstance(relation, exp.Table | exp.Subquery) and relation.alias_or_name == alias:
            return relation
    return None


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The sub-query of that name that the table sees; none where it may read itself."""
    node: exp.Expr | None = table.parent
    while node is not None:
        with_ = node.args.get("with_")
        cte = _named(with_, table.name) if isinstance(with_, exp.With) else None
        if cte is not None:
            return None if cte.parent is not None and cte.parent.args.get("recursive") else cte
        node = node.parent
    return None


def _named(with_: exp.With, name: str) -> exp.CTE | None:
    found = (cte for cte in with_.expressions if isinstance(cte, exp.CTE) and cte.alias == name)
    return next(found, None)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _may_widen(query: exp.Select) -> bool:
    """Whether one column more leaves the query's rows as they are."""
    return not (query.args.get("distinct") or query.args.get("group") or query.args.get("kind"))


def _column(name: str, table: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))
