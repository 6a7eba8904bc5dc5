"""Which ids were taken lately is known for all of the window, and next to nothing is looked up in the file for it."""

from collections.abc import Sequence

import pytest

from cordwood.engines.duckdb.storage import recent_ids
from cordwood.engines.duckdb.storage.recent_ids import WINDOW_EVENTS, WINDOW_US, RecentIds

NOW_US = 1_700_000_000 * 10**6


class Taken:
    """Ids that were taken, and which of them were looked up."""

    def __init__(self) -> None:
        self.ids = RecentIds(self._recall, NOW_US, has_earlier_events=False)
        self.looked_up: list[str] = []

    def _recall(self, ids: Sequence[str], before_us: int) -> set[str]:
        self.looked_up += ids
        return {one for one in ids if one.startswith("taken")}

    def take(self, first: int, count: int, now_us: int = NOW_US) -> None:
        for start in range(first, first + count, WINDOW_EVENTS):
            self.ids.add((f"taken{number}" for number in range(start, start + WINDOW_EVENTS)), now_us)


def test_those_taken_last_are_known_exactly() -> None:
    taken = Taken()
    taken.take(0, 2 * WINDOW_EVENTS)
    asked = ["new", f"taken{WINDOW_EVENTS}", "taken" + str(2 * WINDOW_EVENTS - 1), "new"]
    assert taken.ids.duplicates(asked, NOW_US) == {1, 2, 3}
    assert not taken.looked_up


def test_those_before_are_known_for_as_long_as_the_window() -> None:
    taken = Taken()
    taken.take(0, 3 * WINDOW_EVENTS)
    assert taken.ids.duplicates(["taken7", "new"], NOW_US + WINDOW_US) == {0}
    assert taken.looked_up == ["taken7"]
    assert taken.ids.duplicates(["taken7", "new"], NOW_US + WINDOW_US + 1) == set()


def test_of_a_fast_stream_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_ids, "_FILTER_IDS", 2 * WINDOW_EVENTS)
    taken = Taken()
    for minute in range(8):
        taken.take(minute * WINDOW_EVENTS, WINDOW_EVENTS, NOW_US + minute * 60_000_000)
    asked = [f"taken{minute * WINDOW_EVENTS}" for minute in range(8)]
    assert taken.ids.duplicates(asked, NOW_US + 8 * 60_000_000) == set(range(8))
    # A sieve of two is full a minute after the second of them came, and holds for ten more.
    assert taken.ids.duplicates(asked, NOW_US + 12 * 60_000_000) == set(range(8))
    assert taken.ids.duplicates(asked, NOW_US + 12 * 60_000_000 + 1) == {2, 3, 4, 5, 6, 7}


def test_after_two_million_ids_a_new_one_is_hardly_ever_looked_up() -> None:
    taken = Taken()
    taken.take(0, 2_000_000)
    asked = [f"new{number}" for number in range(200_000)]
    assert taken.ids.duplicates(asked, NOW_US) == set()
    # One is expected; three bits in one row would be 130.
    assert len(taken.looked_up) < 12
