"""The locks of the storage: the order in which threads take them, and the readers-writer lock of the database file.

Tests check that threads keep to the order. Queries and flushes have shared access to the database file. Checkpoints and
reopening the file need exclusive access.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, IntEnum
from types import TracebackType
from typing import Any, Protocol

import msgspec


class LockRank(IntEnum):
    """The ranks of locks: a thread takes locks in increasing order of rank.

    Two locks with the same rank belong to different streams.
    """

    # Guards compaction, retention, and reopening the file to free memory. They must not run at the same time.
    COMPACTION = 0
    # Guards filling and dropping tables of the recent cache.
    RECENT_CACHE_FILL = 1
    # Guards appending to the write-ahead log and to the streams' pending events.
    APPEND = 2
    # The rank of shared and of exclusive access to the database file.
    DATABASE_ACCESS = 3
    # Guards checkpoints, reopening and backups, during which the file must not be replaced.
    CHECKPOINT = 4
    # Guards filling a stream's memtable and recent table.
    MEMTABLE_FILL = 5
    # Guards filling a stream's table of arrived events.
    ARRIVED_TABLE_FILL = 6
    # Guards a stream's pending events and the commit of a flush.
    STREAM_STATE = 7
    # Guards the segments of the write-ahead log.
    WRITE_AHEAD_LOG = 8


# The interval at which a waiting query checks whether it must stop.
STOP_CHECK_INTERVAL_SECONDS = 0.05


class Lock(Protocol):
    """The interface of a lock, with the methods that the storage uses."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as of any lock
        """Take the lock; return whether it could be taken within the timeout."""

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


@contextmanager
def hold_lock(lock: Lock, stop_early: Callable[[], None]) -> Iterator[None]:
    """Hold the lock during the `with` block.

    While the thread waits for the lock, `stop_early` is called regularly; it raises an error if the query must stop.
    """
    while not lock.acquire(timeout=STOP_CHECK_INTERVAL_SECONDS):
        stop_early()
    try:
        yield
    finally:
        lock.release()


class LockOrderError(RuntimeError):
    """Raised if a thread takes a checked lock while it holds a lock with a higher rank."""


class _LockOrderChecker:
    """Records the ranks that each thread holds, and checks their order; `is_on` tells whether new locks are checked."""

    def __init__(self) -> None:
        self.is_on = False
        self._thread_local_ranks = threading.local()

    def held_ranks(self) -> list[LockRank]:
        ranks: list[LockRank] = self._thread_local_ranks.__dict__.setdefault("ranks", [])
        return ranks

    def require_order(self, rank: LockRank) -> None:
        later = [held_rank for held_rank in self.held_ranks() if held_rank > rank]
        if later:
            raise LockOrderError(f"{rank.name} was taken while {max(later).name} was held.")


_order_checker = _LockOrderChecker()


@contextmanager
def enable_lock_order_checks() -> Iterator[None]:
    """Make all locks that are created during the `with` block check the order in which they are taken."""
    was_on, _order_checker.is_on = _order_checker.is_on, True
    try:
        yield
    finally:
        _order_checker.is_on = was_on


@contextmanager
def hold_ranked_resource(rank: LockRank) -> Iterator[None]:
    """Record during the `with` block that the thread holds a resource with this rank that is not an ordinary lock.

    An example is access to the database file.
    """
    if not _order_checker.is_on:
        yield
        return
    _order_checker.require_order(rank)
    held_ranks = _order_checker.held_ranks()
    held_ranks.append(rank)
    try:
        yield
    finally:
        held_ranks.remove(rank)


def ordered_lock(rank: LockRank) -> Lock:
    """Return a new lock, whose order is checked if checks are enabled."""
    return _OrderCheckedLock(rank, threading.Lock()) if _order_checker.is_on else threading.Lock()


def ordered_condition(rank: LockRank) -> threading.Condition:
    """Return a new condition with a reentrant lock, whose order is checked if checks are enabled."""
    lock = _OrderCheckedLock(rank, threading.RLock()) if _order_checker.is_on else threading.RLock()
    return threading.Condition(lock)  # type: ignore[arg-type]


class _OrderCheckedLock:
    """A lock that raises LockOrderError if it is taken in the wrong order."""

    def __init__(self, rank: LockRank, lock: Any) -> None:
        self._rank = rank
        self._lock = lock

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as of any lock
        _order_checker.require_order(self._rank)
        is_acquired: bool = self._lock.acquire(blocking, timeout)
        if is_acquired:
            _order_checker.held_ranks().append(self._rank)
        return is_acquired

    def release(self) -> None:
        self._lock.release()
        _order_checker.held_ranks().remove(self._rank)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # The following methods are called by `threading.Condition` while it waits.

    def _is_owned(self) -> bool:
        is_owned: bool = self._lock._is_owned()  # noqa: SLF001 - what conditions ask of a lock
        return is_owned

    def _release_save(self) -> tuple[object, int]:
        held_ranks = _order_checker.held_ranks()
        count = held_ranks.count(self._rank)
        while self._rank in held_ranks:
            held_ranks.remove(self._rank)
        return self._lock._release_save(), count  # noqa: SLF001

    def _acquire_restore(self, saved: tuple[object, int]) -> None:
        state, count = saved
        self._lock._acquire_restore(state)  # noqa: SLF001
        _order_checker.held_ranks().extend([self._rank] * count)


