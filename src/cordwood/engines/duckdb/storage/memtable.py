"""The memtable of a stream's pending events, and two other tables in memory of its newest events.

Queries read pending events from the memtable. Followed queries read the table of the events that have just arrived.
Pages of whole events are read from the recent table, which has objects as JSON text.
"""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import duckdb
import msgspec

from cordwood.engines.duckdb.storage.chunk import Chunk, estimated_event_bytes
from cordwood.engines.duckdb.storage.session import fetch_first_row
from cordwood.engines.duckdb.storage.tables import StreamTableStatements

# The maximum number of rows of a part. A part is dropped once all of its rows are flushed.
_MAX_PART_ROWS = 8_192


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

    def __init__(self, tables: StreamTableStatements) -> None:
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
        if part is None or part.end - part.first >= _MAX_PART_ROWS:
            self._created_parts += 1
            part = _MemtablePart(self._created_parts, first, end)
            cursor.execute(self._tables.create_memtable_part(part.number))
            self._parts.append(part)
            self._is_stale = True
        part.end = end
        self._filling = part
        return self._tables.memtable_part_name(part.number)

    def finish_fill(self, *, is_filled: bool) -> None:
        if is_filled and self._filling is not None:
            self.end = self._filling.end
        self._filling = None

    def mark_flushed(self, flushed_to: int) -> None:
        """Record that every event below this sequence number is in the file."""
        self._flushed_to = flushed_to
        self._is_stale = self._is_stale or any(part.first < flushed_to for part in self._parts)

    def refresh_views(self, cursor: duckdb.DuckDBPyConnection) -> None:
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


# When the table of arrived events has more rows than the first number, it is trimmed to about the second.
_MAX_ARRIVED_ROWS, _KEPT_ARRIVED_ROWS = 8_192, 2_048
# More rows or bytes than this are not added at once: the table is emptied, and queries read the other tables.
_MAX_ADDED_ROWS = 8_192
_MAX_ARRIVED_BYTES = 8 * 2**20
# The table is dropped when no query has read it for this time.
_IDLE_SECONDS = 60.0


class _AddedBatch(NamedTuple):
    """A batch of added events: the first one's sequence number, and the newest receive time of all events before it."""

    first: int
    newest_before_us: int
    rows: int
    bytes: int


class ArrivedTable:
    """The table of the events that have just arrived on one stream.

    The first followed query creates it. All methods require the lock with the rank ARRIVED_FILL.
    """

    def __init__(self, tables: StreamTableStatements) -> None:
        # The sequence number that follows the last event in the table, whose events are consecutive.
        self.end = 0
        self.is_filled = False
        # How often rows were removed; a view stays valid as long as this number does not change.
        self.trim_count = 0
        self._tables = tables
        # The table has all events received after this time, up to the last call of `add`.
        self._after_us = 0
        self._newest_us = 0
        self._fills: deque[_AddedBatch] = deque()
        self._rows = self._bytes = 0
        self._read_at = 0.0

    def has_events_from(self, first_us: int) -> bool:
        """Return whether every event that was received at this time or later is in the table."""
        self._read_at = time.monotonic()
        return self.is_filled and self._after_us < first_us

    def is_idle(self) -> bool:
        return self.is_filled and time.monotonic() - self._read_at > _IDLE_SECONDS

    def exceeds_add_limit(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether too many events have arrived at once to add them, so that queries read the other tables."""
        rows = sum(len(chunk.events) for chunk in chunks)
        return (
            rows > _MAX_ADDED_ROWS or sum(estimated_event_bytes(chunk.events) for chunk in chunks) > _MAX_ARRIVED_BYTES
        )

    def clear_from(self, end: int, newest_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Empty the table; the next event to add has the sequence number `end`."""
        self.is_filled = False
        self.trim_count += 1
        cursor.execute(self._tables.create_arrived())
        self._fills.clear()
        self._rows = self._bytes = 0
        self.end, self._after_us, self._newest_us, self.is_filled = end, newest_us, newest_us, True
        self._read_at = time.monotonic()

    def add(self, chunks: Sequence[Chunk], newest_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Add the consecutive events from `end` on; the last was received at `newest_us`."""
        first, rows, size = self.end, 0, 0
        for chunk in chunks:
            chunk.insert_repaired(cursor, partial(self._tables.insert_events, self._tables.arrived, numbered=True))
            rows, size, self.end = rows + len(chunk.events), size + estimated_event_bytes(chunk.events), chunk.end
        if rows:
            self._fills.append(_AddedBatch(first, self._newest_us, rows, size))
            self._rows, self._bytes = self._rows + rows, self._bytes + size
        self._newest_us = max(self._newest_us, newest_us)
        if self._rows > _MAX_ARRIVED_ROWS or self._bytes > _MAX_ARRIVED_BYTES:
            self._trim(cursor)

    def _trim(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Remove the batches of events that were added first; the last batch always stays."""
        while len(self._fills) > 1 and (self._rows > _KEPT_ARRIVED_ROWS or self._bytes > _MAX_ARRIVED_BYTES // 2):
            removed = self._fills.popleft()
            self._rows, self._bytes = self._rows - removed.rows, self._bytes - removed.bytes
        self._after_us = self._fills[0].newest_before_us
        self.trim_count += 1
        cursor.execute(self._tables.trim_arrived(), {"number": self._fills[0].first})

    def discard(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Drop the table; queries that were about to read it read the other tables."""
        self.is_filled = False
        self.trim_count += 1
        self._fills.clear()
        self._rows = self._bytes = 0
        with suppress(duckdb.Error):
            cursor.execute(self._tables.drop_arrived())


class ArrivedView(NamedTuple):
    """A cursor that sees the tables of arrived events, valid until one of them loses rows."""

    cursor: duckdb.DuckDBPyConnection
    tables: Sequence[ArrivedTable]
    trim_counts: Sequence[int | None]

    def is_still_valid(self) -> bool:
        """Return whether no table has lost rows meanwhile; call it after the rows have been fetched."""
        return [table.trim_count for table in self.tables] == list(self.trim_counts)


# The table is trimmed when it has this many times the wanted number of events.
_TRIM_FACTOR = 1.5


class RecentTable:
    """A table of all events newer than some time, flushed or not; empty while it is not maintained.

    The oldest of its events may be trimmed at any time: a query that finds too few events reads the file instead. All
    methods except `on_flush` require the stream's lock `fill_lock`.
    """

    def __init__(self, tables: StreamTableStatements) -> None:
        # Every event below this sequence number that is newer than `_since_us` is in the table.
        self.end = 0
        # How often the table was refilled; a view stays valid as long as this number does not change.
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
        """Record that all events below a sequence number are flushed; requires the stream's lock `state_lock`.

        Events that were flushed without being added to this table make it stale.
        """
        self._is_stale = self._is_stale or self.end < flushed_to

    def exceeds_add_limit(self, chunks: list[Chunk]) -> bool:
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
        row = fetch_first_row(cursor, self._tables.select_time_of_rank(self._tables.recent), {"rank": self._max_events})
        if row is not None:
            self._since_us = int(row[0])
            cursor.execute(self._tables.trim_recent(), {"since": self._since_us})
        self._rows = self._max_events

    def delete_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Delete the events older than `before_us`."""
        if self._since_us is not None and self._since_us < before_us:
            cursor.execute(self._tables.delete_recent_before(), {"before": before_us})

    def discard(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Empty the table and stop maintaining it; a query that then finds too few events in it reads the file."""
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
