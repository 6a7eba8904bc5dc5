"""Return memory to the operating system when the process is idle or holds much memory.

Two allocators may keep freed memory until they are told to return it: the C library's and DuckDB's jemalloc.

DuckDB's metadata of row groups is in the C library's heap, and DuckDB does not report its size. The size of the heap,
which the C library reports, therefore shows when the metadata has grown too large. The file is then reopened.
"""

import ctypes
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from typing import ClassVar

import duckdb

from cordwood.engines.duckdb.storage.locks import URGENT_EXCLUSIVE_WAIT, Lock, SharedAccessKind
from cordwood.engines.duckdb.storage.session import Session
from cordwood.engines.free_memory import load_library_function, trim_heap

# The engine counts as quiet after this time without shared access to the file. The time is longer than the interval
# between checks, so that no query between two checks is missed.
_MIN_ENGINE_IDLE_SECONDS = 6.0
# If DuckDB's metadata of row groups grows by more than the memory limit divided by this number, the file is reopened,
# which frees the metadata.
_MEMORY_LIMIT_DIVISOR_FOR_METADATA = 12
# The number of heap samples of which the minimum is used, so that memory which queries hold only briefly does not
# count. The number also limits how often the file is reopened, because new samples are collected first.
_HEAP_SAMPLE_COUNT = 6

# The name of the jemalloc control that returns freed memory; in it, the number 4096 stands for all arenas.
_PURGE_ALL_ARENAS_CONTROL = b"arena.4096.purge"


class MemoryReclaimer:
    """Decides when to return freed memory to the system, and when to reopen DuckDB's file.

    The compaction thread calls the methods. `lock` is the lock with the rank COMPACTION. `pending_bytes` returns the
    bytes that pending events take in the heap.
    """

    def __init__(self, session: Session, lock: Lock, pending_bytes: Callable[[], int]) -> None:
        self._session = session
        self._deletion_lock = lock
        self._get_pending_event_bytes = pending_bytes
        self._has_reclaimed_since_activity = False
        self._max_heap_growth_bytes = session.memory_bytes // _MEMORY_LIMIT_DIVISOR_FOR_METADATA
        self._initial_heap_bytes: int | None = None
        self._baseline_heap_bytes: int | None = None
        self._heap_samples: deque[int] = deque(maxlen=_HEAP_SAMPLE_COUNT)

    def record_activity(self) -> None:
        """Record that background work has used memory, so that memory is returned again in the next idle period."""
        self._has_reclaimed_since_activity = False

    def reclaim(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.reopen_when_heap_has_grown(cursor)
        self.reclaim_when_quiet(cursor)

    def reclaim_when_quiet(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Release DuckDB's cached blocks if no query runs; return freed memory once in each idle period."""
        is_quiet = self._session.access_lock.idle_seconds >= _MIN_ENGINE_IDLE_SECONDS
        if is_quiet and self._has_reclaimed_since_activity:
            return
        self._has_reclaimed_since_activity = is_quiet
        self._release_unused_blocks(cursor)
        if is_quiet:
            release_free_memory()

    def reclaim_between_background_steps(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Return the memory that a step of background work has freed, before the next step needs as much."""
        self._release_unused_blocks(cursor)
        release_free_memory()

    def _release_unused_blocks(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if self._session.access_lock.idle_seconds_of(SharedAccessKind.QUERY) >= _MIN_ENGINE_IDLE_SECONDS:
            self._session.release_cached_blocks(cursor)

    def reopen_when_heap_has_grown(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Reopen the file if DuckDB's metadata of row groups has grown too large, or if the file is not open.

        DuckDB does not report the size of the metadata. To reserve memory for it, it is estimated as the minimum heap
        use of the last six samples minus the heap use of the very first sample.
        """
        self._heap_samples.append(self._heap_bytes_without_pending_events())
        if self._initial_heap_bytes is None:
            self._initial_heap_bytes = self._heap_samples[0]
        if not self._session.is_open:
            self._reopen_database(cursor)
        elif len(self._heap_samples) == _HEAP_SAMPLE_COUNT:
            in_use = min(self._heap_samples)
            self._session.reserve_memory_for_metadata(cursor, max(0, in_use - self._initial_heap_bytes))
            if self._has_heap_grown(in_use):
                self._reopen_database(cursor)

    def _has_heap_grown(self, in_use: int) -> bool:
        """Return whether the heap has grown by more than `_max_heap_growth_bytes` since the file was last reopened."""
        if self._baseline_heap_bytes is None:
            self._baseline_heap_bytes = in_use
        return in_use > self._baseline_heap_bytes + self._max_heap_growth_bytes

    def _heap_bytes_without_pending_events(self) -> int:
        """Return the used bytes of the heap without pending events, or 0 if the C library does not report its heap."""
        used_bytes = used_heap_bytes()
        return 0 if used_bytes is None else used_bytes - self._get_pending_event_bytes()

    def _reopen_database(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._heap_samples.clear()
        with (
            self._deletion_lock,
            self._session.access_lock.exclusive_access(URGENT_EXCLUSIVE_WAIT, until_block_ends=True) as is_exclusive,
        ):
            is_reopened = (is_exclusive or not self._session.is_open) and self._session.reopen_database(cursor)
        if is_reopened:
            # Growth is measured from a baseline. After the reopening, a new baseline is determined from the next
            # samples, when queries have run again.
            self._baseline_heap_bytes = None
            release_free_memory()


class _MallInfo(ctypes.Structure):
    """The result of the C function `mallinfo2`; `uordblks` is the number of bytes in use."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def _find_duckdb_library() -> str | None:
    spec = find_spec("_duckdb")
    return spec.origin if spec else None


_jemalloc_control = load_library_function(_find_duckdb_library(), "duckdb_je_mallctl")
_read_mallinfo = load_library_function(None, "mallinfo2", _MallInfo)


def release_free_memory() -> None:
    trim_heap()
    if _jemalloc_control is not None:
        _jemalloc_control(_PURGE_ALL_ARENAS_CONTROL, None, None, None, 0)


def used_heap_bytes() -> int | None:
    """Return the bytes in use of the C library's heap, or None if the library does not report them."""
    info = _read_mallinfo() if _read_mallinfo is not None else None
    return int(info.uordblks) if isinstance(info, _MallInfo) else None
