"""An LRU cache of answers in memory."""

from cordwood.bounded_cache import ENTRY_BYTES, BoundedCache
from cordwood.cache.cache import Sized

# The bytes of an entry besides its body: key, receipt and request.
OVERHEAD_BYTES = 2048


class MemoryCache:
    """An LRU cache of at most `budget_bytes`; an answer larger than a quarter of it is not stored."""

    def __init__(self, budget_bytes: int) -> None:
        self._kept: BoundedCache[bytes, Sized] = BoundedCache(budget_bytes, _size)

    def get(self, key: bytes) -> Sized | None:
        self._kept.recount(key)
        return self._kept.get(key)

    def peek(self, key: bytes) -> Sized | None:
        return self._kept.peek(key)

    def put(self, key: bytes, kept: Sized) -> None:
        self._kept.put(key, kept)

    def drop(self, key: bytes) -> None:
        self._kept.drop(key)

    def size(self) -> int:
        return self._kept.held_bytes

    def budget(self) -> int:
        return self._kept.most_bytes


def _size(_: bytes, kept: Sized) -> int:
    return kept.size + OVERHEAD_BYTES - ENTRY_BYTES
