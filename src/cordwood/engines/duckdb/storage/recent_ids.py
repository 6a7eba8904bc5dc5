"""Deduplicate recent events by id: of several events with one id the first is stored, others are counted."""

import random
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache

WINDOW_US = 600 * 1_000_000
WINDOW_EVENTS = 100_000
# The number of ids in one Bloom filter of eight megabytes.
_FILTER_IDS = 3_000_000
_WORD_BITS, _MARK_BITS = 20, 12
_ANY_WORD, _ANY_MARK = (1 << _WORD_BITS) - 1, (1 << _MARK_BITS) - 1

# Returns the ids among these that flushed events of the stream have, within the window and received before a time.
LookUp = Callable[[Sequence[str], int], set[str]]

_ANY_TIME = 2**62


class RecentIds:
    """The ids of the last events exactly, and older ones within the window by Bloom filters.

    Hits of a filter are confirmed in the stored events. With `inherits`, events were stored before `opened_us`: at
    first all ids are looked up among those.
    """

    def __init__(self, look_up: LookUp, opened_us: int, *, inherits: bool) -> None:
        self._look_up = look_up
        self._opened_us = opened_us
        self._inherits = inherits
        self._younger: set[int] = set()
        self._elder: set[int] = set()
        self._bloom_filters = _BloomFilters()
        self._taken = 0

    def duplicates(self, ids: Sequence[str], now_us: int) -> set[int]:
        """Return the positions in `ids` of ids that occurred before, in this list or earlier."""
        hashes = list(map(hash, ids))
        found = _repeated(hashes)
        for seen in (self._younger, self._elder):
            if not seen.isdisjoint(hashes):
                found |= {place for place, one in enumerate(hashes) if one in seen}
        found |= self._stored_among(ids, self._bloom_filters.matches(hashes, now_us), _ANY_TIME)
        if self._inherits:
            self._inherits = now_us < self._opened_us + WINDOW_US or self._taken < WINDOW_EVENTS
            found |= self._stored_among(ids, range(len(ids)), self._opened_us)
        return found

    def _stored_among(self, ids: Sequence[str], places: Sequence[int], before_us: int) -> set[int]:
        if not places:
            return set()
        stored = self._look_up([ids[place] for place in places], before_us)
        return {place for place in places if ids[place] in stored} if stored else set()

    def take(self, ids: Iterable[str], now_us: int) -> None:
        before = len(self._younger)
        self._younger.update(map(hash, ids))
        self._taken += len(self._younger) - before
        if len(self._younger) >= WINDOW_EVENTS:
            if self._elder:
                self._bloom_filters.add(self._elder, now_us)
            self._elder, self._younger = self._younger, set()


class _BloomFilters:
    """Bloom filters that are filled one after the other; each is dropped once its last id is older than the window."""

    def __init__(self) -> None:
        self._bloom_filters: list[_BloomFilter] = []

    def add(self, hashes: Collection[int], now_us: int) -> None:
        if not self._bloom_filters or self._bloom_filters[-1].count + len(hashes) > _FILTER_IDS:
            self._bloom_filters.append(_BloomFilter())
        self._bloom_filters[-1].add(hashes, now_us)

    def matches(self, hashes: Sequence[int], now_us: int) -> Sequence[int]:
        self._bloom_filters = [sieve for sieve in self._bloom_filters if sieve.until_us >= now_us - WINDOW_US]
        found = [sieve.matches(hashes) for sieve in self._bloom_filters]
        return found[0] if len(found) == 1 else sorted(set().union(*found))


class _BloomFilter:
    """A Bloom filter that sets four bits in each of three words for a hash.

    Of a million other ids, 4 match at two million entries and 75 when it is full. False positives are looked up in the
    file while appends wait; more bits would take longer to set.
    """

    def __init__(self) -> None:
        self.count = 0
        self.until_us = 0
        self._words = array("Q", [0]) * (1 << _WORD_BITS)
        self._marks = _marks()

    def add(self, hashes: Collection[int], now_us: int) -> None:
        self.count += len(hashes)
        self.until_us = now_us
        words, marks, word, mark = self._words, self._marks, _ANY_WORD, _ANY_MARK
        for one in hashes:
            words[one & word] |= marks[one >> 52 & mark]
            words[one >> 20 & word] |= marks[one >> 8 & mark]
            words[one >> 40 & word] |= marks[one >> 30 & mark]

    def matches(self, hashes: Sequence[int]) -> list[int]:
        words, marks, word, mark = self._words, self._marks, _ANY_WORD, _ANY_MARK
        return [
            place
            for place, one in enumerate(hashes)
            if not marks[one >> 52 & mark] & ~words[one & word]
            and not marks[one >> 8 & mark] & ~words[one >> 20 & word]
            and not marks[one >> 30 & mark] & ~words[one >> 40 & word]
        ]


@cache
def _marks() -> tuple[int, ...]:
    """Return 4,096 masks of four random bits each."""
    dice = random.Random(0)  # noqa: S311 - masks need an even distribution, not secrecy
    return tuple(sum(1 << bit for bit in dice.sample(range(64), 4)) for _ in range(_ANY_MARK + 1))


def _repeated(hashes: Sequence[int]) -> set[int]:
    if len(set(hashes)) == len(hashes):
        return set()
    seen: set[int] = set()
    repeated = set()
    for place, one in enumerate(hashes):
        if one in seen:
            repeated.add(place)
        seen.add(one)
    return repeated
