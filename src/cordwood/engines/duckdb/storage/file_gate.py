"""A readers-writer lock of the database file: queries and flushes share it, checkpoints and reopening exclude them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import msgspec

from cordwood.engines.duckdb.storage.lock_order import Rank, holding


class FileAccess(Enum):
    """Kinds of shared access: a query lasts until its rows are fetched, a flush about a second."""

    QUERY = "query"
    FLUSH = "flush"


class Patience(msgspec.Struct, frozen=True):
    """How long exclusive access waits: for an idle moment, then with flushes blocked, then with queries as well."""

    patience_seconds: float
    flushes_seconds: float
    queries_seconds: float


RELAXED = Patience(10.0, 2.0, 0.25)
URGENT = Patience(1.0, 10.0, 2.0)
# A checkpoint excludes other transactions only at its beginning; they may continue after this time.
_BEGUN_SECONDS = 0.2


class FileGate:
    """A readers-writer lock whose writer blocks readers for short moments only."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = dict.fromkeys(FileAccess, 0)
        self._held: frozenset[FileAccess] = frozenset()
        self._last_passed = dict.fromkeys(FileAccess, time.monotonic())
        # The total flushing time, up to the beginning of the flushes under way.
        self._flushing_seconds = 0.0
        self._flushing_since = 0.0

    @property
    def flushing_seconds(self) -> float:
        """The total time during which at least one flush was under way."""
        with self._changed:
            under_way = time.monotonic() - self._flushing_since if self._under_way[FileAccess.FLUSH] else 0.0
            return self._flushing_seconds + under_way

    @property
    def idle_seconds(self) -> float:
        """The time since the last shared access of any kind."""
        return min(map(self.idle_seconds_of, FileAccess))

    def idle_seconds_of(self, kind: FileAccess) -> float:
        """Return the time since the last shared access of this kind."""
        with self._changed:
            return 0.0 if self._under_way[kind] else time.monotonic() - self._last_passed[kind]

    @contextmanager
    def shared(self, kind: FileAccess) -> Iterator[None]:
        """Hold shared access for a transaction on the file."""
        with self._changed:
            self._changed.wait_for(lambda: kind not in self._held)
            self._count(kind, 1)
        try:
            with holding(Rank.FILE_GATE):
                yield
        finally:
            with self._changed:
                self._count(kind, -1)
                self._last_passed[kind] = time.monotonic()
                self._changed.notify_all()

    def _count(self, kind: FileAccess, change: int) -> None:
        was, now = self._under_way[kind], time.monotonic()
        self._under_way[kind] = was + change
        if kind is FileAccess.FLUSH and not was:
            self._flushing_since = now
        elif kind is FileAccess.FLUSH and not self._under_way[kind]:
            self._flushing_seconds += now - self._flushing_since

    @contextmanager
    def exclusive(self, haste: Patience = RELAXED, *, throughout: bool = False) -> Iterator[bool]:
        """Block new access; yield whether no other access is under way.

        Others continue a moment after the block has begun, or with `throughout` when it has ended.
        """
        with self._changed:
            is_exclusive = self._changed.wait_for(self._is_free, haste.patience_seconds) or self._cleared(haste)
            self._held = frozenset(FileAccess)
        going_on = threading.Timer(_BEGUN_SECONDS, self._let_pass)
        if not throughout:
            going_on.start()
        try:
            with holding(Rank.FILE_GATE):
                yield is_exclusive
        finally:
            going_on.cancel()
            self._let_pass()

    def _let_pass(self) -> None:
        with self._changed:
            self._held = frozenset()
            self._changed.notify_all()

    def _cleared(self, haste: Patience) -> bool:
        """Block flushes until those under way have ended, then queries for a moment."""
        self._held = frozenset({FileAccess.FLUSH})
        self._changed.wait_for(lambda: not self._under_way[FileAccess.FLUSH], haste.flushes_seconds)
        self._held = frozenset(FileAccess)
        return self._changed.wait_for(self._is_free, haste.queries_seconds)

    def _is_free(self) -> bool:
        return not any(self._under_way.values())
