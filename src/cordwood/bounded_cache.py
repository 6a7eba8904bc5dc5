"""Caches with a limit in bytes, for values whose size callers choose.

A limit on the number of entries does not limit memory: 2,000 texts of 250 KB take 500 MB. Here the sizes of all entries
are added up, a value that would take a large part of the limit is not stored, and functions are memoized for short
arguments only.
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

# The overhead of an entry in bytes, besides its key and value: its node in the order of use, and two hash table slots.
CACHE_ENTRY_OVERHEAD_BYTES: Final = 320
# A value larger than a quarter of the limit is not stored, because it would evict too many others.
_ENTRY_DIVISOR: Final = 4

# Python's `re` module caches the last 512 patterns of any length. Its cache is purged after a pattern longer than this.
_MAX_RE_CACHED_LENGTH: Final = 1_000


class BoundedCache(Generic[K, V]):
    """An LRU cache with a limit in bytes. Thread-safe.

    `size` returns the bytes of a key and its value, without the overhead `CACHE_ENTRY_OVERHEAD_BYTES`.
    """

    def __init__(self, max_bytes: int, size: Callable[[K, V], int]) -> None:
        self.max_bytes = max_bytes
        self._size = size
        self._total_bytes = 0
        self._lock = Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """The bytes of all entries, with their overhead."""
        return self._total_bytes

    def get(self, key: K) -> V | None:
        """Return the value and mark it as the most recently used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Store a value unless it is too large, and evict the least recently used values."""
        size = self._size(key, value) + CACHE_ENTRY_OVERHEAD_BYTES
        with self._lock:
            self._drop(key)
            if size <= self.max_bytes // _ENTRY_DIVISOR:
                self._insert(key, value, size)

    def peek(self, key: K) -> V | None:
        """Return the value without marking it as used."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def update_size(self, key: K) -> None:
        """Measure a value again after it has grown, and evict others if necessary. Does nothing if it is not stored."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._total_bytes -= entry[1]
                self._insert(key, entry[0], self._size(key, entry[0]) + CACHE_ENTRY_OVERHEAD_BYTES)

    def drop(self, key: K) -> None:
        """Remove the value, if it exists."""
        with self._lock:
            self._drop(key)

    def _insert(self, key: K, value: V, size: int) -> None:
        self._entries[key] = (value, size)
        self._total_bytes += size
        while self._total_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._total_bytes -= entry[1]


def memoize_short_texts(max_length: int, max_entries: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Memoize a function of a text for texts of up to `max_length` characters; longer texts are computed each time.

    For functions that are called too often to take a lock. At most `max_entries` results are held.
    """

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        cached = lru_cache(maxsize=max_entries)(function)

        def call(text: str) -> T:
            return cached(text) if len(text) <= max_length else function(text)

        return call

    return decorate


def compiled_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern that a caller wrote, without leaving a long one in the cache of Python's `re` module.

    Raises re.error, also for a pattern that is nested too deeply or has a repetition count too large for Python.
    """
    try:
        return re.compile(pattern, flags)
    except (OverflowError, RecursionError) as error:
        raise re.error(str(error)) from error
    finally:
        if len(pattern) > _MAX_RE_CACHED_LENGTH:
            re.purge()


def estimate_memory_bytes(value: object) -> int:
    """Return the approximate bytes of a value of texts, numbers, containers and structs; shared objects count once."""
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
