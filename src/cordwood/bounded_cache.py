"""Caches that are bounded in bytes, because callers choose what is in them.

A cache that counts its entries holds as much as its largest entries allow: 2,000 texts of 250 KB are 500 MB. Here each
entry is counted with what it holds, an entry that is a large part of the bound is not kept, and a function is
remembered for short texts alone.
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

# What an entry costs beside its key and its value: its place in the order and in two tables.
ENTRY_BYTES: Final = 320
# An entry that is larger than this part of the bound is not worth those that would have to go for it.
_LARGEST_PART: Final = 4

# Python's `re` keeps the last 512 patterns, with their texts.
_SHORT_PATTERN: Final = 1_000


class BoundedCache(Generic[K, V]):
    """Keep the most recently used values, up to a number of bytes. Safe from several threads.

    `size` says how many bytes an entry takes, beside `ENTRY_BYTES`.
    """

    def __init__(self, most_bytes: int, size: Callable[[K, V], int]) -> None:
        self.most_bytes = most_bytes
        self._size = size
        self._held = 0
        self._lock = Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """What all entries take together."""
        return self._held

    def get(self, key: K) -> V | None:
        """Return what is kept under the key, which is now the most recently used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V) -> None:
        """Keep the value in place of what had the key, unless it is too large; the least recently used go for it."""
        size = self._size(key, value) + ENTRY_BYTES
        with self._lock:
            self._drop(key)
            if size <= self.most_bytes // _LARGEST_PART:
                self._hold(key, value, size)

    def peek(self, key: K) -> V | None:
        """Return what is kept under the key, without using it."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def recount(self, key: K) -> None:
        """Count the value again, which has grown since it was put; it need not be there any more."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._held -= entry[1]
                self._hold(key, entry[0], self._size(key, entry[0]) + ENTRY_BYTES)

    def drop(self, key: K) -> None:
        """Forget the key; it need not be known."""
        with self._lock:
            self._drop(key)

    def _hold(self, key: K, value: V, size: int) -> None:
        self._entries[key] = (value, size)
        self._held += size
        while self._held > self.most_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._held -= entry[1]


def remember_short(longest: int, most: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Remember what a function returns for texts of up to `longest` characters; longer ones are computed each time.

    For what is asked so often that a lock would be felt. It holds at most `most` texts of that length, and their values.
    """

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        remembered = lru_cache(maxsize=most)(function)

        def of(text: str) -> T:
            return remembered(text) if len(text) <= longest else function(text)

        return of

    return decorate


def compiled_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern that a caller wrote, and do not leave a long one in Python's own cache.

    Raises re.error, also for what is too deep or too often for Python.
    """
    try:
        return re.compile(pattern, flags)
    except (OverflowError, RecursionError) as beyond:
        raise re.error(str(beyond)) from beyond
    finally:
        if len(pattern) > _SHORT_PATTERN:
            re.purge()


def bytes_of(value: object) -> int:
    """Return about how many bytes a value of texts, numbers, containers and structs takes; what is shared counts once."""
    return _bytes_of(value, set())


def _bytes_of(value: object, seen: set[int]) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    return sys.getsizeof(value) + sum(_bytes_of(part, seen) for part in _parts(value))


def _parts(value: Any) -> tuple[object, ...]:
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
