"""Caches with a limit in bytes, for values whose size depends on the data that callers send.

A limit on the number of entries would not limit memory: 2,000 texts of 250 KB take 500 MB. Therefore, `BoundedCache`
adds up the sizes of all entries, and does not store a value that would take more than a quarter of the limit.
`memoize_short_texts` caches results only for short arguments.
"""

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

# The memory that an entry takes besides its key and value, in bytes: a node in the order of use, and slots in two hash
# tables.
CACHE_ENTRY_OVERHEAD_BYTES: Final = 320
# A value larger than a quarter of the cache's limit is not stored, because too many other values would have to be
# evicted for it.
_MAX_ENTRY_SIZE_DIVISOR: Final = 4

# Python's `re` module caches 512 compiled patterns, whatever their length. If a pattern is longer than this limit, the
# module's cache is purged after the compilation, because long patterns take much memory.
_MAX_CACHED_PATTERN_LENGTH: Final = 1_000


class BoundedCache(Generic[K, V]):
    """A thread-safe LRU cache with a limit in bytes.

    The function `size` returns the bytes of a key and its value. The cache adds `CACHE_ENTRY_OVERHEAD_BYTES` for each
    entry.
    """

    def __init__(self, max_bytes: int, size: Callable[[K, V], int]) -> None:
        self.max_bytes = max_bytes
        self._measure_entry_bytes = size
        self._total_bytes = 0
        self._lock = Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """The bytes of all entries, including the overhead of each entry."""
        return self._total_bytes

    def get(self, key: K) -> V | None:
        """Return the value for a key and mark it as the most recently used; return None if there is no value."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Store a value unless it is too large; if the limit is exceeded, evict the least recently used values."""
        size = self._measure_entry_bytes(key, value) + CACHE_ENTRY_OVERHEAD_BYTES
        with self._lock:
            self._drop_while_locked(key)
            if size <= self.max_bytes // _MAX_ENTRY_SIZE_DIVISOR:
                self._insert(key, value, size)

    def peek(self, key: K) -> V | None:
        """Return the value for a key without marking it as used; return None if there is no value."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def update_size(self, key: K) -> None:
        """Measure the value for a key again after the value has grown; evict other values if the limit is exceeded."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._total_bytes -= entry[1]
                self._insert(key, entry[0], self._measure_entry_bytes(key, entry[0]) + CACHE_ENTRY_OVERHEAD_BYTES)

    def drop(self, key: K) -> None:
        """Remove the value for a key, if there is one."""
        with self._lock:
            self._drop_while_locked(key)

    def _insert(self, key: K, value: V, size: int) -> None:
        self._entries[key] = (value, size)
        self._total_bytes += size
        while self._total_bytes > self.max_bytes:
            self._drop_while_locked(next(iter(self._entries)))

    def _drop_while_locked(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._total_bytes -= entry[1]


def memoize_short_texts(max_length: int, max_entries: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Return a decorator that caches a function's results for texts of up to `max_length` characters.

    For a longer text, the function is called each time. At most `max_entries` results are kept. Use this decorator for
    functions that are called too often to take the lock of a `BoundedCache`.
    """

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        cached = lru_cache(maxsize=max_entries)(function)

        def call(text: str) -> T:
            return cached(text) if len(text) <= max_length else function(text)

        return call

    return decorate


def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern that a caller wrote, without keeping a long pattern in the cache of Python's `re` module.

    Raise re.error for an invalid pattern. A pattern is also invalid if it is nested too deeply or has a repetition
    count that is too large for Python.
    """
    try:
        return re.compile(pattern, flags)
    except (OverflowError, RecursionError) as error:
        raise re.error(str(error)) from error
    finally:
        if len(pattern) > _MAX_CACHED_PATTERN_LENGTH:
            re.purge()


def estimate_memory_bytes(value: object) -> int:
    """Return the approximate memory of a value and of all objects in it, in bytes; a shared object counts once."""
    return _estimate_memory_bytes(value, set())


def _estimate_memory_bytes(value: object, counted_ids: set[int]) -> int:
    if id(value) in counted_ids:
        return 0
    counted_ids.add(id(value))
    return sys.getsizeof(value) + sum(_estimate_memory_bytes(part, counted_ids) for part in _child_objects(value))


def _child_objects(value: Any) -> tuple[object, ...]:
    match value:
        case str() | bytes() | int() | float() | None:
            return ()
        case Mapping():
            return (*value.keys(), *value.values())
        case tuple() | list() | set() | frozenset():
            return tuple(value)
        case msgspec.Struct():
            return tuple(getattr(value, name) for name in value.__struct_fields__)
        case _:
            return ()
