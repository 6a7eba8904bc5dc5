"""The events of one stream from the write-ahead log to the file: pending, being flushed, and flushed."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import duckdb

from cordwood.engines.duckdb.storage.blocks import (
    add_unindexed_block,
    allocate_block_number,
    register_flushed_block,
    update_registry_after_deletion,
)
from cordwood.engines.duckdb.storage.chunk import (
    MAX_FLUSHED_LARGE_EVENT_BYTES,
    EventChunk,
    estimate_event_bytes,
    estimate_large_event_bytes,
    split_into_chunks,
)
from cordwood.engines.duckdb.storage.locks import LockRank, hold_lock, ordered_condition, ordered_lock
from cordwood.engines.duckdb.storage.manifest import ProjectShapeSaver, UnsavedProjectShapes
from cordwood.engines.duckdb.storage.memtable import ArrivedEventTable, Memtable, RecentEventTable
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, fetch_first_row, roll_back, transaction
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.storage.wal import WalRecord
from cordwood.engines.engine import StreamStats
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, EventKey, EventPath, EventShape, ValueKind, ValueKindsByPath


class FlushOutOfOrderError(Exception):
    """Raised by a flush if earlier events of the stream could not be flushed; a stream's flushes commit in order."""


class StreamStore:
    """The events of one stream; they have consecutive sequence numbers and are flushed in this order.

    Every event is in exactly one of three states: pending, in a chunk that is being flushed, or flushed. `state_lock`
    guards these states, and the commit of a flush, after which a chunk is flushed. `memtable_fill_lock` guards filling
    the memtable and the recent table. A thread that takes both locks takes `memtable_fill_lock` first.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = stream.name
        self.table_statements = StreamTableStatements(stream.name)
        self.shape = EventShape()
        self.next_event_number = 0
        # The approximate bytes of the events that are not flushed yet.
        self.unflushed_bytes = 0
        self._added_bytes = self._added_events = 0
        self._sampled_average_event_bytes: float | None = None
        self.state_lock = ordered_condition(LockRank.STREAM_STATE)
        self._pending_records: deque[WalRecord] = deque()
        self._pending_large_event_bytes = 0
        self._chunks_being_flushed: list[EventChunk] = []
        self._memtable = Memtable(self.table_statements)
        self.recent_table = RecentEventTable(self.table_statements)
        self.memtable_fill_lock = ordered_lock(LockRank.MEMTABLE_FILL)
        self.arrived_table = ArrivedEventTable(self.table_statements)
        self._arrived_table_lock = ordered_lock(LockRank.ARRIVED_TABLE_FILL)
        # The number of times that flushed events were deleted.
        self.event_deletion_run_count = 0
        # Whether all blocks that belong in the registry are known to be in it. Earlier releases did not register
        # blocks.
        self.has_all_blocks_registered = False
        self._stats = StreamStats(0, None, None)
        self._unsaved_kinds: dict[EventPath, frozenset[ValueKind]] = {}
        self.project_shapes = ProjectShapes()
        self.project_shape_saver = ProjectShapeSaver(stream.name, self.project_shapes)

    # The following properties and methods tell the state of the store.

    @property
    def pending_rows(self) -> int:
        with self.state_lock:
            return sum(len(record.events) for record in self._pending_records)

    @property
    def is_flushing(self) -> bool:
        with self.state_lock:
            return bool(self._chunks_being_flushed)

    @property
    def first_unflushed_event_number(self) -> int:
        """The sequence number below which every event is flushed."""
        with self.state_lock:
            starts = [chunk.first_event_number for chunk in self._chunks_being_flushed]
            starts += [record.first_event_number for record in self._pending_records]
            return min(starts, default=self.next_event_number)

    @property
    def oldest_pending_us(self) -> int | None:
        with self.state_lock:
            return self._pending_records[0].received_us if self._pending_records else None

    @property
    def has_memtable(self) -> bool:
        return not self._memtable.is_empty

    @property
    def stats(self) -> StreamStats:
        with self.state_lock:
            return self._stats

    def count_stored_events(self, cursor: duckdb.DuckDBPyConnection) -> int:
        row = fetch_first_row(cursor, self.table_statements.count_rows())
        return int(row[0]) if row else 0

    def recount_events(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Determine `stats` again, by counting the events in the file and the pending events."""
        with self.state_lock:
            events = self.count_stored_events(cursor)
            # Skip the query for empty streams, which are common, because all streams are counted at each start.
            row = fetch_first_row(cursor, self.table_statements.select_newest_and_oldest_time()) if events else None
            self._stats = StreamStats(events, *(row or (None, None)))
            for record in self._pending_records:
                self._add_to_stats(record.events)

    def average_event_bytes(self, cursor: duckdb.DuckDBPyConnection) -> float:
        """Estimate the average bytes of an event, from recently added events or from a sample of stored events."""
        if self._added_events:
            return self._added_bytes / self._added_events
        if self._sampled_average_event_bytes is None:
            row = fetch_first_row(cursor, self.table_statements.select_average_event_bytes())
            self._sampled_average_event_bytes = float(row[0] or 0) if row else 0.0
        return self._sampled_average_event_bytes

    def _add_to_stats(self, events: Sequence[Event]) -> None:
        times = [event.timestamp_us for event in events]
        facts = self._stats
        # The time 0 is valid: it is 1970-01-01T00:00:00Z.
        self._stats = StreamStats(
            facts.events + len(events),
            max((us for us in (facts.newest_us, *times) if us is not None), default=None),
            min((us for us in (facts.oldest_us, *times) if us is not None), default=None),
        )

    def unflushed_keys(self, first: int) -> set[EventKey]:
        """Return the projects and ids of unflushed events from the sequence number `first` on."""
        return {event.key for chunk in self._unflushed_chunks(first, self.next_event_number) for event in chunk.events}

    # The following methods add events.

    def add_record(self, record: WalRecord) -> None:
        with self.state_lock:
            self._add_to_stats(record.events)
            self._pending_records.append(record)
            self._pending_large_event_bytes += estimate_large_event_bytes(record.events)
            added_bytes = estimate_event_bytes(record.events)
            self.unflushed_bytes += added_bytes
            self._added_bytes += added_bytes
            self._added_events += len(record.events)
            self.next_event_number = record.end_event_number
            self.add_kinds(dict(record.learnt_kinds))
            for project, kinds in record.kinds_by_project:
                self.project_shapes.add_kinds(project, dict(kinds))
                self.project_shape_saver.mark_changed([project])

    def add_kinds(self, learnt: ValueKindsByPath) -> None:
        if not learnt:
            return
        with self.state_lock:
            self.shape = self.shape.merged_with_kinds(learnt)
            for path, kinds in learnt.items():
                self._unsaved_kinds[path] = self._unsaved_kinds.get(path, frozenset()) | kinds

    # The following methods make events visible to queries.

    def fill_memtable(self, cursor: duckdb.DuckDBPyConnection, stop_early: Callable[[], None]) -> None:
        """Put every unflushed event into the memtable; flushes and appends continue meanwhile.

        `stop_early` raises an error if the query must stop. Chunks that are in the memtable by then stay there.
        """
        until = self.next_event_number
        with hold_lock(self.memtable_fill_lock, stop_early):
            for chunk in self._unflushed_chunks(self._memtable.end_event_number, until):
                stop_early()
                self._fill_memtable_with(chunk, cursor)

    def refresh_recent_table(
        self, cursor: duckdb.DuckDBPyConnection, stop_early: Callable[[], None] = lambda: None
    ) -> bool:
        """Add unflushed events to the recent table; return whether the table is maintained."""
        until = self.next_event_number
        with hold_lock(self.memtable_fill_lock, stop_early):
            self._update_recent_table(until, cursor)
            return self.recent_table.is_maintained

    def _update_recent_table(self, until: int, cursor: duckdb.DuckDBPyConnection) -> None:
        if not self.recent_table.is_maintained:
            return
        chunks = self._unflushed_chunks(self.recent_table.end_event_number, until)
        try:
            if self.recent_table.exceeds_add_limit(chunks):
                self.recent_table.discard(cursor)
            else:
                for chunk in chunks:
                    self.recent_table.add(chunk, cursor)
        except duckdb.Error:
            # Events are not lost if this fails, because they are also in the memtable or the file.
            self.recent_table.discard(cursor)

    def refresh_arrived_table(
        self,
        first_us: int,
        newest_receipt: Callable[[], int],
        cursor: duckdb.DuckDBPyConnection,
        stop_early: Callable[[], None],
    ) -> int | None:
        """Update the table of arrived events; return its trim count, which shows later whether rows were removed.

        Return None if the table lacks some events that were received at `first_us` or later.
        """
        with hold_lock(self._arrived_table_lock, stop_early):
            try:
                self._fill_arrived_table(newest_receipt, cursor)
            except duckdb.Error:
                # Events are not lost if this fails, because they are also in the memtable or the file.
                self.arrived_table.discard(cursor)
                raise
            return self.arrived_table.row_removal_count if self.arrived_table.has_all_events_since(first_us) else None

    def _fill_arrived_table(self, newest_receipt: Callable[[], int], cursor: duckdb.DuckDBPyConnection) -> None:
        with self.state_lock:
            until, flushed_to = self.next_event_number, self.first_unflushed_event_number
            chunks = (
                self._unflushed_chunks(self.arrived_table.end_event_number, until)
                if self.arrived_table.is_filled
                else []
            )
        # Read the newest receive time only after the events were taken. So none of these events was received after this
        # time.
        newest_us = newest_receipt()
        if (
            not self.arrived_table.is_filled
            or self.arrived_table.end_event_number < flushed_to
            or self.arrived_table.exceeds_add_limit(chunks)
        ):
            self.arrived_table.clear_and_restart(until, newest_us, cursor)
        else:
            self.arrived_table.add(chunks, newest_us, cursor)

    def discard_idle_arrived_table(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Drop the table of arrived events if no query has read it for a while."""
        with self._arrived_table_lock:
            if self.arrived_table.is_idle():
                self.arrived_table.discard(cursor)

    def refresh_views(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Update the views of the memtable; the caller must hold `state_lock` until its query has begun."""
        self._memtable.refresh_views(cursor)

    def _unflushed_chunks(self, first: int, until: int) -> list[EventChunk]:
        """Return the unflushed events with sequence numbers from `first` on, in small chunks.

        Pending events are returned only if their sequence numbers are below `until`.
        """
        with self.state_lock:
            being_flushed = [
                chunk.events_from_number(first)
                for chunk in self._chunks_being_flushed
                if chunk.end_event_number > first
            ]
            pending = [
                record
                for record in self._pending_records
                if first < record.end_event_number and record.first_event_number < until
            ]
        chunks = being_flushed + split_into_chunks(
            [record.without_first_events(max(0, first - record.first_event_number)) for record in pending], until
        )
        return sorted(
            chain.from_iterable(map(EventChunk.split_for_insert, chunks)), key=lambda chunk: chunk.first_event_number
        )

    def _fill_memtable_with(self, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Insert the events of a chunk into the memtable, whose view hides events that are flushed meanwhile."""
        with self.state_lock:
            if chunk.end_event_number <= self.first_unflushed_event_number:
                return
            table = self._memtable.prepare_part_to_fill(chunk.first_event_number, chunk.end_event_number, cursor)
        is_filled = False
        try:
            chunk.insert_with_json_repair(cursor, partial(self.table_statements.insert_events, table, numbered=True))
            is_filled = True
        finally:
            with self.state_lock:
                self._memtable.finish_part_fill(is_filled=is_filled)

    # The following methods flush events.

    def take_chunk(
        self,
        *,
        whole_groups_only: bool,
        rows: int = ROW_GROUP_ROWS,
        max_large_bytes: int = MAX_FLUSHED_LARGE_EVENT_BYTES,
    ) -> EventChunk | None:
        """Take the oldest pending events for a flush; return None if there are none.

        The chunk has at most `rows` events, and at most `max_large_bytes` bytes of large events. With
        `whole_groups_only`, return None if the pending events reach neither of these limits.
        """
        with self.state_lock:
            is_below_limits = self.pending_rows < rows and self._pending_large_event_bytes < max_large_bytes
            if not self._pending_records or (whole_groups_only and is_below_limits):
                return None
            chunk = EventChunk(self._pending_records[0].first_event_number)
            while (
                self._pending_records
                and self._pending_records[0].first_event_number == chunk.end_event_number
                and len(chunk.events) < rows
            ):
                record = self._pending_records[0]
                count = min(rows - len(chunk.events), chunk.count_fitting_events(record.events, max_large_bytes))
                if not count:
                    break
                self._move_pending_events_into(chunk, count)
            self._chunks_being_flushed.append(chunk)
            return chunk

    def _move_pending_events_into(self, chunk: EventChunk, count: int) -> None:
        record = self._pending_records.popleft()
        chunk.add_events(record, count)
        self._pending_large_event_bytes -= estimate_large_event_bytes(record.events[:count])
        if len(record.events) > count:
            self._pending_records.appendleft(record.without_first_events(count))

    def return_chunk_to_pending(self, chunk: EventChunk) -> None:
        """Make the events of a chunk pending again after its flush has failed."""
        with self.state_lock:
            self._chunks_being_flushed.remove(chunk)
            self._pending_large_event_bytes += chunk.large_event_bytes
            self._pending_records = deque(
                sorted(
                    [*chunk.to_wal_records(self.name), *self._pending_records],
                    key=lambda record: record.first_event_number,
                )
            )
            self.state_lock.notify_all()

    def flush(self, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Write the chunk into the file, and its range of sequence numbers into the manifest, in one transaction.

        Because of the range, events are not flushed again if they are replayed from the write-ahead log.
        """
        if self.recent_table.is_maintained:
            with self.memtable_fill_lock:
                self._update_recent_table(chunk.end_event_number, cursor)
        unsaved, unsaved_projects = self._take_unsaved_shapes()
        cursor.execute("BEGIN")
        try:
            block = allocate_block_number(cursor)
            insert_sql = partial(self.table_statements.insert_events, self.table_statements.table, numbered=False)
            chunk.sorted_by_project().insert(cursor, insert_sql, block=block)
            add_unindexed_block(cursor, self.table_statements, block)
            register_flushed_block(cursor, self.table_statements, block, [event.timestamp_us for event in chunk.events])
            cursor.execute(
                "INSERT INTO store.cordwood.sealed VALUES ($stream, $first, $last)",
                {"stream": self.name, "first": chunk.first_event_number, "last": chunk.end_event_number},
            )
            self._save_shape(cursor, unsaved)
            self.project_shape_saver.save(cursor, unsaved_projects)
            with self.state_lock:
                self._wait_for_earlier_chunks(chunk)
                cursor.execute("COMMIT")
                self._mark_flushed(chunk)
        except BaseException:
            roll_back(cursor)
            self.add_kinds(unsaved)
            with self.state_lock:
                self.project_shape_saver.restore_unsaved_shapes(unsaved_projects)
            raise
        self._drop_flushed_memtable_parts(cursor)

    def _wait_for_earlier_chunks(self, chunk: EventChunk) -> None:
        self.state_lock.wait_for(
            lambda: (
                chunk.first_event_number == min(flushing.first_event_number for flushing in self._chunks_being_flushed)
            )
        )
        if self.first_unflushed_event_number != chunk.first_event_number:
            raise FlushOutOfOrderError(
                f"Events of {self.name} from number {self.first_unflushed_event_number} on could not be flushed."
            )

    def _mark_flushed(self, chunk: EventChunk) -> None:
        self._chunks_being_flushed.remove(chunk)
        self.unflushed_bytes -= estimate_event_bytes(chunk.events)
        self._memtable.mark_flushed(self.first_unflushed_event_number)
        self.recent_table.on_flush(self.first_unflushed_event_number)
        self.state_lock.notify_all()

    def _drop_flushed_memtable_parts(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Drop the parts of the memtable whose rows are all flushed; if this fails, the next query drops them."""
        with self.state_lock, suppress(duckdb.Error):
            self._memtable.refresh_views(cursor)

    # The following methods delete events.

    def delete_expired_events(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Delete the events beyond the stream's retention; return the number of deleted events."""
        before_us, oldest_us = self._oldest_retained_us(now_us, cursor), self.stats.oldest_us
        if before_us is None or oldest_us is None or oldest_us >= before_us:
            return 0
        if self._has_pending_record(lambda record: any(event.timestamp_us < before_us for event in record.events)):
            self._flush_events_below(self.next_event_number, cursor)
        return self.delete_before(before_us, cursor)

    def _flush_events_below(self, end: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Flush all pending events with sequence numbers below `end`, without waiting for events that arrive later."""
        while self._has_pending_record(lambda record: record.first_event_number < end):
            chunk = self.take_chunk(whole_groups_only=False)
            if chunk is not None:
                self._flush_or_restore(chunk, cursor)

    def _has_pending_record(self, predicate: Callable[[WalRecord], bool]) -> bool:
        with self.state_lock:
            return any(map(predicate, self._pending_records))

    def delete_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Delete the flushed events older than `before_us`; return their number.

        A later checkpoint frees the space of the deleted events.
        """
        with transaction(cursor):
            row = fetch_first_row(cursor, self.table_statements.delete_before(), {"before": before_us})
            update_registry_after_deletion(cursor, self.table_statements, before_us)
        with self.memtable_fill_lock:
            # A concurrent fill of the recent table may not have seen the deletion. When the fill notices that this
            # number has changed, it discards its result.
            self.event_deletion_run_count += 1
            self.recent_table.delete_before(before_us, cursor)
        deleted = int(row[0]) if row else 0
        if deleted:
            self.recount_events(cursor)
        return deleted

    def _flush_or_restore(self, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> None:
        try:
            self.flush(chunk, cursor)
        except BaseException:
            self.return_chunk_to_pending(chunk)
            raise

    def _oldest_retained_us(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int | None:
        bounds = []
        if self.stream.retention_seconds is not None:
            bounds.append(now_us - round(self.stream.retention_seconds * 1e6))
        max_events = self.stream.max_events
        if max_events is not None and self.stats.events > max_events:
            # The limit `max_events` includes the events that are not flushed. They are the newest events, so they are
            # subtracted from the rank that is looked up among the flushed events. The lock prevents a flush between
            # counting them and reading the file.
            with self.state_lock:
                rank = max(1, max_events - (self.next_event_number - self.first_unflushed_event_number))
                row = fetch_first_row(cursor, self.table_statements.select_time_of_rank(), {"rank": rank})
            bounds += row or []
        return max(bounds, default=None)

    def _take_unsaved_shapes(self) -> tuple[ValueKindsByPath, UnsavedProjectShapes]:
        with self.state_lock:
            unsaved, self._unsaved_kinds = self._unsaved_kinds, {}
            return unsaved, self.project_shape_saver.take_unsaved_shapes()

    def _save_shape(self, cursor: duckdb.DuckDBPyConnection, unsaved: ValueKindsByPath) -> None:
        rows = [(list(path), str(kind)) for path, kinds in unsaved.items() for kind in kinds]
        if rows:
            cursor.execute(
                "INSERT INTO store.cordwood.shape SELECT $stream, unnest($paths), unnest($kinds)",
                {"stream": self.name, "paths": [path for path, _ in rows], "kinds": [kind for _, kind in rows]},
            )


def unflushed_bytes(stores: Iterable[StreamStore]) -> int:
    return sum(store.unflushed_bytes for store in stores)
