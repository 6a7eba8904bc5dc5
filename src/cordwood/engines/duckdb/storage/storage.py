"""The events of all streams, from the write-ahead log through the memtable to the file and to compacted runs.

`append` writes events to the write-ahead log; then they are acknowledged. `open_query_view` puts pending events into
memtables for a query. The flusher writes pending events into row groups of the file, and removes them from the log. The
compactor rewrites row groups in order of project. Retention deletes expired events. `locks.LockRank` lists the locks in
the order in which threads take them.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import duckdb
import msgspec

from cordwood.engines.duckdb.faults import translate_duckdb_errors
from cordwood.engines.duckdb.storage import manifest
from cordwood.engines.duckdb.storage.background import BackgroundScheduler
from cordwood.engines.duckdb.storage.backup_files import OpenFile, as_backup_files
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher, FlushLimits
from cordwood.engines.duckdb.storage.locks import LockRank, SharedAccessKind, ordered_lock
from cordwood.engines.duckdb.storage.manifest import load_project_shapes
from cordwood.engines.duckdb.storage.memtable import ArrivedEventView, RecentEventView
from cordwood.engines.duckdb.storage.recent_cache import RecentEventCache
from cordwood.engines.duckdb.storage.recent_ids import (
    DEDUPLICATION_WINDOW_EVENTS,
    DEDUPLICATION_WINDOW_US,
    KeyLookup,
    RecentIds,
    hash_events,
)
from cordwood.engines.duckdb.storage.retention import RetentionEnforcer
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session, fetch_first_row
from cordwood.engines.duckdb.storage.stream_store import StreamStore, unflushed_bytes
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.storage.wal import PathWithKinds, WalRecord, WriteAheadLog
from cordwood.engines.engine import BackupFile, BatchAppendResult, StreamStats
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import BacklogFull, BadStreamFile, UnknownStream
from cordwood.model.definitions import Stream
from cordwood.model.event import EventKey, EventShape, ReceivedEventBatch
from cordwood.observe.observation import ReportOperatorMessage

_MAX_CAPACITY_WAIT_SECONDS = 20.0
# If the receive time of a stored event is further in the future than this, the event was imported, or the clock was
# wrong. Such a time is ignored when new events get later receive times than all stored events.
_MAX_CLOCK_ERROR_US = 3600 * 1_000_000
# The maximum number of tables of arrived events, and the memory that the engine must have for each table. A table takes
# up to about 10 MB.
_MAX_ARRIVED_TABLES, _ARRIVED_TABLE_SHARE_BYTES = 8, 32 * 10**6


class StorageLimits(msgspec.Struct, frozen=True):
    """The limits of flushes, of each stream's recent table, and of the file's size, where None means no limit."""

    flush_limits: FlushLimits
    max_recent_table_bytes: int = 0
    max_store_bytes: int | None = None


class QueryView(NamedTuple):
    """A cursor for a query; `reads_only_flushed_events` is true if all events that the query reads are flushed."""

    cursor: duckdb.DuckDBPyConnection
    reads_only_flushed_events: bool


class _DeduplicatedBatch(NamedTuple):
    """A batch without its duplicates.

    `record` is the record to write to the log, `hashes` has the hashes of its events, and `repeated_positions` has the
    positions of the duplicates in the batch.
    """

    record: WalRecord
    hashes: Sequence[int]
    repeated_positions: set[int]


class StoppableQuery(Protocol):
    """The interface of a query that may have to stop while it waits for its view."""

    def set_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Set the cursor that is interrupted if the query must stop."""

    def raise_if_stopped(self) -> None:
        """Raise an error if the query must stop."""


