"""A cache of the newest events of those streams for which they are requested, as texts in memory.

A stream's table is filled when its newest events are first requested, and dropped when they no longer are. Queries read
the file until the table is filled. Nothing is cached during a load.
"""

import threading
import time
from contextlib import closing, suppress
from queue import Empty, SimpleQueue

import duckdb

from cordwood.engines.duckdb.storage.lock_order import Rank, ordered_lock
from cordwood.engines.duckdb.storage.rows import first_row
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.transaction import roll_back
from cordwood.errors import Fault
from cordwood.observe.observer import Tell

# The most recently requested streams are cached, up to this number.
MOST_STREAMS = 2
_UNWANTED_SECONDS = 600.0
_LOOK_SECONDS = 60.0
# Earlier than any timestamp of BigQuery.
_EARLIEST_US = -62_135_596_800_000_001
# After a fill, wait this many times its duration: filling takes a twentieth of a processor at most.
_SELDOM = 20


class RecentCache:
    """The thread that fills and drops the recent tables; `most_bytes` roughly bounds the events of one stream."""

    def __init__(self, session: Session, most_bytes: int, tell: Tell) -> None:
        self._session = session
        self.most_bytes = most_bytes
        self._tell = tell
        self._stopping = False
        self._wanted: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._kept: dict[str, StreamStore] = {}
        self._queue: SimpleQueue[StreamStore | None] = SimpleQueue()
        self._filling = ordered_lock(Rank.RECENT_FILL)
        self._thread = threading.Thread(target=self._work, name="keep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping = True
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def wanted(self, store: StreamStore) -> None:
        """Record that a query requests the newest events of the stream; start a fill of its table if necessary."""
        now = time.monotonic()
        self._wanted[store.name] = now
        if not store.recent.is_kept and now >= self._not_before.get(store.name, 0.0):
            # A failed fill is retried after that time.
            self._not_before[store.name] = now + _LOOK_SECONDS
            self._queue.put(store)

    def fill(self, store: StreamStore) -> None:
        began = time.monotonic()
        with self._filling, self._session.reading() as cursor:
            if not store.recent.is_kept and self._fill(store, cursor):
                self._kept[store.name] = store
        ended = time.monotonic()
        self._not_before[store.name] = ended + (ended - began) * _SELDOM

    def _fill(self, store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Fill the table; roll back and return False if events were flushed or dropped meanwhile."""
        tables = store.tables
        most = max(1, min(ROW_GROUP_ROWS, int(self.most_bytes / max(1.0, store.text_bytes(cursor)))))
        with store.showing, store.turn:
            seen = store.flushed_to, store.drops
            cursor.execute("BEGIN")
            cursor.execute(tables.pin_table()).fetchall()
        try:
            row = first_row(cursor, tables.time_of_newest(), {"rank": most}) or (_EARLIEST_US,)
            ((rows,),) = cursor.execute(tables.create_recent(), {"since": row[0]}).fetchall()
            with store.showing, store.turn:
                is_whole = seen == (store.flushed_to, store.drops)
                cursor.execute("COMMIT" if is_whole else "ROLLBACK")
                if is_whole:
                    store.recent.begin(int(row[0]), rows, most, store.flushed_to)
        except BaseException:
            roll_back(cursor)
            raise
        return is_whole

    def forget_unwanted(self) -> None:
        latest = sorted(self._kept, key=lambda name: self._wanted.get(name, 0.0), reverse=True)
        now = time.monotonic()
        for place, name in enumerate(latest):
            if place >= MOST_STREAMS or now - self._wanted.get(name, 0.0) > _UNWANTED_SECONDS:
                self._forget(self._kept.pop(name))

    def _forget(self, store: StreamStore) -> None:
        with self._filling, store.showing, closing(self._session.cursor()) as cursor:
            store.recent.forget(cursor)

    def _work(self) -> None:
        while not self._stopping:
            store = None
            with suppress(Empty):
                store = self._queue.get(timeout=_LOOK_SECONDS)
            try:
                if store is not None:
                    self.fill(store)
                self.forget_unwanted()
            except (duckdb.Error, Fault) as problem:
                if not self._stopping:
                    self._tell(
                        f"The recent cache could not be filled, and queries read the file: {problem}".splitlines()[0]
                    )
