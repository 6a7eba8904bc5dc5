"""Drops what is too old or too much, and has its space used again, beside queries and flushes."""

from collections.abc import Collection

import duckdb

from cordwood.engines.duckdb.storage.file_gate import RELAXED, URGENT, Patience
from cordwood.engines.duckdb.storage.rows import first_row
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.storage.transaction import transaction

# Room for the next minutes too: who makes room for each event makes it for ever.
_AIM = 0.95
# This share of all events must be dropped before their blocks are freed: others wait while they are.
_WORTH_IT = 0.02
_TOO_MUCH = 0.2
# So many events of a stream are written again by one sweep: ten row groups, some seconds' work.
_MOVED_AT_ONCE = 204_800


class Retention:
    """`most_bytes` is what the events of all streams may take in the file; None without a bound."""

    def __init__(self, session: Session, most_bytes: int | None) -> None:
        self._session = session
        self._most_bytes = most_bytes
        # By stream, how many events took space in vain when some had been moved.
        self._moved: dict[str, int] = {}

    def sweep(self, stores: Collection[StreamStore], now_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """How many events went."""
        gone = sum(store.sweep(now_us, cursor) for store in stores)
        if self._most_bytes is not None:
            gone += self._make_room(self._most_bytes, stores, cursor)
        self._free(stores, cursor)
        if self._is_too_large(cursor):
            # Dropped events lie beside some that stay: once those are elsewhere, all of it is freed.
            for store in stores:
                self._move(store, cursor)
            self._free(stores, cursor)
        return gone

    def _free(self, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> None:
        """Have the blocks of dropped events used again, once they are enough to be worth the moment.

        A checkpoint frees them only when it finds no transaction under way, of whatever table; and it passes over tables
        that are as it wrote them last, so they are changed a little. What is not freed now is tried again by the next sweep.
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
        """Not again before what was moved is free: with somebody always under way, each sweep would leave one more copy."""
        dropped = self._dropped(store, cursor)
        if 0 < dropped < self._moved.get(store.name, dropped + 1):
            _write_oldest_again(store.tables, _MOVED_AT_ONCE, cursor)
            self._moved[store.name] = self._dropped(store, cursor)

    def _is_too_large(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        return self._most_bytes is not None and self._session.used_bytes(cursor) > self._most_bytes

    def _make_room(self, most_bytes: int, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> int:
        """The oldest events go, whatever their stream, until what is left fits. What waits to be flushed stays."""
        if self._session.used_bytes(cursor) > most_bytes * _AIM:
            # What the log holds is known exactly once it is in the file.
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
        """So much is dropped that no moment came in which it could be freed: others wait longer, this once."""
        return URGENT if dropped > max(ROW_GROUP_ROWS, live * _TOO_MUCH) else RELAXED

    def _dropped(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> int:
        return self._counts([store], cursor)[1][store.name]

    def _counts(self, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> tuple[int, dict[str, int]]:
        """Events that are there, and by stream those that are dropped and take their space still."""
        rows = self._session.taken_rows(cursor)
        live = {store.name: store.stored_events(cursor) for store in stores}
        return sum(live.values()), {name: rows.get(name, 0) - events for name, events in live.items()}


def _older_than_share(share: float, stores: Collection[StreamStore], cursor: duckdb.DuckDBPyConnection) -> int | None:
    """The time before which about that share of all events lies; None when there is no event."""
    times = " UNION ALL ".join(store.tables.times() for store in stores)
    share = min(1.0, max(0.0, share))
    row = first_row(cursor, f"SELECT approx_quantile(t, {share:.6f}) FROM ({times}) AS times(t)")  # noqa: S608 - our own names
    return None if row is None or row[0] is None else int(row[0]) + 1


def _write_oldest_again(tables: StreamTables, rows: int, cursor: duckdb.DuckDBPyConnection) -> None:
    """By that the row groups in which some are dropped are empty, and their blocks are free after a checkpoint."""
    with transaction(cursor):
        first, last = first_row(cursor, tables.oldest(), {"rows": rows}) or (None, None)
        if first is not None:
            cursor.execute(tables.copy_rows(), {"first": first, "last": last})
            cursor.execute(tables.delete_rows(), {"first": first, "last": last})
