"""Recent ids are recognized for the whole window, and new ids are almost never looked up in the file."""

from collections.abc import Sequence

import pytest

from cordwood.engines.duckdb.storage import recent_ids
from cordwood.engines.duckdb.storage.recent_ids import DEDUPLICATION_WINDOW_EVENTS, DEDUPLICATION_WINDOW_US, RecentIds

NOW_US = 1_700_000_000 * 10**6


class RecordedIds:
    """Recent ids, and a record of the ids that were looked up in storage."""

    def __init__(self) -> None:
        self.ids = RecentIds(self._look_up, NOW_US, has_earlier_events=False)
        self.looked_up: list[str] = []

    def _look_up(self, ids: Sequence[str], before_us: int) -> set[str]:
        self.looked_up += ids
        return {event_id for event_id in ids if event_id.startswith("taken")}

    def add_taken(self, first: int, count: int, now_us: int = NOW_US) -> None:
        for start in range(first, first + count, DEDUPLICATION_WINDOW_EVENTS):
            self.ids.add((f"taken{number}" for number in range(start, start + DEDUPLICATION_WINDOW_EVENTS)), now_us)


def test_the_newest_ids_are_known_without_lookup() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 2 * DEDUPLICATION_WINDOW_EVENTS)
    ids = ["new", f"taken{DEDUPLICATION_WINDOW_EVENTS}", "taken" + str(2 * DEDUPLICATION_WINDOW_EVENTS - 1), "new"]
    assert recorded.ids.find_duplicates(ids, NOW_US) == {1, 2, 3}
    assert not recorded.looked_up


def test_earlier_ids_are_known_until_the_window_ends() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 3 * DEDUPLICATION_WINDOW_EVENTS)
    assert recorded.ids.find_duplicates(["taken7", "new"], NOW_US + DEDUPLICATION_WINDOW_US) == {0}
    assert recorded.looked_up == ["taken7"]
    assert recorded.ids.find_duplicates(["taken7", "new"], NOW_US + DEDUPLICATION_WINDOW_US + 1) == set()


def test_ids_of_a_fast_stream_are_known_until_the_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_ids, "_IDS_PER_FILTER", 2 * DEDUPLICATION_WINDOW_EVENTS)
    recorded = RecordedIds()
    for minute in range(8):
        recorded.add_taken(
            minute * DEDUPLICATION_WINDOW_EVENTS, DEDUPLICATION_WINDOW_EVENTS, NOW_US + minute * 60_000_000
        )
    ids = [f"taken{minute * DEDUPLICATION_WINDOW_EVENTS}" for minute in range(8)]
    assert recorded.ids.find_duplicates(ids, NOW_US + 8 * 60_000_000) == set(range(8))
    # Each Bloom filter holds the ids of two minutes. It is replaced a minute after its last id, and kept for ten more
    # minutes.
    assert recorded.ids.find_duplicates(ids, NOW_US + 12 * 60_000_000) == set(range(8))
    assert recorded.ids.find_duplicates(ids, NOW_US + 12 * 60_000_000 + 1) == {2, 3, 4, 5, 6, 7}


def test_new_ids_are_rarely_looked_up_after_two_million() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 2_000_000)
    ids = [f"new{number}" for number in range(200_000)]
    assert recorded.ids.find_duplicates(ids, NOW_US) == set()
    # With this Bloom filter, about one false positive is expected. With only three bits in one word, there would be
    # 130.
    assert len(recorded.looked_up) < 12
