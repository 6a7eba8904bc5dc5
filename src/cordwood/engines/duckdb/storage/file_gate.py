"""A readers-writer lock of the database file: queries and flushes share it, checkpoints and reopening exclude them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

import msgspec

from cordwood.engines.duckdb.storage.lock_order import STOP_CHECK_SECONDS, LockRank, holding_rank


class FileAccess(Enum):
    """Kinds of shared access: a query lasts until its rows are fetched, a flush about a second."""

    QUERY = "query"
    FLUSH = "flush"


class ExclusiveWait(msgspec.Struct, frozen=True):
    """How long exclusive access waits: for an idle moment, then with flushes blocked, then with queries too."""

    idle_wait_seconds: float
    flush_wait_seconds: float
    query_wait_seconds: float


RELAXED_WAIT = ExclusiveWait(10.0, 2.0, 0.25)
URGENT_WAIT = ExclusiveWait(1.0, 10.0, 2.0)
# A checkpoint excludes other transactions only at its beginning; they may continue after this time.
_UNBLOCK_AFTER_SECONDS = 0.2


class FileGate:
    """A readers-writer lock whose writer blocks readers for short moments only."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._active_counts = dict.fromkeys(FileAccess, 0)
        self._blocked: frozenset[FileAccess] = frozenset()
        self._last_released_at = dict.fromkeys(FileAccess, time.monotonic())
        # The total flushing time, without the time of running flushes.
        self._flushing_seconds = 0.0
        self._flushing_since = 0.0

    @property
    def flushing_seconds(self) -> float:
        """The total time during which at least one flush was running."""
        with self._changed:
            current_seconds = time.monotonic() - self._flushing_since if self._active_counts[FileAccess.FLUSH] else 0.0
            return self._flushing_seconds + current_seconds

    @property
    def idle_seconds(self) -> float:
        """The time since the last shared access of any kind."""
        return min(map(self.idle_seconds_of, FileAccess))

    def idle_seconds_of(self, kind: FileAccess) -> float:
        """Return the time since the last shared access of this kind."""
        with self._changed:
            return 0.0 if self._active_counts[kind] else time.monotonic() - self._last_released_at[kind]

    @contextmanager
    def shared(self, kind: FileAccess, stop_early: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold shared access for a transaction on the file; `stop_early` raises if a query must stop waiting."""
        with self._changed:
            while not self._changed.wait_for(lambda: kind not in self._blocked, STOP_CHECK_SECONDS):
                stop_early()
            self._change_count(kind, 1)
        try:
            with holding_rank(LockRank.FILE_GATE):
                yield
        finally:
            with self._changed:
                self._change_count(kind, -1)
                self._last_released_at[kind] = time.monotonic()
                self._changed.notify_all()

    def _change_count(self, kind: FileAccess, change: int) -> None:
        previous_count, now = self._active_counts[kind], time.monotonic()
        self._active_counts[kind] = previous_count + change
        if kind is FileAccess.FLUSH and not previous_count:
            self._flushing_since = now
        elif kind is FileAccess.FLUSH and not self._active_counts[kind]:
            self._flushing_seconds += now - self._flushing_since

    @contextmanager
    def exclusive(self, max_wait: ExclusiveWait = RELAXED_WAIT, *, until_block_ends: bool = False) -> Iterator[bool]:
        """Block new access; yield whether no other access is held.

        Blocked threads continue a moment after the block has begun, or with `until_block_ends` when it has ended.
        """
        with self._changed:
            is_exclusive = self._changed.wait_for(self._is_free, max_wait.idle_wait_seconds) or self._wait_until_free(
                max_wait
            )
            self._blocked = frozenset(FileAccess)
        unblock_timer = threading.Timer(_UNBLOCK_AFTER_SECONDS, self._unblock)
        if not until_block_ends:
            unblock_timer.start()
        try:
            with holding_rank(LockRank.FILE_GATE):
                yield is_exclusive
        finally:
            unblock_timer.cancel()
            self._unblock()

    def _unblock(self) -> None:
        with self._changed:
            self._blocked = frozenset()
            self._changed.notify_all()

    def _wait_until_free(self, max_wait: ExclusiveWait) -> bool:
        """Block flushes until the running ones have ended, then block queries for a moment."""
        self._blocked = frozenset({FileAccess.FLUSH})
        self._changed.wait_for(lambda: not self._active_counts[FileAccess.FLUSH], max_wait.flush_wait_seconds)
        self._blocked = frozenset(FileAccess)
        return self._changed.wait_for(self._is_free, max_wait.query_wait_seconds)

    def _is_free(self) -> bool:
        return not any(self._active_counts.values())
