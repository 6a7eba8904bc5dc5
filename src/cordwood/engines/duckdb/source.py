"""A place where a stream is read: which of its columns and paths, and of which events, as SQL."""

import re
from collections.abc import Sequence
from enum import Enum

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.tables import COLUMNS, StreamTables, literal, quoted
from cordwood.engines.duckdb.way import cte_of
from cordwood.model.event import written_path
from cordwood.sql.fragment import AT_SIGN, OPEN_BRACE, fragment

_STEP = re.compile(r'\."((?:[^"]|"")*)"')


class Manner(Enum):
    """How a path is read: as it is, as text, or only as to whether it holds an object."""

    VALUE = "value"
    TEXT = "text"
    RECORD = "record"


class Read(msgspec.Struct, frozen=True):
    """A path below a column, as SQL: `."request"."path"`. One that `is_wide` has parts of its own to put together."""

    column: str
    path: str
    manner: Manner
    is_wide: bool = False

    @property
    def name(self) -> str:
        """DuckDB's names know no case and keys do: where the capitals stand is part of the name."""
        capitals = ",".join(str(place) for place, letter in enumerate(self.path) if letter.isupper())
        return f"{self.column}{self.path} {self.manner.value}{capitals and ' ' + capitals}"

    def below(self, column: str, path: str) -> "Read":
        return Read(column, path + self.path, self.manner, self.is_wide)

    def printed(self, beside: Sequence["Read"] = ()) -> str:
        """`beside` is what else is read of the event: where there is a text below a path, the path holds an object."""
        texts = [f"{read.value()} IS NOT NULL" for read in beside if read.is_text_of(self)]
        return f"{' OR '.join([*texts[:1], self.value()])} AS {quoted(self.name)}"

    def is_text_of(self, record: "Read") -> bool:
        is_below = self.column == record.column and self.path.startswith(f"{record.path}.")
        return is_below and self.manner is Manner.TEXT and record.manner is Manner.RECORD

    def value(self) -> str:
        value = f"{quoted(self.column)}{self.path}"
        if self.manner is Manner.RECORD:
            return f'contains("object_paths", {literal(written_path(self._steps()))})'
        return f"{value}::VARCHAR" if self.manner is Manner.TEXT else value

    def _steps(self) -> list[str]:
        steps = [step.replace('""', '"') for step in _STEP.findall(self.path)]
        return steps if self.column == "extras" else [self.column, *steps]


class Source(msgspec.Struct, frozen=True):
    """A place where a stream is read, what is read beside its own columns, and of which events, as SQL.

    `matches` is asked of all events, `narrowing` of the sealed ones alone.
    """

    table: exp.Table
    reads: tuple[Read, ...]
    matches: str = ""
    narrowing: str = ""

    @property
    def wide(self) -> frozenset[str]:
        """The names of what is dear to read."""
        return frozenset(read.name for read in self.reads if read.is_wide)

    def events(self, table: str, *more: str, all_of_them: bool = False) -> str:
        """What is read of one of the stream's tables.

        Where all are read, few are asked in vain for the paths of their objects. Where a few are looked for, that is
        asked while the engine reads the table: else it would begin anywhere.
        """
        read = self._read_by_reader()
        paths = [path for path in self.reads if path.name in read]
        beside = paths if all_of_them else []
        return self._select(table, [*map(quoted, _own(read)), *(path.printed(beside) for path in paths), *more])

    def few_events(self, table: str, only: str, as_json: frozenset[str] = frozenset()) -> str:
        """The same of these few; columns that nobody looks into may be said as JSON here.

        What is dear is taken out of the few, not out of all that the engine passes by to find them.
        """
        read = self._read_by_reader()
        paths = [path for path in self.reads if path.name in read]
        dear = [path for path in paths if path.is_wide]
        whole = frozenset(path.column for path in dear)
        own = [_said(name, as_json=name in as_json - whole) for name in _own(read | whole)]
        events = self._select(table, [*own, *(path.printed() for path in paths if path not in dear)], only)
        return f"SELECT *, {', '.join(path.printed() for path in dear)} FROM ({events})" if dear else events  # noqa: S608

    def _select(self, table: str, columns: list[str], only: str = "") -> str:
        narrowing = self.narrowing if table == StreamTables(self.table.name).sealed else ""
        conditions = " AND ".join(filter(None, (self.matches, narrowing, only)))
        told = ", ".join(columns) or "NULL"
        return f"SELECT {told} FROM {table}{' WHERE ' if conditions else ''}{conditions}"  # noqa: S608 - our own names

    def _read_by_reader(self) -> frozenset[str]:
        """The columns that are read of it: to plan the others takes time, too."""
        select, name = self.table.find_ancestor(exp.Select), self.table.alias_or_name
        found = list(select.find_all(exp.Column)) if select else []
        return frozenset(column.name for column in found if column.table in (name, ""))

    def read(self, *events: str) -> None:
        """Put all these in the place where the stream is read."""
        sql = " UNION ALL ".join(events).replace("{", OPEN_BRACE).replace("@", AT_SIGN)
        alias = exp.TableAlias(this=exp.to_identifier(self.table.alias_or_name, quoted=True))
        # In parentheses, a table's joins hang on the table.
        self.table.replace(exp.Subquery(this=fragment(sql), alias=alias, joins=self.table.args.get("joins")))

    def twin(self, copy: exp.Expr) -> "Source":
        """The same place in a copy of a tree where it is the only one."""
        (table,) = tables_of(copy, frozenset([self.table.name]))
        return msgspec.structs.replace(self, table=table)


def _said(column: str, *, as_json: bool) -> str:
    return f"{quoted(column)}::JSON AS {quoted(column)}" if as_json else quoted(column)


def _own(read: frozenset[str]) -> list[str]:
    return [column for column in COLUMNS if column in read]


def tables_of(tree: exp.Expr, streams: frozenset[str]) -> list[exp.Table]:
    """Where streams are read, in the tree's order."""
    return [table for table in tree.find_all(exp.Table) if table.name in streams and cte_of(table) is None]
