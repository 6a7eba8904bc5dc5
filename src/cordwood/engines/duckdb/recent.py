"""Which ids a stream has taken lately: the first event of an id stays, later ones are counted and left."""

from collections.abc import Callable, Sequence

WINDOW_US = 600 * 1_000_000
WINDOW_EVENTS = 100_000

# Says which of the ids are among the sealed events of before this process.
Recall = Callable[[Sequence[str]], set[str]]


class RecentIds:
    """Hashes of ids in two generations; the elder is let go when the younger has filled the window."""

    def __init__(self, recall: Recall, recall_until_us: int) -> None:
        self._recall = recall
        self._recall_until_us = recall_until_us
        self._younger: set[int] = set()
        self._elder: set[int] = set()
        self._taken = 0

    def duplicates(self, ids: Sequence[str], now_us: int) -> set[int]:
        """The places in `ids` whose id was taken before, in this list or earlier."""
        hashes = [hash(one) for one in ids]
        before = self._known(hashes)
        if self._must_recall(now_us):
            recalled = self._recall(ids)
            before |= {place for place, one in enumerate(ids) if one in recalled}
        return before | _repeated(hashes)

    def take(self, ids: Sequence[str]) -> None:
        self._younger.update(map(hash, ids))
        self._taken += len(ids)
        if len(self._younger) >= WINDOW_EVENTS:
            self._elder, self._younger = self._younger, set()

    def _known(self, hashes: list[int]) -> set[int]:
        seen = self._younger.intersection(hashes) | self._elder.intersection(hashes)
        return {place for place, one in enumerate(hashes) if one in seen} if seen else set()

    def _must_recall(self, now_us: int) -> bool:
        return now_us < self._recall_until_us or self._taken < WINDOW_EVENTS


def _repeated(hashes: list[int]) -> set[int]:
    if len(set(hashes)) == len(hashes):
        return set()
    seen: set[int] = set()
    repeated = set()
    for place, one in enumerate(hashes):
        if one in seen:
            repeated.add(place)
        seen.add(one)
    return repeated