class SharedAccessKind(Enum):
    """The kinds of shared access: a query holds access until its rows are fetched, and a flush for about a second."""

    QUERY = "query"
    FLUSH = "flush"


class ExclusiveWaitLimits(msgspec.Struct, frozen=True):
    """How long a thread waits for exclusive access, in three phases.

    First, it waits for a moment without shared access, and blocks nothing. Then it blocks new flushes while it waits,
    and finally also new queries.
    """

    nonblocking_wait_seconds: float
    flush_blocking_wait_seconds: float
    query_blocking_wait_seconds: float


RELAXED_EXCLUSIVE_WAIT = ExclusiveWaitLimits(10.0, 2.0, 0.25)
URGENT_EXCLUSIVE_WAIT = ExclusiveWaitLimits(1.0, 10.0, 2.0)
# A checkpoint excludes other transactions only at its beginning. So shared access is allowed again after this time.
_SHARED_ACCESS_BLOCK_SECONDS = 0.2


class DatabaseAccessLock:
    """A readers-writer lock of the database file, whose writer blocks readers only for short moments."""

    def __init__(self) -> None:
        self._access_changed = threading.Condition()
        self._active_access_counts = dict.fromkeys(SharedAccessKind, 0)
        self._blocked_kinds: frozenset[SharedAccessKind] = frozenset()
        self._last_released_at = dict.fromkeys(SharedAccessKind, time.monotonic())
        # The total time of flushes, without the time of the flushes that are running.
        self._ended_flush_seconds = 0.0
        self._flushing_since = 0.0

    @property
    def flushing_seconds(self) -> float:
        """The total time during which at least one flush was running."""
        with self._access_changed:
            current_seconds = (
                time.monotonic() - self._flushing_since if self._active_access_counts[SharedAccessKind.FLUSH] else 0.0
            )
            return self._ended_flush_seconds + current_seconds

    @property
    def idle_seconds(self) -> float:
        """The time since any shared access was last held; 0 while it is held."""
        return min(map(self.idle_seconds_of, SharedAccessKind))

    def idle_seconds_of(self, kind: SharedAccessKind) -> float:
        """Return the time since shared access of the given kind was last held; 0 while it is held."""
        with self._access_changed:
            return 0.0 if self._active_access_counts[kind] else time.monotonic() - self._last_released_at[kind]

    @contextmanager
    def shared_access(self, kind: SharedAccessKind, stop_early: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold shared access for a transaction on the file.

        While shared access is blocked, `stop_early` is called regularly; it raises an error if a query must stop.
        """
        with self._access_changed:
            while not self._access_changed.wait_for(
                lambda: kind not in self._blocked_kinds, STOP_CHECK_INTERVAL_SECONDS
            ):
                stop_early()
            self._change_access_count(kind, 1)
        try:
            with hold_ranked_resource(LockRank.DATABASE_ACCESS):
                yield
        finally:
            with self._access_changed:
                self._change_access_count(kind, -1)
                self._last_released_at[kind] = time.monotonic()
                self._access_changed.notify_all()

    def _change_access_count(self, kind: SharedAccessKind, change: int) -> None:
        previous_count, now = self._active_access_counts[kind], time.monotonic()
        self._active_access_counts[kind] = previous_count + change
        if kind is SharedAccessKind.FLUSH and not previous_count:
            self._flushing_since = now
        elif kind is SharedAccessKind.FLUSH and not self._active_access_counts[kind]:
            self._ended_flush_seconds += now - self._flushing_since

    @contextmanager
    def exclusive_access(
        self, max_wait: ExclusiveWaitLimits = RELAXED_EXCLUSIVE_WAIT, *, until_block_ends: bool = False
    ) -> Iterator[bool]:
        """Block new shared access; yield whether all shared access has ended, so that access is exclusive.

        New shared access is allowed again a moment after the `with` block has begun or, with `until_block_ends`, only
        after the block has ended.
        """
        with self._access_changed:
            is_exclusive = self._access_changed.wait_for(
                self._has_no_shared_access, max_wait.nonblocking_wait_seconds
            ) or self._wait_while_blocking_shared_access(max_wait)
            self._blocked_kinds = frozenset(SharedAccessKind)
        unblock_timer = threading.Timer(_SHARED_ACCESS_BLOCK_SECONDS, self._unblock_shared_access)
        if not until_block_ends:
            unblock_timer.start()
        try:
            with hold_ranked_resource(LockRank.DATABASE_ACCESS):
                yield is_exclusive
        finally:
            unblock_timer.cancel()
            self._unblock_shared_access()

    def _unblock_shared_access(self) -> None:
        with self._access_changed:
            self._blocked_kinds = frozenset()
            self._access_changed.notify_all()

    def _wait_while_blocking_shared_access(self, max_wait: ExclusiveWaitLimits) -> bool:
        """Block new flushes until the running flushes have ended, then also block new queries for a moment.

        Return whether no shared access is held any more.
        """
        self._blocked_kinds = frozenset({SharedAccessKind.FLUSH})
        self._access_changed.wait_for(
            lambda: not self._active_access_counts[SharedAccessKind.FLUSH], max_wait.flush_blocking_wait_seconds
        )
        self._blocked_kinds = frozenset(SharedAccessKind)
        return self._access_changed.wait_for(self._has_no_shared_access, max_wait.query_blocking_wait_seconds)

    def _has_no_shared_access(self) -> bool:
        return not any(self._active_access_counts.values())
