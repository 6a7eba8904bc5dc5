"""Large events have a budget among the others of their stream, and one project a part of it."""

import pytest

from cordwood.errors import LargeEventsExceeded
from cordwood.ingest.large_events import LARGE, LargeEvents
from cordwood.ingest.parsed_body import RefusedItem
from cordwood.ingest.quarantine import ItemTruncator
from cordwood.model.event import Event

BUDGET = 100 * LARGE


def events(count: int, size: int = 2 * LARGE, project: str = "a") -> list[Event]:
    return [Event(f"{number}", 0, "x" * size, project) for number in range(count)]


def test_a_project_has_a_quarter_of_the_budget_and_nothing_of_a_body_that_is_too_much_is_counted() -> None:
    large = LargeEvents(BUDGET)
    large.take("s", events(10))
    for _ in range(2):
        with pytest.raises(LargeEventsExceeded):
            large.take("s", events(5))
    large.take("s", events(2))
    large.take("s", events(12, project="b"))
    large.take("other", events(12))


def test_all_projects_together_have_the_budget() -> None:
    large = LargeEvents(BUDGET)
    for project in "abcd":
        large.take("s", events(12, project=project))
    with pytest.raises(LargeEventsExceeded) as refused:
        large.take("s", events(3, project="e"))
    assert refused.value.retry_after


def test_events_that_are_not_large_are_never_refused_and_make_room_for_more() -> None:
    large = LargeEvents(BUDGET)
    large.take("s", events(12))
    large.take("s", events(1000, size=LARGE - 10))
    with pytest.raises(LargeEventsExceeded):
        large.take("s", events(1))
    large.take("s", events(20_000, size=1))
    large.take("s", events(12))


def test_without_a_bound_all_is_taken() -> None:
    LargeEvents(None).take("s", events(1000))


def test_what_is_set_aside_has_a_budget_too_and_is_cut_beyond_it() -> None:
    shelf = ItemTruncator(2**20, lambda: 0, LargeEvents(BUDGET))
    kept = [shelf.fitted(RefusedItem(0, "No.", "x" * 2 * LARGE)) for _ in range(15)]
    assert [one.is_cut for one in kept] == [False] * 12 + [True] * 3
    assert {len(one.text) for one in kept if one.is_cut} == {4096}
    assert not shelf.fitted(RefusedItem(0, "No.", "x" * 1000)).is_cut
