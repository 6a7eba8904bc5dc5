"""A cache in memory of the newest events of streams, with objects as JSON text.

Each cached stream has a recent table. The table is filled when a query first requests the stream's newest events, and
emptied when no query has requested them for a while. Queries read the file until the table is filled. Nothing is cached
while many events arrive at once.
"""

import time
from contextlib import closing
from queue import SimpleQueue

import duckdb

from cordwood.engines.duckdb.storage.background import BackgroundJob
from cordwood.engines.duckdb.storage.locks import LockRank, ordered_lock
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session, fetch_first_row, roll_back
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.errors import Fault
from cordwood.observe.observation import ReportOperatorMessage

# The maximum number of streams whose newest events are cached: the streams that were requested most recently.
MAX_RECENT_CACHE_STREAMS = 2
_EXPIRY_AFTER_LAST_REQUEST_SECONDS = 600.0
_EXPIRY_POLL_SECONDS = 60.0
# A time that is earlier than any TIMESTAMP of BigQuery.
_BEFORE_ALL_TIMESTAMPS_US = -62_135_596_800_000_001
# After a fill of a stream's table, the stream's next fill waits for this multiple of the time that the fill took. So
# fills take at most a twentieth of a processor.
_FILL_PAUSE_TO_DURATION_RATIO = 20


class RecentEventCache:
    """The background job that fills and empties recent tables; `max_bytes` is the approximate limit of each table."""

    def __init__(self, session: Session, max_bytes: int, report: ReportOperatorMessage) -> None:
        self._session = session
        self.max_table_bytes = max_bytes
        self._report_message = report
        self._last_request_at_by_stream: dict[str, float] = {}
        self._earliest_fill_at_by_stream: dict[str, float] = {}
        self._cached_stores: dict[str, StreamStore] = {}
        self._fill_queue: SimpleQueue[StreamStore] = SimpleQueue()
        self._fill_lock = ordered_lock(LockRank.RECENT_CACHE_FILL)
        self.job = BackgroundJob("recent-cache", self.run_due_work, first_pause=_EXPIRY_POLL_SECONDS)

    def request_fill(self, store: StreamStore) -> None:
        """Record that a query requests the stream's newest events; start to fill the stream's table if necessary."""
        now = time.monotonic()
        self._last_request_at_by_stream[store.name] = now
        if not store.recent_table.is_maintained and now >= self._earliest_fill_at_by_stream.get(store.name, 0.0):
            # If the fill fails, a request after this time starts another fill.
            self._earliest_fill_at_by_stream[store.name] = now + _EXPIRY_POLL_SECONDS
            self._fill_queue.put(store)
            self.job.wake()

    def fill_recent_table(self, store: StreamStore) -> None:
        started_at = time.monotonic()
        with self._fill_lock, self._session.cursor_with_shared_access() as cursor:
            if not store.recent_table.is_maintained and self._fill_table(store, cursor):
                self._cached_stores[store.name] = store
        ended_at = time.monotonic()
        self._earliest_fill_at_by_stream[store.name] = (
            ended_at + (ended_at - started_at) * _FILL_PAUSE_TO_DURATION_RATIO
        )

    def _fill_table(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Fill the stream's recent table; if events were flushed or deleted meanwhile, roll back and return False."""
        tables = store.table_statements
        max_events = max(
            1, min(ROW_GROUP_ROWS, int(self.max_table_bytes / max(1.0, store.average_event_bytes(cursor))))
        )
        with store.memtable_fill_lock, store.state_lock:
            version = store.first_unflushed_event_number, store.event_deletion_run_count
            cursor.execute("BEGIN")
            cursor.execute(tables.pin_snapshot_of_table()).fetchall()
        try:
            row = fetch_first_row(cursor, tables.select_time_of_rank(), {"rank": max_events}) or (
                _BEFORE_ALL_TIMESTAMPS_US,
            )
            ((rows,),) = cursor.execute(tables.create_recent_table(), {"since": row[0]}).fetchall()
            with store.memtable_fill_lock, store.state_lock:
                is_consistent = version == (store.first_unflushed_event_number, store.event_deletion_run_count)
                cursor.execute("COMMIT" if is_consistent else "ROLLBACK")
                if is_consistent:
                    store.recent_table.record_fill(int(row[0]), rows, max_events, store.first_unflushed_event_number)
        except BaseException:
            roll_back(cursor)
            raise
        return is_consistent

    def drop_expired_tables(self) -> None:
        names = sorted(
            self._cached_stores, key=lambda name: self._last_request_at_by_stream.get(name, 0.0), reverse=True
        )
        now = time.monotonic()
        for rank, name in enumerate(names):
            if (
                rank >= MAX_RECENT_CACHE_STREAMS
                or now - self._last_request_at_by_stream.get(name, 0.0) > _EXPIRY_AFTER_LAST_REQUEST_SECONDS
            ):
                self._drop_recent_table(self._cached_stores.pop(name))

    def _drop_recent_table(self, store: StreamStore) -> None:
        with self._fill_lock, store.memtable_fill_lock, closing(self._session.cursor()) as cursor:
            store.recent_table.discard(cursor)

    def run_due_work(self) -> float:
        """Fill the requested tables, and drop expired tables; return the seconds until the next check."""
        try:
            while not self._fill_queue.empty():
                self.fill_recent_table(self._fill_queue.get_nowait())
            self.drop_expired_tables()
        except (duckdb.Error, Fault) as problem:
            self._report_message(
                f"The recent cache could not be filled, and queries read the file: {problem}".splitlines()[0]
            )
        return _EXPIRY_POLL_SECONDS
