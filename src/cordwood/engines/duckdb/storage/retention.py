"""Delete events beyond the retention time or the size limit, and free their space while queries and flushes run."""

from collections.abc import Collection

import duckdb

from cordwood.engines.duckdb.storage.locks import RELAXED_EXCLUSIVE_WAIT, URGENT_EXCLUSIVE_WAIT, ExclusiveWaitLimits
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session, fetch_first_row, transaction
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.tables import StreamTableStatements

# If events exceed the size limit, they are deleted down to this share of the limit, so that the next sweeps have
# nothing to do.
_SIZE_LIMIT_TARGET_SHARE = 0.95
# The space of deleted events is freed only if they are at least this share of all events, because other transactions
# have to wait meanwhile.
_MIN_DELETED_SHARE_TO_FREE = 0.02
_MIN_DELETED_SHARE_FOR_URGENCY = 0.2
# The maximum number of rows of a stream that one sweep moves. It equals ten row groups; moving them takes some seconds.
_MAX_ROWS_MOVED_AT_ONCE = 204_800


class RetentionEnforcer:
    """The retention of all streams; `max_bytes` limits the size of their events in the file, None means no limit."""

    def __init__(self, session: Session, max_bytes: int | None) -> None:
        self._session = session
        self._max_store_bytes = max_bytes
        # For each stream, the number of deleted rows that took space after its live rows were last moved.
        self._deleted_rows_left_by_stream: dict[str, int] = {}

    def delete_expired_events(
        self, stores: Collection[StreamStore], now_us: int, cursor: duckdb.DuckDBPyConnection
    ) -> int:
        """Delete events beyond their stream's retention or the size limit; return the number of deleted events."""
        deleted = sum(store.delete_expired_events(now_us, cursor) for store in stores)
        if self._max_store_bytes is not None:
            deleted += self._enforce_size_limit(self._max_store_bytes, stores, cursor)
        self._free_blocks(stores, cursor)
        if self._is_store_too_large(cursor):
            # Row groups with deleted rows also have live rows. Moving the live rows to other row groups frees these row
            # groups.
            for store in stores:
                self._move_live_rows(store, cursor)
            self._free_blocks(stores, cursor)
        return deleted

    def _free_blocks(self, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> None:
        """Run a checkpoint to free the space of deleted events, if enough events are deleted.

        A checkpoint frees the blocks of the file only while no other transaction is running. It skips tables that have
        not changed since the last checkpoint, so a row of each table with deleted rows is rewritten first. If the space
        could not be freed, the next sweep tries again.
        """
        live, deleted_by_stream = self._count_live_and_deleted_rows(stores, cursor)
        deleted = sum(deleted_by_stream.values())
        pays_off = deleted >= max(ROW_GROUP_ROWS, live * _MIN_DELETED_SHARE_TO_FREE) or (
            deleted > 0 and self._is_store_too_large(cursor)
        )
        if not pays_off:
            return
        for store in stores:
            if deleted_by_stream[store.name]:
                _rewrite_oldest_rows(store.table_statements, 1, cursor)
        with self._session.access_lock.exclusive_access(
            self._choose_checkpoint_wait_limits(live, deleted)
        ) as is_exclusive:
            if is_exclusive:
                self._session.checkpoint(cursor)

    def _move_live_rows(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> None:
        """Move live rows out of row groups with deleted rows, so that these row groups become free.

        After a first move, rows are moved again only if some of the space of deleted rows has been freed since.
        """
        deleted = self._count_deleted_rows(store, cursor)
        if 0 < deleted < self._deleted_rows_left_by_stream.get(store.name, deleted + 1):
            _rewrite_oldest_rows(store.table_statements, _MAX_ROWS_MOVED_AT_ONCE, cursor)
            self._deleted_rows_left_by_stream[store.name] = self._count_deleted_rows(store, cursor)

    def _is_store_too_large(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        return self._max_store_bytes is not None and self._session.used_disk_bytes(cursor) > self._max_store_bytes

    def _enforce_size_limit(
        self, max_bytes: int, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection
    ) -> int:
        """Delete the oldest events of all streams until the store is within the size limit; pending events stay."""
        if self._session.used_disk_bytes(cursor) > max_bytes * _SIZE_LIMIT_TARGET_SHARE:
            # First run a checkpoint, which moves the events from DuckDB's log into the database file. Before that, it
            # is not known how much space these events take in the file.
            self._session.checkpoint(cursor)
        used_bytes = self._session.used_disk_bytes(cursor)
        if used_bytes <= max_bytes:
            return 0
        live_by_stream, deleted_by_stream = self._count_live_and_deleted_rows(stores, cursor)
        used_bytes = used_bytes * live_by_stream // max(1, live_by_stream + sum(deleted_by_stream.values()))
        before_us = _find_time_quantile(1 - max_bytes * _SIZE_LIMIT_TARGET_SHARE / max(1, used_bytes), stores, cursor)
        if used_bytes <= max_bytes or before_us is None:
            return 0
        return sum(store.delete_before(before_us, cursor) for store in stores)

    def _choose_checkpoint_wait_limits(self, live: int, deleted: int) -> ExclusiveWaitLimits:
        """Return how long to wait for a checkpoint: URGENT_EXCLUSIVE_WAIT if many deleted rows still take space."""
        return (
            URGENT_EXCLUSIVE_WAIT
            if deleted > max(ROW_GROUP_ROWS, live * _MIN_DELETED_SHARE_FOR_URGENCY)
            else RELAXED_EXCLUSIVE_WAIT
        )

    def _count_deleted_rows(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> int:
        return self._count_live_and_deleted_rows([store], cursor)[1][store.name]

    def _count_live_and_deleted_rows(
        self, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection
    ) -> tuple[int, dict[str, int]]:
        """Return the number of live events, and for each stream the number of deleted events that still take space."""
        rows = self._session.row_counts_including_deleted(cursor)
        live = {store.name: store.count_stored_events(cursor) for store in stores}
        return sum(live.values()), {name: rows.get(name, 0) - events for name, events in live.items()}


def _find_time_quantile(share: float, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> int | None:
    """Return a time before which about the share `share` of all events is, or None if there are no events."""
    times = " UNION ALL ".join(store.table_statements.select_times() for store in stores)
    share = min(1.0, max(0.0, share))
    row = fetch_first_row(cursor, f"SELECT approx_quantile(t, {share:.6f}) FROM ({times}) AS times(t)")  # noqa: S608 - our own names
    return None if row is None or row[0] is None else int(row[0]) + 1


def _rewrite_oldest_rows(tables: StreamTableStatements, rows: int, cursor: duckdb.DuckDBPyConnection) -> None:
    """Move the oldest `rows` rows to the end of the table, so that the row groups in which they were become free."""
    with transaction(cursor):
        first, last = fetch_first_row(cursor, tables.select_oldest_rowids(), {"rows": rows}) or (None, None)
        if first is not None:
            cursor.execute(tables.copy_rows_to_end(), {"first": first, "last": last})
            cursor.execute(tables.delete_rows(), {"first": first, "last": last})
