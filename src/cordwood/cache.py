"""The cache of answers, limited in bytes: its interface, and an LRU cache in memory."""

from typing import Protocol

from cordwood.bounded_cache import ENTRY_BYTES, BoundedCache


class _HasSize(Protocol):
    """An object that knows its size in bytes."""

    @property
    def size(self) -> int: ...


class AnswerCache(Protocol):
    """A cache used by the event loop. Its methods never raise: an answer that does not fit is not stored."""

    def get(self, key: bytes) -> _HasSize | None:
        """Return the entry, mark it as the most recently used, and update its size."""

    def peek(self, key: bytes) -> _HasSize | None:
        """Return the entry without marking it as used."""

    def put(self, key: bytes, kept: _HasSize) -> None:
        """Store an entry; evict the least recently used entries beyond the budget."""

    def drop(self, key: bytes) -> None:
        """Remove an entry, if it exists."""

    def size(self) -> int:
        """Return the total size of all entries in bytes."""

    def budget(self) -> int:
        """Return the maximum total size in bytes."""


# The bytes of an entry besides its body: key, receipt and request.
ENTRY_OVERHEAD_BYTES = 2048


class MemoryCache:
    """An LRU cache of at most `budget_bytes`; an answer larger than a quarter of the budget is not stored."""

    def __init__(self, budget_bytes: int) -> None:
        self._kept: BoundedCache[bytes, _HasSize] = BoundedCache(budget_bytes, _entry_size)

    def get(self, key: bytes) -> _HasSize | None:
        self._kept.recount(key)
        return self._kept.get(key)

    def peek(self, key: bytes) -> _HasSize | None:
        return self._kept.peek(key)

    def put(self, key: bytes, kept: _HasSize) -> None:
        self._kept.put(key, kept)

    def drop(self, key: bytes) -> None:
        self._kept.drop(key)

    def size(self) -> int:
        return self._kept.held_bytes

    def budget(self) -> int:
        return self._kept.max_bytes


def _entry_size(_: bytes, kept: _HasSize) -> int:
    return kept.size + ENTRY_OVERHEAD_BYTES - ENTRY_BYTES
