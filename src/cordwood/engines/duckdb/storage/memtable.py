"""The memtable of one stream: pending events, converted into tables in memory when a query needs them."""

import duckdb
import msgspec

from cordwood.engines.duckdb.storage.tables import StreamTables

# The maximum number of rows of a part. A part is dropped once all of its rows are flushed.
_PART_ROWS = 8_192


class _MemtablePart(msgspec.Struct):
    """A table of consecutive events."""

    number: int
    first: int
    end: int


class Memtable:
    """Memory tables of events that are not flushed yet.

    Rows are never deleted: the view hides flushed ones, and a table is dropped once all of its rows are flushed. All
    methods except the filling of a table require the stream's lock `state_lock`.
    """

    def __init__(self, tables: StreamTables) -> None:
        # Every event below this sequence number is in the memtable or flushed.
        self.end = 0
        self._tables = tables
        self._parts: list[_MemtablePart] = []
        self._created_parts = 0
        self._flushed_to = 0
        self._filling: _MemtablePart | None = None
        self._is_stale = False

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def begin_fill(self, first: int, end: int, cursor: duckdb.DuckDBPyConnection) -> str:
        """Return the table to fill with these events; it is not dropped before `finish_fill`."""
        part = self._parts[-1] if self._parts else None
        if part is None or part.end - part.first >= _PART_ROWS:
            self._created_parts += 1
            part = _MemtablePart(self._created_parts, first, end)
            cursor.execute(self._tables.create_memtable_part(part.number))
            self._parts.append(part)
            self._is_stale = True
        part.end = end
        self._filling = part
        return self._tables.memtable_part(part.number)

    def finish_fill(self, *, is_filled: bool) -> None:
        if is_filled and self._filling is not None:
            self.end = self._filling.end
        self._filling = None

    def mark_flushed(self, flushed_to: int) -> None:
        """Record that every event below this sequence number is in the file."""
        self._flushed_to = flushed_to
        self._is_stale = self._is_stale or any(part.first < flushed_to for part in self._parts)

    def refresh(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Update the views and drop tables whose rows are flushed; call it before a query begins."""
        if not self._is_stale:
            return
        live_parts = [part for part in self._parts if part.end > self._flushed_to or part is self._filling]
        cursor.execute(self._tables.create_memtable([part.number for part in live_parts], self._flushed_to))
        cursor.execute(self._tables.create_view(with_memtable=bool(live_parts)))
        flushed_parts = [part for part in self._parts if part not in live_parts]
        self._parts = live_parts
        self._is_stale = False
        for part in flushed_parts:
            cursor.execute(self._tables.drop_memtable_part(part.number))
