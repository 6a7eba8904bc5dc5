"""A scan of a stream: the SQL that reads its columns and paths, and the chain of SELECTs between it and the answer."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.rules.events import path_part
from cordwood.engines.duckdb.storage.tables import COLUMNS, quoted
from cordwood.model.event import format_path
from cordwood.sql.budget import check_time
from cordwood.sql.lowering import fragment, join_fragments, merge_fragments, name_part, text_part
from cordwood.sql.nodes import cte_of


class ReadMode(StrEnum):
    """How a path is read: its value, its text, or whether it holds an object."""

    VALUE = "value"
    TEXT = "text"
    RECORD = "record"


class EventTable(StrEnum):
    """A table of a stream, as a template for the stream's quoted name."""

    FLUSHED = "store.main.{0}"
    MEMTABLE = "memory.memtable.{0}"
    RECENT = "memory.recent.{0}"
    ARRIVED = "memory.arrived.{0}"


class ScannedPath(msgspec.Struct, frozen=True):
    """A path below a column that a scan reads as a column of its own.

    `is_wide` is set if the value may be an object or array, which DuckDB reassembles.
    """

    column: str
    steps: tuple[str, ...]
    mode: ReadMode
    is_wide: bool = False

    @property
    def name(self) -> str:
        """The column's name, with the positions of capitals appended, because DuckDB's names are case-insensitive."""
        path = "".join(f".{quoted(step)}" for step in self.steps)
        capitals = ",".join(str(index) for index, letter in enumerate(path) if letter.isupper())
        return f"{self.column}{path} {self.mode.value}{capitals and ' ' + capitals}"

    def below(self, column: str, steps: tuple[str, ...]) -> "ScannedPath":
        return ScannedPath(column, (*steps, *self.steps), self.mode, self.is_wide)

    def to_sql(self, other_reads: Sequence["ScannedPath"] = ()) -> exp.Expr:
        """Return the SQL of the path's column.

        If `other_reads` has a text inside the object at this path, that text is read first: where it is not NULL, the
        path holds an object, and nothing else needs to be read.
        """
        text_read = next((read for read in other_reads if read.is_text_of(self)), None)
        if text_read is None:
            return merge_fragments("{0} AS {1}", self.value_sql(), name_part(self.name))
        return merge_fragments(
            "{0} IS NOT NULL OR {1} AS {2}", text_read.value_sql(), self.value_sql(), name_part(self.name)
        )

    def is_text_of(self, record: "ScannedPath") -> bool:
        depth = len(record.steps)
        is_below = self.column == record.column and len(self.steps) > depth and self.steps[:depth] == record.steps
        return is_below and self.mode is ReadMode.TEXT and record.mode is ReadMode.RECORD

    def value_sql(self) -> exp.Expr:
        if self.mode is ReadMode.RECORD:
            steps = self.steps if self.column == "extras" else (self.column, *self.steps)
            return fragment('contains("object_paths", {0})', text_part(format_path(steps)))
        path = path_part(name_part(self.column), self.steps)
        return merge_fragments("{0}::VARCHAR", path) if self.mode is ReadMode.TEXT else path


class ScanSource(msgspec.Struct, frozen=True):
    """A scan of a stream, with the paths that it reads as additional columns, and its filters.

    `filters` filters all events, `flushed_filters` only flushed ones; both are SQL fragments.
    """

    table: exp.Table
    reads: tuple[ScannedPath, ...]
    filters: tuple[exp.Expr, ...] = ()
    flushed_filters: tuple[exp.Expr, ...] = ()

    @property
    def wide_column_names(self) -> frozenset[str]:
        """The names of the columns that are expensive to read."""
        return frozenset(read.name for read in self.reads if read.is_wide)

    def events(self, table: EventTable, *extra_columns: exp.Expr, reads_all: bool = False) -> exp.Expr:
        """Return a SELECT over one of the stream's tables.

        With `reads_all` the query scans all events and takes the paths of objects from a stored column. A query for a
        few events computes them during the scan, because the stored column makes DuckDB begin with an arbitrary row
        group.
        """
        used = self._used_columns()
        reads = [read for read in self.reads if read.name in used]
        other_reads = reads if reads_all else []
        return self._select(
            table,
            [*map(name_part, _stored_columns(used)), *(read.to_sql(other_reads) for read in reads), *extra_columns],
        )

    def select_few_events(
        self, table: EventTable, row_filter: exp.Expr, as_json: frozenset[str] = frozenset()
    ) -> exp.Expr:
        """Return a SELECT over few events; columns in `as_json` are only passed on and are read as JSON.

        Expensive columns are read from the few events, not from all events that the scan visits.
        """
        used = self._used_columns()
        reads = [read for read in self.reads if read.name in used]
        wide_reads = [read for read in reads if read.is_wide]
        wide_columns = frozenset(read.column for read in wide_reads)
        columns = [
            _column_sql(name, as_json=name in as_json - wide_columns) for name in _stored_columns(used | wide_columns)
        ]
        events = self._select(
            table, [*columns, *(read.to_sql() for read in reads if read not in wide_reads)], row_filter
        )
        return (
            merge_fragments(
                "SELECT *, {0} FROM ({1})", join_fragments(", ", [read.to_sql() for read in wide_reads]), events
            )
            if wide_reads
            else events
        )

    def _select(self, event_table: EventTable, columns: Sequence[exp.Expr], *row_filters: exp.Expr) -> exp.Expr:
        flushed_filters = self.flushed_filters if event_table is EventTable.FLUSHED else ()
        conditions = (*self.filters, *flushed_filters, *row_filters)
        selected = join_fragments(", ", columns) if columns else fragment("NULL")
        select = "SELECT {0} FROM {1} WHERE {2}" if conditions else "SELECT {0} FROM {1}"
        table = fragment(event_table, name_part(self.table.name, is_verbatim=True))
        return merge_fragments(select, selected, table, join_fragments(" AND ", conditions))

    def _used_columns(self) -> frozenset[str]:
        """Return the columns that the reading SELECT uses: planning unused ones takes time."""
        select, name = self.table.find_ancestor(exp.Select), self.table.alias_or_name
        columns = list(select.find_all(exp.Column)) if select else []
        return frozenset(column.name for column in columns if column.table in (name, ""))

    def replace_table(self, *selects: exp.Expr) -> None:
        """Replace the stream's table reference by the union of these SELECTs."""
        alias = exp.TableAlias(this=name_part(self.table.alias_or_name))
        # The joins of a table in parentheses are attached to the table node.
        joins = self.table.args.get("joins")
        self.table.replace(exp.Subquery(this=join_fragments(" UNION ALL ", selects), alias=alias, joins=joins))

    def in_copy(self, copy: exp.Expr) -> "ScanSource":
        """Return the same scan in a copy of the tree that has no other scan."""
        (table,) = find_stream_tables(copy, frozenset([self.table.name]))
        return msgspec.structs.replace(self, table=table)


def _column_sql(column: str, *, as_json: bool) -> exp.Expr:
    return fragment("{0}::JSON AS {0}", name_part(column)) if as_json else name_part(column)


def _stored_columns(used: frozenset[str]) -> list[str]:
    return [column for column in COLUMNS if column in used]


def find_stream_tables(tree: exp.Expr, streams: frozenset[str]) -> list[exp.Table]:
    """Return the stream tables of the tree in their order."""
    return [table for table in tree.find_all(exp.Table) if table.name in streams and cte_of(table) is None]


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
