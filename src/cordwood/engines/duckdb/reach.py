"""Reads paths of events where the events lie, however many sub-queries are between them and their reader.

DuckDB takes a path from its shredded columns only where the path stands beside the table itself: read through a
sub-query, the same path has every event put together first, which costs a hundred times as much. So each path
that is read of a sub-query's column becomes a column of that sub-query, down to the stream's own tables.
"""

import re
from dataclasses import dataclass, field

from sqlglot import exp

from cordwood.engines.duckdb.tables import COLUMNS, StreamTables, quoted
from cordwood.sql.fragment import fragment, is_fragment, template_of

_PATH = re.compile(r'\{0\}((?:\."(?:[^"]|"")*")+)')
_AS_TEXT = "{0}::VARCHAR"

Relation = exp.Expr


@dataclass(frozen=True, slots=True)
class _Read:
    """A path below a column, as SQL (`."request"."path"`), read as text or as it is."""

    column: str
    path: str
    is_text: bool

    @property
    def name(self) -> str:
        return f"{self.column}{self.path}{' text' if self.is_text else ''}"

    def below(self, column: str, path: str) -> "_Read":
        return _Read(column, path + self.path, self.is_text)

    def printed(self) -> str:
        return f"{quoted(self.column)}{self.path}{'::VARCHAR' if self.is_text else ''} AS {quoted(self.name)}"


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
        if relation.name in self.streams and _cte(relation) is None:
            return self._provide_of_stream(relation, read)
        cte = _cte(relation)
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
        if any(item.alias == read.name for item in query.expressions):
            return read.name
        inner = next((item.this for item in query.expressions if item.alias == read.column), None)
        found = _path_of(inner) if inner is not None else None
        if found is None:
            return None
        column, path = found
        relation = _relation(query, column.table)
        name = None if relation is None else self.provide(relation, read.below(column.name, path), depth + 1)
        if name is not None:
            query.append("expressions", exp.alias_(_column(name, column.table), read.name, quoted=True))
        return name and read.name


def reach(tree: exp.Expr, streams: frozenset[str]) -> exp.Expr:
    """The lowered tree with its paths read at the streams' tables; uses up the tree."""
    work = _Reach(streams)
    for node in list(tree.find_all(exp.Anonymous)):
        if is_fragment(node) and node.parent is not None and _path_of(node) is not None:
            _move(node, work)
    for table in list(tree.find_all(exp.Table)):
        if table.name in streams and _cte(table) is None:
            table.replace(_events(table, work.tables.get(id(table), [])))
    return tree


def _move(node: exp.Expr, work: _Reach) -> None:
    found = _path_of(node)
    select = node.find_ancestor(exp.Select)
    if found is None or select is None:
        return
    column, path = found
    relation = _relation(select, column.table)
    reader = node.parent
    is_text = is_fragment(reader) and _reads_as_text(reader)
    name = None if relation is None else work.provide(relation, _Read(column.name, path, is_text))
    if name is None:
        return
    node.replace(_column(name, column.table))
    if is_text and reader is not None:
        template = template_of(reader).replace(_AS_TEXT, "{0}")
        reader.expressions[0].replace(exp.Literal.string(template))


def _path_of(node: exp.Expr) -> tuple[exp.Column, str] | None:
    """The column and what follows it; the path is empty for a column alone."""
    if isinstance(node, exp.Column):
        return (node, "") if node.table else None
    if not is_fragment(node) or len(node.expressions) != 2:
        return None
    match, value = _PATH.fullmatch(template_of(node)), node.expressions[1]
    return (value, match[1]) if match and isinstance(value, exp.Column) and value.table else None


def _reads_as_text(node: exp.Expr) -> bool:
    template = template_of(node)
    return len(node.expressions) == 2 and template.count("{0}") == template.count(_AS_TEXT) > 0


def _relation(select: exp.Select, alias: str) -> Relation | None:
    """What the alias stands for in this query's own FROM; sources that repeat rows cannot be widened."""
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    for relation in ([from_.this] if from_ else []) + joined:
        if isinstance(relation, exp.Table | exp.Subquery) and relation.alias_or_name == alias:
            return relation
    return None


def _cte(table: exp.Table) -> exp.CTE | None:
    """The sub-query of that name that the table sees; none where it may read itself."""
    node: exp.Expr | None = table.parent
    while node is not None:
        with_ = node.args.get("with_")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            if cte.alias == table.name:
                return None if with_.args.get("recursive") else cte
        node = node.parent
    return None


def _may_widen(query: exp.Select) -> bool:
    """Whether one column more leaves the query's rows as they are."""
    return not (query.args.get("distinct") or query.args.get("group") or query.args.get("kind"))


def _column(name: str, table: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))


def _events(table: exp.Table, reads: list[_Read]) -> exp.Subquery:
    """Sealed events and those still in memory, with the columns that are read of them."""
    columns = ", ".join([*map(quoted, COLUMNS), *(read.printed() for read in reads)])
    tables = StreamTables(table.name)
    both = f"SELECT {columns} FROM {tables.sealed} UNION ALL SELECT {columns} FROM {tables.hot}"  # noqa: S608
    alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
    return exp.Subquery(this=fragment(both.replace("{", "\ue000")), alias=alias)
