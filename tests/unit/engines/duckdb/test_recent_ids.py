"""Recent ids are recognized for the whole window, and new ids are almost never looked up in the file."""

from collections.abc import Iterable, Sequence

import pytest

from cordwood.engines.duckdb.storage import recent_ids
from cordwood.engines.duckdb.storage.recent_ids import (
    DEDUPLICATION_WINDOW_EVENTS,
    DEDUPLICATION_WINDOW_US,
    RecentIds,
    hash_events,
)
from cordwood.model.event import Event, EventKey

NOW_US = 1_700_000_000 * 10**6


class RecordedIds:
    """Recent ids, and a record of the ids that were looked up in storage."""

    def __init__(self) -> None:
        self.ids = RecentIds(self._look_up, NOW_US, has_earlier_events=False)
        self.looked_up: list[str] = []

    def _look_up(self, keys: Sequence[EventKey], before_us: int) -> set[EventKey]:
        self.looked_up += [event_id for _, event_id in keys]
        return {(project, event_id) for project, event_id in keys if event_id.startswith("taken") and project == "p"}

    def add_taken(self, first: int, count: int, now_us: int = NOW_US) -> None:
        for start in range(first, first + count, DEDUPLICATION_WINDOW_EVENTS):
            numbers = range(start, start + DEDUPLICATION_WINDOW_EVENTS)
            self.ids.add(hash_events(events_with_ids(f"taken{number}" for number in numbers)), now_us)

    def find_duplicates(self, ids: Iterable[str], now_us: int = NOW_US, project: str | None = "p") -> set[int]:
        events = events_with_ids(ids, project)
        return self.ids.find_duplicates(events, hash_events(events), now_us)


def events_with_ids(ids: Iterable[str], project: str | None = "p") -> list[Event]:
    return [Event(event_id, NOW_US, project=project) for event_id in ids]


def test_the_newest_ids_are_known_without_lookup() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 2 * DEDUPLICATION_WINDOW_EVENTS)
    ids = ["new", f"taken{DEDUPLICATION_WINDOW_EVENTS}", "taken" + str(2 * DEDUPLICATION_WINDOW_EVENTS - 1), "new"]
    assert recorded.find_duplicates(ids) == {1, 2, 3}
    assert not recorded.looked_up


def test_earlier_ids_are_known_until_the_window_ends() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 3 * DEDUPLICATION_WINDOW_EVENTS)
    assert recorded.find_duplicates(["taken7", "new"], NOW_US + DEDUPLICATION_WINDOW_US) == {0}
    assert recorded.looked_up == ["taken7"]
    assert recorded.find_duplicates(["taken7", "new"], NOW_US + DEDUPLICATION_WINDOW_US + 1) == set()


def test_ids_of_a_fast_stream_are_known_until_the_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_ids, "_IDS_PER_FILTER", 2 * DEDUPLICATION_WINDOW_EVENTS)
    recorded = RecordedIds()
    for minute in range(8):
        recorded.add_taken(
            minute * DEDUPLICATION_WINDOW_EVENTS, DEDUPLICATION_WINDOW_EVENTS, NOW_US + minute * 60_000_000
        )
    ids = [f"taken{minute * DEDUPLICATION_WINDOW_EVENTS}" for minute in range(8)]
    assert recorded.find_duplicates(ids, NOW_US + 8 * 60_000_000) == set(range(8))
    # Each Bloom filter holds the ids of two minutes. It is replaced a minute after its last id, and kept for ten more
    # minutes.
    assert recorded.find_duplicates(ids, NOW_US + 12 * 60_000_000) == set(range(8))
    assert recorded.find_duplicates(ids, NOW_US + 12 * 60_000_000 + 1) == {2, 3, 4, 5, 6, 7}


def test_new_ids_are_rarely_looked_up_after_two_million() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 2_000_000)
    ids = [f"new{number}" for number in range(200_000)]
    assert recorded.find_duplicates(ids, NOW_US) == set()
    # With this Bloom filter, about one false positive is expected. With only three bits in one word, there would be
    # 130.
    assert len(recorded.looked_up) < 12


def test_an_id_of_one_project_is_new_in_other_projects() -> None:
    recorded = RecordedIds()
    recorded.add_taken(0, 3 * DEDUPLICATION_WINDOW_EVENTS)
    newest, old = f"taken{3 * DEDUPLICATION_WINDOW_EVENTS - 1}", "taken7"
    assert recorded.find_duplicates([newest, old]) == {0, 1}
    for other in ("q", "", None):
        assert recorded.find_duplicates([newest, old], project=other) == set()
    events = [*events_with_ids(["x", "x"], "q"), *events_with_ids(["x"], "p"), *events_with_ids(["x", "x"], None)]
    assert recorded.ids.find_duplicates(events, hash_events(events), NOW_US) == {1, 4}
