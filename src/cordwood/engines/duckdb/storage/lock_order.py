"""The order in which a thread takes the locks of the storage, and a check of this order that tests enable."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import TracebackType
from typing import Any, Protocol


class LockRank(IntEnum):
    """The locks in the order in which they are taken. Locks of one rank belong to different streams."""

    # Guards everything that removes rows from the streams' tables: compaction, retention, reopening the file.
    COMPACTION = 0
    # Guards filling and dropping tables of the recent cache.
    RECENT_FILL = 1
    # Guards appending to the write-ahead log and to the streams' pending events.
    APPEND = 2
    # Shared or exclusive access to the database file.
    FILE_GATE = 3
    # Guards checkpoints, reopening and backups, during which the file must not be replaced.
    FILE = 4
    # Guards filling a stream's memtable and recent table.
    MEMTABLE_FILL = 5
    # Guards filling a stream's table of arrived events.
    ARRIVED_FILL = 6
    # Guards a stream's pending events and the commit of a flush.
    STREAM = 7
    # Guards the segments of the write-ahead log.
    LOG = 8


# The interval at which a query that waits looks whether it must stop.
STOP_CHECK_SECONDS = 0.05


class Lock(Protocol):
    """The methods of a lock that the storage uses."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as of any lock
        """Take the lock; return whether it was free in time."""

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


@contextmanager
def acquired(lock: Lock, stop_early: Callable[[], None]) -> Iterator[None]:
    """Hold the lock; while it is not free, call `stop_early` regularly, which raises if the query must stop."""
    while not lock.acquire(timeout=STOP_CHECK_SECONDS):
        stop_early()
    try:
        yield
    finally:
        lock.release()


class LockOrderError(RuntimeError):
    """Raised by a checked lock when the thread already holds a lock of a later rank."""


class _LockChecks:
    """Whether locks are checked, and the ranks that each thread holds."""

    def __init__(self) -> None:
        self.is_on = False
        self._local = threading.local()

    def held_ranks(self) -> list[LockRank]:
        ranks: list[LockRank] = self._local.__dict__.setdefault("ranks", [])
        return ranks

    def refuse_wrong_order(self, rank: LockRank) -> None:
        later = [held_rank for held_rank in self.held_ranks() if held_rank > rank]
        if later:
            raise LockOrderError(f"{rank.name} was taken while {max(later).name} was held.")


_checks = _LockChecks()


@contextmanager
def checked_order() -> Iterator[None]:
    """Check the order of all locks that are created during the block."""
    was_on, _checks.is_on = _checks.is_on, True
    try:
        yield
    finally:
        _checks.is_on = was_on


@contextmanager
def holding_rank(rank: LockRank) -> Iterator[None]:
    """Record that the thread holds something that is not a lock, such as access to the file."""
    if not _checks.is_on:
        yield
        return
    _checks.refuse_wrong_order(rank)
    held_ranks = _checks.held_ranks()
    held_ranks.append(rank)
    try:
        yield
    finally:
        held_ranks.remove(rank)


def ordered_lock(rank: LockRank) -> Lock:
    """Return a lock that is checked if checks are enabled."""
    return _CheckedLock(rank, threading.Lock()) if _checks.is_on else threading.Lock()


def ordered_condition(rank: LockRank) -> threading.Condition:
    """Return a condition over a reentrant lock, which is checked if checks are enabled."""
    return threading.Condition(_CheckedLock(rank, threading.RLock()) if _checks.is_on else threading.RLock())  # type: ignore[arg-type]


class _CheckedLock:
    """A lock that raises LockOrderError if it is taken in the wrong order."""

    def __init__(self, rank: LockRank, lock: Any) -> None:
        self._rank = rank
        self._lock = lock

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as of any lock
        _checks.refuse_wrong_order(self._rank)
        is_acquired: bool = self._lock.acquire(blocking, timeout)
        if is_acquired:
            _checks.held_ranks().append(self._rank)
        return is_acquired

    def release(self) -> None:
        self._lock.release()
        _checks.held_ranks().remove(self._rank)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # A condition calls these methods while it waits.

    def _is_owned(self) -> bool:
        is_owned: bool = self._lock._is_owned()  # noqa: SLF001 - what conditions ask of a lock
        return is_owned

    def _release_save(self) -> tuple[object, int]:
        held_ranks = _checks.held_ranks()
        count = held_ranks.count(self._rank)
        while self._rank in held_ranks:
            held_ranks.remove(self._rank)
        return self._lock._release_save(), count  # noqa: SLF001

    def _acquire_restore(self, saved: tuple[object, int]) -> None:
        state, count = saved
        self._lock._acquire_restore(state)  # noqa: SLF001
        _checks.held_ranks().extend([self._rank] * count)
