"""A second copy of a stream's newest events, as texts in memory, from which pages of whole events are read."""

from contextlib import suppress
from typing import NamedTuple

import duckdb

from cordwood.engines.duckdb.storage.chunk import Chunk
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.storage.transaction import first_row

# The table is trimmed when it has this many times the wanted number of events.
_TRIM_FACTOR = 1.5


class RecentTable:
    """A table of all events newer than some time, flushed or not; empty while it is not maintained.

    The oldest of its events may be trimmed at any time: a query that finds too few reads the file. All methods except
    `on_flush` require the stream's lock `fill_lock`.
    """

    def __init__(self, tables: StreamTables) -> None:
        # Every sufficiently new event below this sequence number is in the table.
        self.end = 0
        # How often the table was refilled; a view is valid for one of these numbers.
        self.fill_count = 0
        self._tables = tables
        self._since_us: int | None = None
        self._max_events = self._rows = 0
        self._is_stale = False

    @property
    def is_maintained(self) -> bool:
        return self._since_us is not None and not self._is_stale

    def record_fill(self, since_us: int, rows: int, max_events: int, end: int) -> None:
        """Record that the table was filled with flushed events newer than `since_us`, all below the number `end`."""
        self._since_us, self._rows, self._max_events, self.end = since_us, rows, max_events, end
        self._is_stale = False
        self.fill_count += 1

    def on_flush(self, flushed_to: int) -> None:
        """Record what was flushed; requires the lock `state_lock`.

        Events that were flushed without being added here make the table stale.
        """
        self._is_stale = self._is_stale or self.end < flushed_to

    def is_overload(self, chunks: list[Chunk]) -> bool:
        """Return whether too many events arrived at once to convert them all, as during a bulk import."""
        return sum(len(chunk.events) for chunk in chunks) > self._max_events // 2

    def add(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Add consecutive events from `end` on."""
        chunk.insert_repaired(cursor, self._tables.insert_recent, since=self._since_us)
        self.end = chunk.end
        self._rows += len(chunk.events)
        if self._rows > self._max_events * _TRIM_FACTOR:
            self._trim(cursor)

    def _trim(self, cursor: duckdb.DuckDBPyConnection) -> None:
        row = first_row(cursor, self._tables.time_of_newest(self._tables.recent), {"rank": self._max_events})
        if row is not None:
            self._since_us = int(row[0])
            cursor.execute(self._tables.trim_recent(), {"since": self._since_us})
        self._rows = self._max_events

    def drop_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Delete events that are beyond the stream's retention."""
        if self._since_us is not None and self._since_us < before_us:
            cursor.execute(self._tables.drop_recent_before(), {"before": before_us})

    def discard(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Empty the table and stop maintaining it; queries that were about to read it find too few events."""
        self._since_us = None
        if self._rows:
            self._rows = 0
            with suppress(duckdb.Error):
                cursor.execute(self._tables.empty_recent())


class RecentView(NamedTuple):
    """A cursor that sees the recent table, valid until the table is refilled."""

    cursor: duckdb.DuckDBPyConnection
    table: RecentTable
    fill_count: int

    def is_still_valid(self) -> bool:
        """Return whether the table was not refilled meanwhile; call it after the rows have been fetched."""
        return self.table.fill_count == self.fill_count
