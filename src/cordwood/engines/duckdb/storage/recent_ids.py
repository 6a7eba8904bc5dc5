"""Deduplicate recent events: of several events with the same project and id, only the first is stored.

Events without a project are compared among themselves. An id of one project says nothing about other projects.
"""

import random
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache

from cordwood.model.event import Event, EventKey

DEDUPLICATION_WINDOW_US = 600 * 1_000_000
DEDUPLICATION_WINDOW_EVENTS = 100_000
# The maximum number of ids in one Bloom filter, which takes eight megabytes.
_IDS_PER_FILTER = 3_000_000
_WORD_BITS, _MASK_INDEX_BITS = 20, 12
_WORD_MASK, _MASK_INDEX_MASK = (1 << _WORD_BITS) - 1, (1 << _MASK_INDEX_BITS) - 1

# A function that takes keys of events and a time, and returns those keys that flushed events of the stream have. It
# looks only at events that are within the deduplication window and were received before the time.
KeyLookup = Callable[[Sequence[EventKey], int], set[EventKey]]

_AFTER_ALL_TIMESTAMPS_US = 2**62


def hash_events(events: Iterable[Event]) -> list[int]:
    """Return, for each event, a hash of its project and id.

    The hashes of texts have a random seed in each process, so a sender cannot choose an id whose hash equals another's.
    """
    return [hash((event.project, event.id)) for event in events]


class RecentIds:
    """The projects and ids of a stream's recent events: the newest as hashes in sets, older ones in Bloom filters.

    Duplicates are recognised within the deduplication window of the most recent events. If a filter matches an event,
    the event's project and id are looked up among the stored events, because the filter may be wrong. `opened_us` is
    the time at which this object is created, and `has_earlier_events` means that events were stored before that time.
    Until the window has moved past these events, all events are also looked up among them.
    """

    def __init__(self, find_stored_keys: KeyLookup, opened_us: int, *, has_earlier_events: bool) -> None:
        self._find_stored_keys = find_stored_keys
        self._store_opened_us = opened_us
        self._must_look_up_earlier_events = has_earlier_events
        self._newer_hashes: set[int] = set()
        self._older_hashes: set[int] = set()
        self._bloom_filters = _RollingBloomFilters()
        self._added_key_count = 0

    def find_duplicates(self, events: Sequence[Event], hashes: Sequence[int], now_us: int) -> set[int]:
        """Return the positions of duplicates in `events`, whose project and id an earlier event has.

        Earlier events are those that were added before, and those earlier in the list. `hashes` has the hashes of the
        events, as `hash_events` returns them.
        """
        positions = _find_repeated_positions(hashes)
        for known_hashes in (self._newer_hashes, self._older_hashes):
            if not known_hashes.isdisjoint(hashes):
                positions |= {position for position, key_hash in enumerate(hashes) if key_hash in known_hashes}
        positions |= self._find_stored_positions(
            events, self._bloom_filters.find_matches(hashes, now_us), _AFTER_ALL_TIMESTAMPS_US
        )
        if self._must_look_up_earlier_events:
            self._must_look_up_earlier_events = (
                now_us < self._store_opened_us + DEDUPLICATION_WINDOW_US
                or self._added_key_count < DEDUPLICATION_WINDOW_EVENTS
            )
            positions |= self._find_stored_positions(events, range(len(events)), self._store_opened_us)
        return positions

    def _find_stored_positions(self, events: Sequence[Event], positions: Sequence[int], before_us: int) -> set[int]:
        if not positions:
            return set()
        stored = self._find_stored_keys([events[position].key for position in positions], before_us)
        return {position for position in positions if events[position].key in stored} if stored else set()

    def add(self, hashes: Iterable[int], now_us: int) -> None:
        """Add the hashes of events that are stored now."""
        previous_count = len(self._newer_hashes)
        self._newer_hashes.update(hashes)
        self._added_key_count += len(self._newer_hashes) - previous_count
        if len(self._newer_hashes) >= DEDUPLICATION_WINDOW_EVENTS:
            if self._older_hashes:
                self._bloom_filters.add(self._older_hashes, now_us)
            self._older_hashes, self._newer_hashes = self._newer_hashes, set()


class _RollingBloomFilters:
    """Bloom filters that are filled one after the other; a filter is dropped when the window has moved past its ids."""

    def __init__(self) -> None:
        self._bloom_filters: list[_BloomFilter] = []

    def add(self, hashes: Collection[int], now_us: int) -> None:
        if not self._bloom_filters or self._bloom_filters[-1].added_key_count + len(hashes) > _IDS_PER_FILTER:
            self._bloom_filters.append(_BloomFilter())
        self._bloom_filters[-1].add(hashes, now_us)

    def find_matches(self, hashes: Sequence[int], now_us: int) -> Sequence[int]:
        self._bloom_filters = [
            bloom_filter
            for bloom_filter in self._bloom_filters
            if bloom_filter.last_added_us >= now_us - DEDUPLICATION_WINDOW_US
        ]
        matching_positions = [bloom_filter.find_matches(hashes) for bloom_filter in self._bloom_filters]
        return matching_positions[0] if len(matching_positions) == 1 else sorted(set().union(*matching_positions))


class _BloomFilter:
    """A Bloom filter that sets four bits in each of three words for each hash.

    Of a million ids that were not added, 4 match wrongly if the filter has two million entries, and 75 if it is full.
    Each wrong match costs a look-up in the file, for which appends have to wait. More bits would reduce wrong matches,
    but would take longer to set.
    """

    def __init__(self) -> None:
        self.added_key_count = 0
        self.last_added_us = 0
        self._words = array("Q", [0]) * (1 << _WORD_BITS)
        self._masks = _make_bit_masks()

    def add(self, hashes: Collection[int], now_us: int) -> None:
        self.added_key_count += len(hashes)
        self.last_added_us = now_us
        words, masks, word_mask, index_mask = self._words, self._masks, _WORD_MASK, _MASK_INDEX_MASK
        for key_hash in hashes:
            words[key_hash & word_mask] |= masks[key_hash >> 52 & index_mask]
            words[key_hash >> 20 & word_mask] |= masks[key_hash >> 8 & index_mask]
            words[key_hash >> 40 & word_mask] |= masks[key_hash >> 30 & index_mask]

    def find_matches(self, hashes: Sequence[int]) -> list[int]:
        words, masks, word_mask, index_mask = self._words, self._masks, _WORD_MASK, _MASK_INDEX_MASK
        return [
            position
            for position, key_hash in enumerate(hashes)
            if not masks[key_hash >> 52 & index_mask] & ~words[key_hash & word_mask]
            and not masks[key_hash >> 8 & index_mask] & ~words[key_hash >> 20 & word_mask]
            and not masks[key_hash >> 30 & index_mask] & ~words[key_hash >> 40 & word_mask]
        ]


@cache
def _make_bit_masks() -> tuple[int, ...]:
    """Return 4,096 bit masks, each with four random bits set."""
    random_source = random.Random(0)  # noqa: S311 - masks need an even distribution, not secrecy
    return tuple(sum(1 << bit for bit in random_source.sample(range(64), 4)) for _ in range(_MASK_INDEX_MASK + 1))


def _find_repeated_positions(hashes: Sequence[int]) -> set[int]:
    if len(set(hashes)) == len(hashes):
        return set()
    seen_hashes: set[int] = set()
    repeated = set()
    for position, key_hash in enumerate(hashes):
        if key_hash in seen_hashes:
            repeated.add(position)
        seen_hashes.add(key_hash)
    return repeated
