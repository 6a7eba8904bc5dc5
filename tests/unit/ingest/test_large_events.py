"""Large events have a budget per stream, of which a project may use a part."""

import pytest

from cordwood.errors import LargeEventsExceeded
from cordwood.ingest.limits import MIN_LARGE_CHARACTERS, LargeEvents
from cordwood.ingest.parsed_body import RefusedItem
from cordwood.ingest.quarantine import ItemTruncator
from cordwood.model.event import Event

BUDGET = 100 * MIN_LARGE_CHARACTERS


def events(count: int, size: int = 2 * MIN_LARGE_CHARACTERS, project: str = "a") -> list[Event]:
    return [Event(f"{number}", 0, "x" * size, project) for number in range(count)]


def test_a_project_has_a_quarter_of_the_budget_and_refused_bodies_do_not_count() -> None:
    large = LargeEvents(BUDGET)
    large.take("s", events(10))
    for _ in range(2):
        with pytest.raises(LargeEventsExceeded):
            large.take("s", events(5))
    large.take("s", events(2))
    large.take("s", events(12, project="b"))
    large.take("other", events(12))


def test_all_projects_share_the_budget() -> None:
    large = LargeEvents(BUDGET)
    for project in "abcd":
        large.take("s", events(12, project=project))
    with pytest.raises(LargeEventsExceeded) as refused:
        large.take("s", events(3, project="e"))
    assert refused.value.retry_after


def test_small_events_are_never_refused_and_renew_the_budget() -> None:
    large = LargeEvents(BUDGET)
    large.take("s", events(12))
    large.take("s", events(1000, size=MIN_LARGE_CHARACTERS - 10))
    with pytest.raises(LargeEventsExceeded):
        large.take("s", events(1))
    large.take("s", events(20_000, size=1))
    large.take("s", events(12))


def test_without_a_budget_everything_is_accepted() -> None:
    LargeEvents(None).take("s", events(1000))


def test_quarantined_items_are_truncated_beyond_their_budget() -> None:
    truncator = ItemTruncator(2**20, lambda: 0, LargeEvents(BUDGET))
    kept = [truncator.truncated(RefusedItem(0, "No.", "x" * 2 * MIN_LARGE_CHARACTERS)) for _ in range(15)]
    assert [one.is_cut for one in kept] == [False] * 12 + [True] * 3
    assert {len(one.text) for one in kept if one.is_cut} == {4096}
    assert not truncator.truncated(RefusedItem(0, "No.", "x" * 1000)).is_cut
