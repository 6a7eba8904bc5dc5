"""Drop events beyond the retention time or the size limit, and free their space beside queries and flushes."""

from collections.abc import Collection

import duckdb

from cordwood.engines.duckdb.storage.file_gate import RELAXED, URGENT, Patience
from cordwood.engines.duckdb.storage.rows import first_row
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.storage.transaction import transaction

# Drop a little more than necessary, so that the next sweeps have nothing to do.
_AIM = 0.95
# Blocks are freed once this share of all events is dropped, because others wait meanwhile.
_WORTH_IT = 0.02
_TOO_MUCH = 0.2
# The most rows of a stream that one sweep moves: ten row groups, some seconds' work.
_MOVED_AT_ONCE = 204_800


class Retention:
    """Applies retention; `most_bytes` bounds the events of all streams in the file, None for no bound."""

    def __init__(self, session: Session, most_bytes: int | None) -> None:
        self._session = session
        self._most_bytes = most_bytes
        # By stream, the number of dropped rows after the last move.
        self._moved: dict[str, int] = {}

    def sweep(self, stores: Collection[StreamStore], now_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Drop what is beyond its retention; return how many events were dropped."""
        gone = sum(store.sweep(now_us, cursor) for store in stores)
        if self._most_bytes is not None:
            gone += self._make_room(self._most_bytes, stores, cursor)
        self._free(stores, cursor)
        if self._is_too_large(cursor):
            # Dropped rows share row groups with live ones: move those, and the space of all is freed.
            for store in stores:
                self._move(store, cursor)
            self._free(stores, cursor)
        return gone

    def _free(self, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> None:
        """Checkpoint to free the blocks of dropped events, once they are enough.

        A checkpoint frees them only when no transaction of any table is under way, and it skips tables that have not
        changed since the last one, so a row of each is rewritten first. What is not freed is tried again by the next sweep.
        """
        live, by_stream = self._counts(stores, cursor)
        dropped = sum(by_stream.values())
        is_worth_it = dropped >= max(ROW_GROUP_ROWS, live * _WORTH_IT) or (dropped > 0 and self._is_too_large(cursor))
        if not is_worth_it:
            return
        for store in stores:
            if by_stream[store.name]:
                _write_oldest_again(store.tables, 1, cursor)
        with self._session.gate.exclusive(self._pressing(live, dropped)) as is_exclusive:
            if is_exclusive:
                self._session.checkpoint(cursor)

    def _move(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> None:
        """Move rows out of half-empty row groups, not again before the space of the last move is free."""
        dropped = self._dropped(store, cursor)
        if 0 < dropped < self._moved.get(store.name, dropped + 1):
            _write_oldest_again(store.tables, _MOVED_AT_ONCE, cursor)
            self._moved[store.name] = self._dropped(store, cursor)

    def _is_too_large(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        return self._most_bytes is not None and self._session.used_bytes(cursor) > self._most_bytes

    def _make_room(self, most_bytes: int, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> int:
        """Drop the oldest events of all streams until the rest fits the size limit; pending events stay."""
        if self._session.used_bytes(cursor) > most_bytes * _AIM:
            # A checkpoint first: how much the log will take in the file is known only afterwards.
            self._session.checkpoint(cursor)
        used_bytes = self._session.used_bytes(cursor)
        if used_bytes <= most_bytes:
            return 0
        live, by_stream = self._counts(stores, cursor)
        used_bytes = used_bytes * live // max(1, live + sum(by_stream.values()))
        before_us = _older_than_share(1 - most_bytes * _AIM / max(1, used_bytes), stores, cursor)
        if used_bytes <= most_bytes or before_us is None:
            return 0
        return sum(store.drop_before(before_us, cursor) for store in stores)

    def _pressing(self, live: int, dropped: int) -> Patience:
        """Return the patience for a checkpoint: urgent when much is dropped and could not be freed so far."""
        return URGENT if dropped > max(ROW_GROUP_ROWS, live * _TOO_MUCH) else RELAXED

    def _dropped(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> int:
        return self._counts([store], cursor)[1][store.name]

    def _counts(self, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> tuple[int, dict[str, int]]:
        """Return the number of live events, and by stream the number of dropped ones that still take space."""
        rows = self._session.taken_rows(cursor)
        live = {store.name: store.stored_events(cursor) for store in stores}
        return sum(live.values()), {name: rows.get(name, 0) - events for name, events in live.items()}


def _older_than_share(share: float, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> int | None:
    """Return the time before which about that share of all events lies; None when there are no events."""
    times = " UNION ALL ".join(store.tables.times() for store in stores)
    share = min(1.0, max(0.0, share))
    row = first_row(cursor, f"SELECT approx_quantile(t, {share:.6f}) FROM ({times}) AS times(t)")  # noqa: S608 - our own names
    return None if row is None or row[0] is None else int(row[0]) + 1


def _write_oldest_again(tables: StreamTables, rows: int, cursor: duckdb.DuckDBPyConnection) -> None:
    """Move the oldest rows to the end of the table, so that the row groups with dropped rows become free."""
    with transaction(cursor):
        first, last = first_row(cursor, tables.oldest(), {"rows": rows}) or (None, None)
        if first is not None:
            cursor.execute(tables.copy_rows(), {"first": first, "last": last})
            cursor.execute(tables.delete_rows(), {"first": first, "last": last})
