"""Flush pending events in the background: full row groups immediately, and smaller ones after a time limit."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing

import duckdb
import msgspec

from cordwood.engines.duckdb.faults import is_out_of_memory
from cordwood.engines.duckdb.storage.background import BackgroundJob
from cordwood.engines.duckdb.storage.chunk import EventChunk, is_conversion_error
from cordwood.engines.duckdb.storage.locks import SharedAccessKind
from cordwood.engines.duckdb.storage.memory_reclaimer import release_free_memory
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.stream_store import FlushOutOfOrderError, StreamStore, unflushed_bytes
from cordwood.observe.observation import ReportOperatorMessage

# A partial row group with at least `_MIN_PARTIAL_FLUSH_ROWS` rows is flushed when no events have arrived for
# `_IDLE_SECONDS_BEFORE_PARTIAL_FLUSH`. Otherwise it waits until its oldest event has been pending for
# `_MAX_PARTIAL_GROUP_PENDING_SECONDS`. It waits so long, because each flush rewrites the last row group.
_IDLE_SECONDS_BEFORE_PARTIAL_FLUSH = 2.0
_MIN_PARTIAL_FLUSH_ROWS = 1024
_MAX_PARTIAL_GROUP_PENDING_SECONDS = 300.0
_FLUSH_POLL_SECONDS = 0.5
# If no events have arrived for this time, the memory that flushes have freed is returned to the operating system.
_MEMORY_RELEASE_IDLE_SECONDS = 0.5
_FAILURE_REPORT_INTERVAL_SECONDS = 60.0


class FlushLimits(msgspec.Struct, frozen=True):
    """The limits of flushes: the number of threads, the bytes of pending events, and the rows of one flush.

    Memory that a flush has freed is kept for the next flush, until `keep_freed_memory_seconds` have passed or no events
    arrive. Returning and reallocating the memory with each flush would cost a fifth of the throughput.
    """

    workers: int
    max_unflushed_bytes: int
    rows_per_flush: int = ROW_GROUP_ROWS
    keep_freed_memory_seconds: float = 1.0

    @property
    def flushes_partial_groups(self) -> bool:
        return self.rows_per_flush < ROW_GROUP_ROWS


class Flusher:
    """The background job that flushes pending events; it calls `on_flushed` after each flushed chunk."""

    def __init__(
        self,
        session: Session,
        stores: Callable[[], Collection[StreamStore]],
        limits: FlushLimits,
        on_flushed: Callable[[], None],
        report: ReportOperatorMessage,
        clock_us: Callable[[], int],
    ) -> None:
        self.limits = limits
        self.job = BackgroundJob("flush", self.flush_next, threads=limits.workers)
        self._session = session
        self._get_stores = stores
        self._on_chunk_flushed = on_flushed
        self._report_message = report
        self._clock_us = clock_us
        self._last_append_at = time.monotonic()
        self._failure_reported_at = -_FAILURE_REPORT_INTERVAL_SECONDS
        self._memory_released_at = self._last_append_at
        self._is_memory_released = True
        # The number of rows of each stream that were flushed as parts of a row group since the last checkpoint.
        self._flushed_rows_since_checkpoint: Counter[str] = Counter()

    def on_append(self) -> None:
        self._last_append_at = time.monotonic()
        self.job.wake()

    def flush_next(self) -> float:
        """Flush the next chunk if a flush is due; return the seconds until the next attempt."""
        try:
            is_flushed = self._flush_due_chunk()
        finally:
            self._release_memory_when_due()
        return 0.0 if is_flushed else _FLUSH_POLL_SECONDS

    def _flush_due_chunk(self) -> bool:
        if self._session.is_checkpoint_stuck:
            with closing(self._session.cursor()) as cursor:
                if not self._try_checkpoint(cursor, now=False):
                    return False
        stores = sorted(self._get_stores(), key=lambda store: store.unflushed_bytes, reverse=True)
        is_memory_short = self._is_memory_short(stores)
        for store in stores:
            whole_groups_only = not (is_memory_short or self._is_flush_due(store))
            chunk = store.take_chunk(whole_groups_only=whole_groups_only, rows=self._rows_to_flush(store))
            if chunk is not None:
                with closing(self._session.cursor()) as cursor:
                    return self._flush_chunk(store, chunk, cursor)
        return False

    def _is_memory_short(self, stores: Collection[StreamStore]) -> bool:
        """Return whether many bytes are pending while no flush is running, which would free memory.

        Partial row groups are flushed early only in this case, because DuckDB writes them twice, and also into its own
        log.
        """
        # First check for running flushes, and then count bytes. In the opposite order, the bytes of a flush that ends
        # in between would be counted although they are free already.
        if any(store.is_flushing for store in stores):
            return False
        return unflushed_bytes(stores) > self.limits.max_unflushed_bytes * 3 // 4

    def _flush_chunk(self, store: StreamStore, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> bool:
        try:
            rows_of_group = self._flushed_rows_since_checkpoint[store.name] + len(chunk.events)
            if chunk.has_more_fields_than(self._session.max_shredded_fields(rows_of_group), store.shape):
                self._session.pause_shredding(cursor)
            with self._session.access_lock.shared_access(SharedAccessKind.FLUSH):
                store.flush(chunk, cursor)
        except (duckdb.Error, FlushOutOfOrderError) as problem:
            if isinstance(problem, duckdb.Error) and is_out_of_memory(problem):
                self._session.pause_shredding(cursor)
            elif isinstance(problem, duckdb.Error) and is_conversion_error(problem):
                chunk.replace_unreadable_json(cursor)
            self._report_at_limited_rate(f"Events of {store.name} could not be flushed yet: {problem}".splitlines()[0])
            store.return_chunk_to_pending(chunk)
            return False
        except BaseException:
            store.return_chunk_to_pending(chunk)
            raise
        self._on_chunk_flushed()
        self._checkpoint_if_group_is_full(store, len(chunk.events), cursor)
        self._is_memory_released = False
        return True

    def _rows_to_flush(self, store: StreamStore) -> int:
        """Return how many rows to flush at once, so that the flushed parts add up to exactly one row group."""
        return min(
            self.limits.rows_per_flush,
            ROW_GROUP_ROWS - self._flushed_rows_since_checkpoint[store.name] % ROW_GROUP_ROWS,
        )

    def _checkpoint_if_group_is_full(self, store: StreamStore, rows: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Checkpoint as soon as the flushed parts are a full row group.

        The checkpoint compresses the row group, so that later flushes do not extend it.
        """
        if self.limits.flushes_partial_groups:
            self._flushed_rows_since_checkpoint[store.name] += rows
        self._try_checkpoint(cursor, now=self._flushed_rows_since_checkpoint[store.name] >= ROW_GROUP_ROWS)

    def _try_checkpoint(self, cursor: duckdb.DuckDBPyConnection, *, now: bool) -> bool:
        try:
            is_checkpointed = self._session.checkpoint_when_due(cursor, now=now)
        except duckdb.IOException as problem:
            self._report_at_limited_rate(f"Events stay in the engine's log for now: {problem}".splitlines()[0])
            return False
        if is_checkpointed:
            self._flushed_rows_since_checkpoint.clear()
        return is_checkpointed

    def _release_memory_when_due(self) -> None:
        now = time.monotonic()
        keeps_memory = (
            now - self._memory_released_at < self.limits.keep_freed_memory_seconds
            and now - self._last_append_at < _MEMORY_RELEASE_IDLE_SECONDS
        )
        if not self._is_memory_released and not keeps_memory:
            self._is_memory_released, self._memory_released_at = True, now
            release_free_memory()

    def _report_at_limited_rate(self, sentence: str) -> None:
        if time.monotonic() - self._failure_reported_at > _FAILURE_REPORT_INTERVAL_SECONDS:
            self._failure_reported_at = time.monotonic()
            self._report_message(sentence)

    def _is_flush_due(self, store: StreamStore) -> bool:
        oldest_us = store.oldest_pending_us
        if oldest_us is None:
            return False
        quiet = time.monotonic() - self._last_append_at > _IDLE_SECONDS_BEFORE_PARTIAL_FLUSH
        return (
            quiet and store.pending_rows >= _MIN_PARTIAL_FLUSH_ROWS
        ) or self._clock_us() - oldest_us > _MAX_PARTIAL_GROUP_PENDING_SECONDS * 1e6
