"""An LRU cache of answers in memory."""

from cordwood.bounded_cache import ENTRY_BYTES, BoundedCache
from cordwood.cache.cache import HasSize

# The bytes of an entry besides its body: key, receipt and request.
ENTRY_OVERHEAD_BYTES = 2048


class MemoryCache:
    """An LRU cache of at most `budget_bytes`; an answer larger than a quarter of the budget is not stored."""

    def __init__(self, budget_bytes: int) -> None:
        self._kept: BoundedCache[bytes, HasSize] = BoundedCache(budget_bytes, _entry_size)

    def get(self, key: bytes) -> HasSize | None:
        self._kept.recount(key)
        return self._kept.get(key)

    def peek(self, key: bytes) -> HasSize | None:
        return self._kept.peek(key)

    def put(self, key: bytes, kept: HasSize) -> None:
        self._kept.put(key, kept)

    def drop(self, key: bytes) -> None:
        self._kept.drop(key)

    def size(self) -> int:
        return self._kept.held_bytes

    def budget(self) -> int:
        return self._kept.max_bytes


def _entry_size(_: bytes, kept: HasSize) -> int:
    return kept.size + ENTRY_OVERHEAD_BYTES - ENTRY_BYTES
