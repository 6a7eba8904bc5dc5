"""The memtable of a stream, and two other tables in memory with the stream's newest events.

The memtable holds the pending events, which are not flushed to the database file yet. Followed queries read the table
of arrived events, which has the events that have just arrived. Queries that return the newest few events with all of
their fields read the recent table. It stores objects as the JSON text that such an answer contains.
"""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import duckdb
import msgspec

from cordwood.engines.duckdb.storage.chunk import EventChunk, estimate_event_bytes
from cordwood.engines.duckdb.storage.session import fetch_first_row
from cordwood.engines.duckdb.storage.tables import StreamTableStatements

# If the newest part of the memtable has at least this many rows, further events are added to a new part.
_MAX_MEMTABLE_PART_ROWS = 8_192


class _MemtablePart(msgspec.Struct):
    """A table with a part of the memtable: the events from `first_event_number` to before `end_event_number`."""

    number: int
    first_event_number: int
    end_event_number: int


class Memtable:
    """The tables in memory, called parts, of a stream's events that are not flushed yet.

    Rows are never deleted. The memtable's view hides flushed rows, and a part is dropped as soon as all of its rows are
    flushed. All methods require the stream's lock `state_lock`; the caller may fill a part without this lock.
    """

    def __init__(self, tables: StreamTableStatements) -> None:
        # Every event below this sequence number is in the memtable or flushed.
        self.end_event_number = 0
        self._table_statements = tables
        self._parts: list[_MemtablePart] = []
        self._created_part_count = 0
        self._first_unflushed_event_number = 0
        self._part_being_filled: _MemtablePart | None = None
        self._are_views_stale = False

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def prepare_part_to_fill(self, first: int, end: int, cursor: duckdb.DuckDBPyConnection) -> str:
        """Return the name of the part to fill with the events from `first` to before `end`.

        The part is not dropped before `finish_part_fill` is called.
        """
        part = self._parts[-1] if self._parts else None
        if part is None or part.end_event_number - part.first_event_number >= _MAX_MEMTABLE_PART_ROWS:
            self._created_part_count += 1
            part = _MemtablePart(self._created_part_count, first, end)
            cursor.execute(self._table_statements.create_memtable_part(part.number))
            self._parts.append(part)
            self._are_views_stale = True
        part.end_event_number = end
        self._part_being_filled = part
        return self._table_statements.memtable_part_name(part.number)

    def finish_part_fill(self, *, is_filled: bool) -> None:
        if is_filled and self._part_being_filled is not None:
            self.end_event_number = self._part_being_filled.end_event_number
        self._part_being_filled = None

    def mark_flushed(self, flushed_to: int) -> None:
        """Record that every event with a sequence number below `flushed_to` is in the database file."""
        self._first_unflushed_event_number = flushed_to
        self._are_views_stale = self._are_views_stale or any(
            part.first_event_number < flushed_to for part in self._parts
        )

    def refresh_views(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Update the views, and drop parts whose rows are all flushed; the caller does this before a query begins."""
        if not self._are_views_stale:
            return
        live_parts = [
            part
            for part in self._parts
            if part.end_event_number > self._first_unflushed_event_number or part is self._part_being_filled
        ]
        cursor.execute(
            self._table_statements.create_memtable_view(
                [part.number for part in live_parts], self._first_unflushed_event_number
            )
        )
        cursor.execute(self._table_statements.create_view(with_memtable=bool(live_parts)))
        flushed_parts = [part for part in self._parts if part not in live_parts]
        self._parts = live_parts
        self._are_views_stale = False
        for part in flushed_parts:
            cursor.execute(self._table_statements.drop_memtable_part(part.number))


# If the table of arrived events has more than `_MAX_ARRIVED_ROWS` rows, it is trimmed to about `_KEPT_ARRIVED_ROWS`.
_MAX_ARRIVED_ROWS, _KEPT_ARRIVED_ROWS = 8_192, 2_048
# The maximum number of rows that are added at once. If more rows or bytes have arrived, the table is emptied instead,
# and queries read the other tables.
_MAX_ARRIVED_ROWS_PER_ADD = 8_192
_MAX_ARRIVED_BYTES = 8 * 2**20
# If no query has read the table of arrived events for this time, the table is dropped.
_ARRIVED_TABLE_IDLE_SECONDS = 60.0


class _ArrivedBatch(NamedTuple):
    """A batch of events that were added to the table of arrived events.

    `first_event_number` is the sequence number of its first event. `newest_before_us` is the newest receive time of the
    events before the batch.
    """

    first_event_number: int
    newest_before_us: int
    rows: int
    event_bytes: int


class ArrivedEventTable:
    """The table of the events that have just arrived on one stream.

    It is created for the first followed query. All methods require the lock with the rank ARRIVED_TABLE_FILL.
    """

    def __init__(self, tables: StreamTableStatements) -> None:
        # The sequence number after the last event in the table. The events in the table are consecutive.
        self.end_event_number = 0
        self.is_filled = False
        # How often rows were removed. An `ArrivedEventView` stays valid as long as this number does not change.
        self.row_removal_count = 0
        self._table_statements = tables
        # The table has every event that was received after this time, up to the last call of `add`.
        self._covers_events_after_us = 0
        self._newest_receipt_us = 0
        self._batches: deque[_ArrivedBatch] = deque()
        self._rows = self._bytes = 0
        self._last_read_at = 0.0

    def has_all_events_since(self, first_us: int) -> bool:
        """Return whether every event that was received at `first_us` or later is in the table."""
        self._last_read_at = time.monotonic()
        return self.is_filled and self._covers_events_after_us < first_us

    def is_idle(self) -> bool:
        return self.is_filled and time.monotonic() - self._last_read_at > _ARRIVED_TABLE_IDLE_SECONDS

    def exceeds_add_limit(self, chunks: Sequence[EventChunk]) -> bool:
        """Return whether too many events have arrived since the last update to add them to this table.

        In this case, the table starts anew without them, and queries for these events read other tables.
        """
        rows = sum(len(chunk.events) for chunk in chunks)
        return (
            rows > _MAX_ARRIVED_ROWS_PER_ADD
            or sum(estimate_event_bytes(chunk.events) for chunk in chunks) > _MAX_ARRIVED_BYTES
        )

    def clear_and_restart(self, end: int, newest_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Empty or create the table; the next event to be added has the sequence number `end`.

        The events before `end` are not in the table. All of them were received at `newest_us` or earlier.
        """
        self.is_filled = False
        self.row_removal_count += 1
        cursor.execute(self._table_statements.create_arrived_table())
        self._batches.clear()
        self._rows = self._bytes = 0
        self.end_event_number, self._covers_events_after_us, self._newest_receipt_us, self.is_filled = (
            end,
            newest_us,
            newest_us,
            True,
        )
        self._last_read_at = time.monotonic()

    def add(self, chunks: Sequence[EventChunk], newest_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Add the consecutive events from `end_event_number` on; all were received at `newest_us` or earlier."""
        first, rows, size = self.end_event_number, 0, 0
        for chunk in chunks:
            chunk.insert_with_json_repair(
                cursor,
                partial(self._table_statements.insert_events, self._table_statements.arrived_table, numbered=True),
            )
            rows, size, self.end_event_number = (
                rows + len(chunk.events),
                size + estimate_event_bytes(chunk.events),
                chunk.end_event_number,
            )
        if rows:
            self._batches.append(_ArrivedBatch(first, self._newest_receipt_us, rows, size))
            self._rows, self._bytes = self._rows + rows, self._bytes + size
        self._newest_receipt_us = max(self._newest_receipt_us, newest_us)
        if self._rows > _MAX_ARRIVED_ROWS or self._bytes > _MAX_ARRIVED_BYTES:
            self._trim(cursor)

    def _trim(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Remove the oldest batches of events, but never the last batch."""
        while len(self._batches) > 1 and (self._rows > _KEPT_ARRIVED_ROWS or self._bytes > _MAX_ARRIVED_BYTES // 2):
            removed = self._batches.popleft()
            self._rows, self._bytes = self._rows - removed.rows, self._bytes - removed.event_bytes
        self._covers_events_after_us = self._batches[0].newest_before_us
        self.row_removal_count += 1
        cursor.execute(self._table_statements.trim_arrived_table(), {"number": self._batches[0].first_event_number})

    def discard(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Drop the table; queries that would have read this table then read the other tables."""
        self.is_filled = False
        self.row_removal_count += 1
        self._batches.clear()
        self._rows = self._bytes = 0
        with suppress(duckdb.Error):
            cursor.execute(self._table_statements.drop_arrived_table())


class ArrivedEventView(NamedTuple):
    """A cursor that can read tables of arrived events; it is valid until rows are removed from one of the tables."""

    cursor: duckdb.DuckDBPyConnection
    tables: Sequence[ArrivedEventTable]
    row_removal_counts: Sequence[int | None]

    def is_still_valid(self) -> bool:
        """Return whether no table has lost rows meanwhile; the caller asks this after it has fetched the rows."""
        return [table.row_removal_count for table in self.tables] == list(self.row_removal_counts)


# If the recent table has more than this multiple of its maximum number of events, it is trimmed to the maximum.
_RECENT_TABLE_TRIM_FACTOR = 1.5


class RecentEventTable:
    """The table of a stream's newest events: all events that are newer than a certain time, whether flushed or not.

    The table is empty while it is not maintained. Its oldest events may be trimmed at any time; a query that then finds
    too few events reads the file instead. All methods except `on_flush` require the stream's lock `memtable_fill_lock`.
    """

    def __init__(self, tables: StreamTableStatements) -> None:
        # The table has every event that is newer than `_covers_events_after_us` and has a sequence number below this
        # number.
        self.end_event_number = 0
        # How often the table was refilled. A `RecentEventView` stays valid as long as this number does not change.
        self.times_filled = 0
        self._table_statements = tables
        self._covers_events_after_us: int | None = None
        self._max_events = self._rows = 0
        self._is_stale = False

    @property
    def is_maintained(self) -> bool:
        return self._covers_events_after_us is not None and not self._is_stale

    def record_fill(self, since_us: int, rows: int, max_events: int, end: int) -> None:
        """Record that the table was filled with the flushed events newer than `since_us`.

        All of these events have sequence numbers below `end`.
        """
        self._covers_events_after_us, self._rows, self._max_events, self.end_event_number = (
            since_us,
            rows,
            max_events,
            end,
        )
        self._is_stale = False
        self.times_filled += 1

    def on_flush(self, flushed_to: int) -> None:
        """Record that all events with sequence numbers below `flushed_to` are flushed.

        If some of these events were not added to the table before, the table is incomplete, and so becomes stale. This
        method requires the stream's lock `state_lock`.
        """
        self._is_stale = self._is_stale or self.end_event_number < flushed_to

    def exceeds_add_limit(self, chunks: list[EventChunk]) -> bool:
        """Return whether too many events have arrived since the last update to add them, as during a bulk import."""
        return sum(len(chunk.events) for chunk in chunks) > self._max_events // 2

    def add(self, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Add the consecutive events from the sequence number `end_event_number` on."""
        chunk.insert_with_json_repair(
            cursor, self._table_statements.insert_into_recent_table, since=self._covers_events_after_us
        )
        self.end_event_number = chunk.end_event_number
        self._rows += len(chunk.events)
        if self._rows > self._max_events * _RECENT_TABLE_TRIM_FACTOR:
            self._trim(cursor)

    def _trim(self, cursor: duckdb.DuckDBPyConnection) -> None:
        row = fetch_first_row(
            cursor,
            self._table_statements.select_time_of_rank(self._table_statements.recent_table),
            {"rank": self._max_events},
        )
        if row is not None:
            self._covers_events_after_us = int(row[0])
            cursor.execute(self._table_statements.trim_recent_table(), {"since": self._covers_events_after_us})
        self._rows = self._max_events

    def delete_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Delete the events older than `before_us`."""
        if self._covers_events_after_us is not None and self._covers_events_after_us < before_us:
            cursor.execute(self._table_statements.delete_recent_rows_before(), {"before": before_us})

    def discard(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Empty the table, and stop maintaining it, so that queries find too few events in it and read the file."""
        self._covers_events_after_us = None
        if self._rows:
            self._rows = 0
            with suppress(duckdb.Error):
                cursor.execute(self._table_statements.empty_recent_table())


class RecentEventView(NamedTuple):
    """A cursor that can read the recent table; it is valid until the table is refilled."""

    cursor: duckdb.DuckDBPyConnection
    table: RecentEventTable
    times_filled_when_opened: int

    def is_still_valid(self) -> bool:
        """Return whether the table was not refilled meanwhile; the caller asks this after it has fetched the rows."""
        return self.table.times_filled == self.times_filled_when_opened
