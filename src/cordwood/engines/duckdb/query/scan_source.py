"""A scan of a stream: the SQL that reads its columns and paths, of all events or of a few."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.query.plan_path import cte_of
from cordwood.engines.duckdb.rules.events import path_part
from cordwood.engines.duckdb.storage.tables import COLUMNS, quoted
from cordwood.model.event import written_path
from cordwood.sql.fragment import fragment, join_fragments, merge_fragments, name_part, text_part


class Manner(StrEnum):
    """How a path is read: its value, its text, or whether it holds an object."""

    VALUE = "value"
    TEXT = "text"
    RECORD = "record"


class Place(StrEnum):
    """A table of a stream, as a template over the stream's quoted name."""

    SEALED = "store.main.{0}"
    HOT = "memory.memtable.{0}"
    NEWEST = "memory.recent.{0}"


class Read(msgspec.Struct, frozen=True):
    """A read of a path below a column; `is_wide` if the value may be an object or array that DuckDB reassembles."""

    column: str
    steps: tuple[str, ...]
    manner: Manner
    is_wide: bool = False

    @property
    def name(self) -> str:
        """Return the column's name; positions of capitals are appended, because DuckDB's names are case-insensitive."""
        path = "".join(f".{quoted(step)}" for step in self.steps)
        capitals = ",".join(str(place) for place, letter in enumerate(path) if letter.isupper())
        return f"{self.column}{path} {self.manner.value}{capitals and ' ' + capitals}"

    def below(self, column: str, steps: tuple[str, ...]) -> "Read":
        return Read(column, (*steps, *self.steps), self.manner, self.is_wide)

    def printed(self, beside: Sequence["Read"] = ()) -> exp.Expr:
        """Return the SQL, which may derive a record test from another read.

        A text among the reads in `beside` that lies below this path implies that the path holds an object.
        """
        text = next((read for read in beside if read.is_text_of(self)), None)
        if text is None:
            return merge_fragments("{0} AS {1}", self.value(), name_part(self.name))
        return merge_fragments("{0} IS NOT NULL OR {1} AS {2}", text.value(), self.value(), name_part(self.name))

    def is_text_of(self, record: "Read") -> bool:
        depth = len(record.steps)
        is_below = self.column == record.column and len(self.steps) > depth and self.steps[:depth] == record.steps
        return is_below and self.manner is Manner.TEXT and record.manner is Manner.RECORD

    def value(self) -> exp.Expr:
        if self.manner is Manner.RECORD:
            steps = self.steps if self.column == "extras" else (self.column, *self.steps)
            return fragment('contains("object_paths", {0})', text_part(written_path(steps)))
        path = path_part(name_part(self.column), self.steps)
        return merge_fragments("{0}::VARCHAR", path) if self.manner is Manner.TEXT else path


class Source(msgspec.Struct, frozen=True):
    """A scan of a stream, with the paths that it reads as additional columns, and its filters.

    `matches` filters all events, `narrowing` only flushed ones; both are SQL fragments.
    """

    table: exp.Table
    reads: tuple[Read, ...]
    matches: tuple[exp.Expr, ...] = ()
    narrowing: tuple[exp.Expr, ...] = ()

    @property
    def wide(self) -> frozenset[str]:
        """Return the names of the columns that are expensive to read."""
        return frozenset(read.name for read in self.reads if read.is_wide)

    def events(self, place: Place, *more: exp.Expr, all_of_them: bool = False) -> exp.Expr:
        """Return a SELECT over one of the stream's tables.

        A scan of all events reads object paths as a stored column; a search for a few reads them during the scan,
        because DuckDB would otherwise begin with an arbitrary row group.
        """
        read = self._read_by_reader()
        paths = [path for path in self.reads if path.name in read]
        beside = paths if all_of_them else []
        return self._select(place, [*map(name_part, _own(read)), *(path.printed(beside) for path in paths), *more])

    def few_events(self, place: Place, only: exp.Expr, as_json: frozenset[str] = frozenset()) -> exp.Expr:
        """Return a SELECT over few events; columns in `as_json` are only passed through and are read as JSON.

        Expensive columns are read from the few events, not from all events that the scan visits.
        """
        read = self._read_by_reader()
        paths = [path for path in self.reads if path.name in read]
        dear = [path for path in paths if path.is_wide]
        whole = frozenset(path.column for path in dear)
        own = [_said(name, as_json=name in as_json - whole) for name in _own(read | whole)]
        events = self._select(place, [*own, *(path.printed() for path in paths if path not in dear)], only)
        return (
            merge_fragments("SELECT *, {0} FROM ({1})", join_fragments(", ", [path.printed() for path in dear]), events)
            if dear
            else events
        )

    def _select(self, place: Place, columns: Sequence[exp.Expr], *only: exp.Expr) -> exp.Expr:
        narrowing = self.narrowing if place is Place.SEALED else ()
        conditions = (*self.matches, *narrowing, *only)
        told = join_fragments(", ", columns) if columns else fragment("NULL")
        select = "SELECT {0} FROM {1} WHERE {2}" if conditions else "SELECT {0} FROM {1}"
        table = fragment(place, name_part(self.table.name, is_verbatim=True))
        return merge_fragments(select, told, table, join_fragments(" AND ", conditions))

    def _read_by_reader(self) -> frozenset[str]:
        """Return the columns that the reading SELECT uses: planning unused ones takes time."""
        select, name = self.table.find_ancestor(exp.Select), self.table.alias_or_name
        found = list(select.find_all(exp.Column)) if select else []
        return frozenset(column.name for column in found if column.table in (name, ""))

    def read(self, *events: exp.Expr) -> None:
        """Replace the stream's table reference by the union of these SELECTs."""
        alias = exp.TableAlias(this=name_part(self.table.alias_or_name))
        # The joins of a table in parentheses are attached to the table node.
        joins = self.table.args.get("joins")
        self.table.replace(exp.Subquery(this=join_fragments(" UNION ALL ", events), alias=alias, joins=joins))

    def twin(self, copy: exp.Expr) -> "Source":
        """Return the same scan in a copy of the tree, of which it is the only one."""
        (table,) = tables_of(copy, frozenset([self.table.name]))
        return msgspec.structs.replace(self, table=table)


def _said(column: str, *, as_json: bool) -> exp.Expr:
    return fragment("{0}::JSON AS {0}", name_part(column)) if as_json else name_part(column)


def _own(read: frozenset[str]) -> list[str]:
    return [column for column in COLUMNS if column in read]


def tables_of(tree: exp.Expr, streams: frozenset[str]) -> list[exp.Table]:
    """Return the stream tables of the tree in their order."""
    return [table for table in tree.find_all(exp.Table) if table.name in streams and cte_of(table) is None]
