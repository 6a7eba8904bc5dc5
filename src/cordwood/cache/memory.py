"""Answers kept in memory: the least recently used goes first."""

from collections import OrderedDict

from cordwood.cache.cache import Sized

# What an entry costs beside its bytes: its key, its receipt, the question to ask again.
OVERHEAD_BYTES = 2048


class MemoryCache:
    """At most `budget_bytes`; an answer larger than a quarter of that is not worth what it would push out."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._held = 0
        self._kept: OrderedDict[bytes, Sized] = OrderedDict()
        self._sizes: dict[bytes, int] = {}

    def get(self, key: bytes) -> Sized | None:
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            if kept.size + OVERHEAD_BYTES != self._sizes[key]:
                self._account(key, kept.size + OVERHEAD_BYTES)
        return kept

    def peek(self, key: bytes) -> Sized | None:
        return self._kept.get(key)

    def put(self, key: bytes, kept: Sized) -> None:
        self.drop(key)
        size = kept.size + OVERHEAD_BYTES
        if size > self._budget // 4:
            return
        self._kept[key] = kept
        self._account(key, size)

    def drop(self, key: bytes) -> None:
        if self._kept.pop(key, None) is not None:
            self._held -= self._sizes.pop(key)

    def size(self) -> int:
        return self._held

    def budget(self) -> int:
        return self._budget

    def _account(self, key: bytes, size: int) -> None:
        self._held += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        while self._held > self._budget:
            self.drop(next(iter(self._kept)))