class _UnstoppableQuery:
    """A query that has no time limit and cannot be cancelled."""

    def set_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Do nothing, because the query is never interrupted."""

    def raise_if_stopped(self) -> None:
        """Do nothing. For other queries, this method raises an error if the query must stop."""


_UNSTOPPABLE_QUERY = _UnstoppableQuery()


class Storage:
    """The stores of all streams, with the write-ahead log and the background jobs.

    Events that are replayed from the log are added to the store of their stream only when the stream is prepared.
    Appends block while more bytes are pending than `limits` allows.
    """

    def __init__(
        self,
        session: Session,
        folder: Path,
        limits: StorageLimits,
        clock_us: Callable[[], int],
        report: ReportOperatorMessage,
    ) -> None:
        self._session = session
        self._retention = RetentionEnforcer(session, limits.max_store_bytes)
        self._is_closed = False
        # The receive time of the last event. Each event gets a later receive time than all events before it.
        self.newest_receipt_us = 0
        self._clock_us = clock_us
        self._report_message = report
        self._stores: dict[str, StreamStore] = {}
        self._recent_ids: dict[str, RecentIds] = {}
        self._append_lock = ordered_lock(LockRank.APPEND)
        self._capacity_changed = threading.Condition()
        cursor = session.cursor()
        manifest.open_manifest(cursor)
        self._flushed_ranges_by_stream = manifest.read_flushed_ranges(cursor)
        self._saved_shapes = manifest.read_shapes(cursor)
        self._saved_project_shapes = dict(load_project_shapes(cursor))
        self._wal = WriteAheadLog(folder / "journal")
        self._replayed_records = self._unflushed_records(self._wal.replay(report))
        # The streams that had events on disk when the storage was opened, including deleted streams.
        self._stored_stream_names = frozenset({*self._flushed_ranges_by_stream, *self._replayed_records})
        self._cursor = cursor
        self._background_scheduler = BackgroundScheduler(report)
        self._compactor = Compactor(
            session,
            self._all_stores,
            self._are_flushes_behind,
            report,
            # If row groups are flushed in parts, compaction must not run between flushes, because each full row group
            # is then written by a checkpoint, and checkpoints have to wait while a run is compacted.
            runs_between_flushes=not limits.flush_limits.flushes_partial_groups,
            stopping=self._background_scheduler.stop_event,
        )
        self.recent_cache = RecentEventCache(session, limits.max_recent_table_bytes, report)
        self._flusher = Flusher(session, self._all_stores, limits.flush_limits, self._after_flush, report, clock_us)

    def start(self) -> None:
        """Start the background jobs: the flusher, the compactor and the recent cache."""
        for job in (self._flusher.job, self._compactor.job, self.recent_cache.job):
            self._background_scheduler.start(job)

    def create_stream_tables(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            store = self._stores.get(stream.name)
            if store is None:
                self._refuse_names_differing_in_case(stream.name)
                with self._session.access_lock.shared_access(SharedAccessKind.FLUSH):
                    self._stores[stream.name] = self._open_store(stream)
                # Make the compactor look for work again, because the stream's flushed events may need compaction.
                self._compactor.on_flush()
            else:
                store.stream = stream

    def check_streams(self, streams: Iterable[Stream]) -> None:
        """Raise BadStreamFile if a stream's name differs from the name of another stored stream only in case."""
        for stream in streams:
            if stream.name not in self._stores:
                self._refuse_names_differing_in_case(stream.name)

    def delete_expired_events(self, now_us: int) -> int:
        cursor = self._session.cursor()
        try:
            for store in self._all_stores():
                store.discard_idle_arrived_table(cursor)
            with self._compactor.deletion_lock:
                return (
                    0 if self._is_closed else self._retention.delete_expired_events(self._all_stores(), now_us, cursor)
                )
        finally:
            cursor.close()

    def append(
        self, batches: Sequence[ReceivedEventBatch], acknowledged: Mapping[str, int] | None = None
    ) -> list[BatchAppendResult]:
        """Append the batches; return for each batch how many events were accepted and which were repeated.

        `acknowledged` is given if an earlier, unacknowledged append may have stored the batches already. It maps each
        stream to the sequence number after its last acknowledged event. A repeated event that is stored with this or a
        higher number counts as accepted.
        """
        self._wait_for_append_capacity()
        with self._append_lock:
            already_stored = self._unflushed_keys(acknowledged) if acknowledged is not None else {}
            deduplicated = self._deduplicate_batches(batches)
            records = [one.record for one in deduplicated if one.record.events]
            if records:
                self._wal.append(records)
                self.newest_receipt_us = max(self.newest_receipt_us, records[-1].last_received_us)
            for record, hashes, _ in deduplicated:
                if record.events:
                    self._recent_ids[record.stream].add(hashes, record.received_us)
                    self._stores[record.stream].add_record(record)
        self._flusher.on_append()
        return [
            _make_append_result(batch, one, already_stored.get(batch.stream, set()))
            for batch, one in zip(batches, deduplicated, strict=True)
        ]

    def next_event_numbers(self) -> Mapping[str, int]:
        return {name: store.next_event_number for name, store in dict(self._stores).items()}

    def _unflushed_keys(self, numbers: Mapping[str, int]) -> dict[str, set[EventKey]]:
        return {
            name: self._stores[name].unflushed_keys(number) for name, number in numbers.items() if name in self._stores
        }

    @contextmanager
    def open_query_view(
        self, streams: Iterable[str], query: StoppableQuery = _UNSTOPPABLE_QUERY
    ) -> Iterator[QueryView]:
        """Yield a cursor whose queries see every event that was appended so far exactly once.

        If `query` must stop while the view is created, an error is raised.
        """
        with self._session.cursor_with_shared_access(query.raise_if_stopped) as cursor:
            query.set_cursor(cursor)
            stores = [self._stores[name] for name in sorted(set(streams)) if name in self._stores]
            yield QueryView(
                cursor, reads_only_flushed_events=not self._fill_memtables(cursor, stores, query.raise_if_stopped)
            )

    @contextmanager
    def open_recent_view(
        self, stream: str, query: StoppableQuery = _UNSTOPPABLE_QUERY
    ) -> Iterator[RecentEventView | None]:
        """Yield a view of the stream's recent table, or None if the stream's newest events are not cached."""
        store = self._stores.get(stream)
        if store is None:
            yield None
            return
        with self._session.cursor_with_shared_access(query.raise_if_stopped) as cursor:
            self.recent_cache.request_fill(store)
            times_filled = store.recent_table.times_filled
            is_maintained = store.refresh_recent_table(cursor, query.raise_if_stopped)
            # Set the cursor only now, because an interrupt during the refresh would discard the recent table.
            query.set_cursor(cursor)
            yield RecentEventView(cursor, store.recent_table, times_filled) if is_maintained else None

    @contextmanager
    def open_arrived_view(
        self, streams: Sequence[str], first_us: int, query: StoppableQuery
    ) -> Iterator[ArrivedEventView | None]:
        """Yield a view of all events that the streams received since `first_us`; None if it would be incomplete."""
        stores = [store for name in streams if (store := self._stores.get(name)) is not None]
        if len(stores) < len(streams) or not self._may_create_arrived_tables(stores):
            yield None
            return
        with self._session.cursor_with_shared_access(query.raise_if_stopped) as cursor:
            counts = [
                store.refresh_arrived_table(first_us, lambda: self.newest_receipt_us, cursor, query.raise_if_stopped)
                for store in stores
            ]
            # Set the cursor only now, because an interrupt during the refresh would discard a table of arrived events.
            query.set_cursor(cursor)
            is_complete = all(count is not None for count in counts)
            yield ArrivedEventView(cursor, [store.arrived_table for store in stores], counts) if is_complete else None

    def _may_create_arrived_tables(self, stores: Sequence[StreamStore]) -> bool:
        """Return whether the limit on tables of arrived events allows a table for each of `stores`."""
        wanted = {store.name for store in self._all_stores() if store.arrived_table.is_filled}
        wanted.update(store.name for store in stores)
        return len(wanted) <= min(_MAX_ARRIVED_TABLES, self._session.memory_bytes // _ARRIVED_TABLE_SHARE_BYTES)

    @contextmanager
    def open_backup_snapshot(self) -> Iterator[Sequence[BackupFile]]:
        """Yield the files for a backup; their lengths are all taken at a time when no append or flush writes."""
        with self._session.defer_checkpoints(), as_backup_files(self._open_files_for_backup()) as files:
            yield files

    def _open_files_for_backup(self) -> list[OpenFile]:
        with self._append_lock, ExitStack() as locks:
            for store in sorted(self._all_stores(), key=lambda store: store.name):
                locks.enter_context(store.state_lock)
            return [*self._wal.open_segments_for_backup(), *self._session.open_files_for_backup()]

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        return {name: store.shape for name, store in self._stores.items()}

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return {name: store.project_shapes for name, store in self._stores.items()}

    def stream_stats(self) -> Mapping[str, StreamStats]:
        return {name: store.stats for name, store in self._stores.items()}

    def count_events_of_unopened_streams(self) -> Mapping[str, int]:
        """Count the stored events of each stream for which `create_stream_tables` was not called."""
        counts: dict[str, int] = {}
        # Streams whose names differ only in case share a table, whose events are counted once.
        counted_tables = {name.casefold() for name in self._stores}
        for name in sorted(self._stored_stream_names - self._stores.keys()):
            events = sum(len(record.events) for record in self._replayed_records.get(name, []))
            if name in self._flushed_ranges_by_stream and name.casefold() not in counted_tables:
                row = fetch_first_row(self._cursor, StreamTableStatements(name).count_rows())
                events += int(row[0]) if row else 0
                counted_tables.add(name.casefold())
            if events:
                counts[name] = events
        return counts

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        """Estimate the bytes of each stream: its share of the used blocks, plus its unflushed events.

        The share is estimated by the number of rows and the average length of texts. Counting the blocks of each stream
        instead would take time and memory for every row group.
        """
        with self._session.cursor_with_shared_access() as cursor:
            stores, rows = self._all_stores(), self._session.row_counts_including_deleted(cursor)
            shares = {store.name: rows.get(store.name, 0) * store.average_event_bytes(cursor) for store in stores}
            used_bytes = self._session.used_disk_bytes(cursor)
        total_share = max(1.0, sum(shares.values()))
        return {
            store.name: int(used_bytes * shares[store.name] / total_share) + store.unflushed_bytes for store in stores
        }

    def get_store(self, name: str) -> StreamStore:
        try:
            return self._stores[name]
        except KeyError:
            raise UnknownStream(f"There is no stream {name!r}.") from None

    def close(self) -> None:
        if self._is_closed:
            return
        self._background_scheduler.close(before_join=self._compactor.interrupt)
        self._compactor.close()
        with self._compactor.deletion_lock:
            self._is_closed = True
        self._wal.close()
        self._cursor.close()

    # Methods that open the stores of streams.

    def _unflushed_records(self, records: Iterable[WalRecord]) -> dict[str, list[WalRecord]]:
        unflushed: dict[str, list[WalRecord]] = {}
        for record in records:
            unflushed.setdefault(record.stream, []).extend(
                _subtract_flushed_ranges(record, self._flushed_ranges_by_stream.get(record.stream, []))
            )
        return unflushed

    def _open_store(self, stream: Stream) -> StreamStore:
        name = stream.name
        store = StreamStore(stream)
        for statement in (
            store.table_statements.create_table(),
            store.table_statements.add_missing_columns(),
            store.table_statements.create_memtable_view((), 0),
            store.table_statements.create_view(with_memtable=False),
        ):
            self._cursor.execute(statement)
        store.shape = EventShape(version=1).merged_with_kinds(self._saved_shapes.get(name, {}))
        store.project_shape_saver.apply_saved_shapes(*self._saved_project_shapes.pop(name, ({}, {})))
        store.recount_events(self._cursor)
        store.next_event_number = max((last for _, last in self._flushed_ranges_by_stream.get(name, [])), default=0)
        self._recent_ids[name] = self._create_recent_ids(store)
        for record in self._replayed_records.pop(name, []):
            if record.first_event_number > store.next_event_number:
                self._report_message(_lost_events_message(name, record.first_event_number - store.next_event_number))
            store.add_record(record)
            self._recent_ids[name].add(hash_events(record.events), record.received_us)
            self._raise_newest_receipt_time(record.last_received_us)
        return store

    def _raise_newest_receipt_time(self, received_us: int) -> None:
        """Raise `newest_receipt_us` to the receive time of a stored event, unless the time is far in the future."""
        if received_us <= self._clock_us() + _MAX_CLOCK_ERROR_US:
            self.newest_receipt_us = max(self.newest_receipt_us, received_us)

    def _refuse_names_differing_in_case(self, name: str) -> None:
        """Raise BadStreamFile if another stream's name differs from `name` only in case.

        Both streams would have the same table, because DuckDB ignores the case of names. A name with stored events of
        its own is accepted if the other stream is deleted, because earlier releases allowed both names.
        """
        for existing in self._stores:
            if existing.casefold() == name.casefold():
                raise BadStreamFile(f"The streams {existing!r} and {name!r} differ only in upper and lower case.")
        if name in self._stored_stream_names:
            return
        for existing in self._stored_stream_names:
            if existing.casefold() == name.casefold():
                raise BadStreamFile(
                    f"The stream {name!r} differs only in upper and lower case from {existing!r}, which was deleted,"
                    " and whose events are still stored.",
                    hint=f"Call it {existing!r}.",
                )

    # Methods that append events.

    def _wait_for_append_capacity(self) -> None:
        with self._capacity_changed:
            if not self._capacity_changed.wait_for(self._has_append_capacity, _MAX_CAPACITY_WAIT_SECONDS):
                raise BacklogFull("More events arrive than can be stored.", retry_after=5)

    def _has_append_capacity(self) -> bool:
        return unflushed_bytes(self._stores.values()) < self._flusher.limits.max_unflushed_bytes

    def _deduplicate_batches(self, batches: Sequence[ReceivedEventBatch]) -> list[_DeduplicatedBatch]:
        """Separate the duplicates in each batch from the events to store."""
        ends = {name: store.next_event_number for name, store in self._stores.items()}
        new_hashes: dict[str, set[int]] = {}
        deduplicated = []
        newest_us = self.newest_receipt_us
        for batch in batches:
            store = self.get_store(batch.stream)
            hashes = hash_events(batch.events)
            repeated = self._find_duplicates(batch, hashes, new_hashes.setdefault(batch.stream, set()))
            events = list(batch.events)
            if repeated:
                events = [event for position, event in enumerate(events) if position not in repeated]
                hashes = [key_hash for position, key_hash in enumerate(hashes) if position not in repeated]
            new_hashes[batch.stream].update(hashes)
            received_us = max(batch.received_us, newest_us + 1)
            record = WalRecord(batch.stream, ends[store.name], received_us, events, *_learnt_kinds_of_batch(batch))
            newest_us = record.last_received_us
            ends[store.name] = record.end_event_number
            deduplicated.append(_DeduplicatedBatch(record, hashes, repeated))
        return deduplicated

    def _find_duplicates(self, batch: ReceivedEventBatch, hashes: Sequence[int], new_hashes: set[int]) -> set[int]:
        """Return the positions of the batch's duplicates.

        `hashes` has the hashes of the batch's events, and `new_hashes` those of earlier batches of the same append.
        """
        duplicates = self._recent_ids[batch.stream].find_duplicates(batch.events, hashes, self._clock_us())
        if not new_hashes.isdisjoint(hashes):
            duplicates |= {position for position, key_hash in enumerate(hashes) if key_hash in new_hashes}
        return duplicates | self._find_reimported_positions(batch)

    def _find_reimported_positions(self, batch: ReceivedEventBatch) -> set[int]:
        """Return the positions of events in the batch that are imported again although they are still stored."""
        received = [event.received_us for event in batch.events if event.received_us is not None]
        if not received:
            return set()
        sql = self.get_store(batch.stream).table_statements.select_stored_keys_by_receipt()
        bounds = {"since": min(received), "until": max(received)}
        stored_keys = self._select_keys(sql, [event.key for event in batch.events], bounds)
        return {position for position, event in enumerate(batch.events) if event.key in stored_keys}

    def _create_recent_ids(self, store: StreamStore) -> RecentIds:
        sql = store.table_statements.select_newest_events_receipt_range()
        row = (
            fetch_first_row(self._cursor, sql, {"events": DEDUPLICATION_WINDOW_EVENTS}) if store.stats.events else None
        )
        oldest_us, newest_us = row or (None, None)
        self._raise_newest_receipt_time(newest_us or 0)
        opened_us = max(self._clock_us(), newest_us or 0) + 1
        return RecentIds(
            self._stored_key_lookup(store, opened_us if oldest_us is None else oldest_us),
            opened_us,
            has_earlier_events=newest_us is not None,
        )

    def _stored_key_lookup(self, store: StreamStore, oldest_us: int) -> KeyLookup:
        """Return a function that looks up keys among the flushed events in the deduplication window."""

        def find_stored_keys(keys: Sequence[EventKey], before_us: int) -> set[EventKey]:
            since_us = min(self._clock_us() - DEDUPLICATION_WINDOW_US, oldest_us)
            bounds = {"since": since_us, "before": before_us}
            return self._select_keys(store.table_statements.select_stored_keys(), keys, bounds)

        return find_stored_keys

    def _select_keys(self, sql: str, keys: Sequence[EventKey], bounds: Mapping[str, int]) -> set[EventKey]:
        """Return those of the keys that the statement finds among flushed events, within bounds of receive times."""
        values = {**bounds, "projects": [project for project, _ in keys], "ids": [event_id for _, event_id in keys]}
        with self._session.cursor_with_shared_access() as cursor:
            return set(cursor.execute(sql, values).fetchall())

    # Methods that make events visible to queries.

    def _fill_memtables(
        self, cursor: duckdb.DuckDBPyConnection, stores: Sequence[StreamStore], stop_early: Callable[[], None]
    ) -> bool:
        """Update the memtables of `stores`; return whether they contain events.

        If they do, a transaction is begun on the cursor, so that the cursor does not see later changes.
        """
        with translate_duckdb_errors(), ExitStack() as locks:
            for store in stores:
                store.fill_memtable(cursor, stop_early)
            for store in stores:
                locks.enter_context(store.state_lock)
                store.refresh_views(cursor)
            with_memtable = [store for store in stores if store.has_memtable]
            if with_memtable:
                cursor.execute("BEGIN")
            for store in with_memtable:
                cursor.execute(store.table_statements.pin_snapshot()).fetchall()
            return bool(with_memtable)

    # Methods for the background jobs.

    def _all_stores(self) -> Collection[StreamStore]:
        return list(self._stores.values())

    def _are_flushes_behind(self) -> bool:
        return any(store.pending_rows >= 2 * ROW_GROUP_ROWS for store in self._all_stores())

    def _after_flush(self) -> None:
        self._compactor.on_flush()
        self._wal.delete_flushed_segments(
            {name: store.first_unflushed_event_number for name, store in self._stores.items()}
        )
        with self._capacity_changed:
            self._capacity_changed.notify_all()


def _make_append_result(
    batch: ReceivedEventBatch, deduplicated: _DeduplicatedBatch, stored: set[EventKey]
) -> BatchAppendResult:
    """Return the result for one batch; a repeated event counts as accepted if its key is in `stored`.

    `stored` has the keys (project and id) of events that an earlier attempt of the same append stored. An accepted key
    is removed from `stored`, so that the event counts as accepted only in the first batch with this key.
    """
    new_events, repeated = len(deduplicated.record.events), deduplicated.repeated_positions
    if not repeated:
        return BatchAppendResult(new_events, 0)
    duplicates = []
    for position in sorted(repeated):
        if batch.events[position].key in stored:
            stored.remove(batch.events[position].key)
        else:
            duplicates.append(position)
    return BatchAppendResult(new_events + len(repeated) - len(duplicates), len(duplicates), tuple(duplicates))


def _learnt_kinds_of_batch(
    batch: ReceivedEventBatch,
) -> tuple[list[PathWithKinds], list[tuple[str, list[PathWithKinds]]]]:
    by_project = [(project, list(kinds.items())) for project, kinds in batch.by_project.items()]
    return list(batch.learnt.items()), by_project


def _lost_events_message(stream: str, events: int) -> str:
    return (
        f"{events:,} events of {stream} that were stored are neither in events.duckdb nor in the journal: they are lost."
        " Was events.duckdb or its .wal exchanged or removed, or is the disk failing?"
    )


def _subtract_flushed_ranges(record: WalRecord, ranges: manifest.EventNumberRanges) -> list[WalRecord]:
    """Return the parts of the record whose sequence numbers are in none of the ranges."""
    parts = []
    first = record.first_event_number
    for start, end in ranges:
        if end <= first or start >= record.end_event_number:
            continue
        if start > first:
            parts.append((first, start))
        first = max(first, end)
    if first < record.end_event_number:
        parts.append((first, record.end_event_number))
    return [
        msgspec.structs.replace(
            record,
            first_event_number=a,
            received_us=record.received_us + a - record.first_event_number,
            events=record.events[a - record.first_event_number : b - record.first_event_number],
        )
        for a, b in parts
    ]
