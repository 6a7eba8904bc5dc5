"""The budget of a stream for large events, of which each project may use only a part."""

import pytest

from cordwood.errors import LargeEventLimitExceeded
from cordwood.ingest.limits import LARGE_EVENT_THRESHOLD_CHARACTERS, LargeEventLimiter
from cordwood.ingest.parsed_body import RefusedItem
from cordwood.ingest.quarantine import ItemTruncator
from cordwood.model.event import Event

BUDGET_CHARACTERS = 100 * LARGE_EVENT_THRESHOLD_CHARACTERS


def make_events(count: int, size: int = 2 * LARGE_EVENT_THRESHOLD_CHARACTERS, project: str = "a") -> list[Event]:
    return [Event(f"{number}", 0, "x" * size, project) for number in range(count)]


def test_a_project_has_a_quarter_of_the_budget_and_refused_bodies_do_not_count() -> None:
    large = LargeEventLimiter(BUDGET_CHARACTERS)
    large.charge_events("s", make_events(10))
    for _ in range(2):
        with pytest.raises(LargeEventLimitExceeded):
            large.charge_events("s", make_events(5))
    large.charge_events("s", make_events(2))
    large.charge_events("s", make_events(12, project="b"))
    large.charge_events("other", make_events(12))


def test_all_projects_share_the_budget() -> None:
    large = LargeEventLimiter(BUDGET_CHARACTERS)
    for project in "abcd":
        large.charge_events("s", make_events(12, project=project))
    with pytest.raises(LargeEventLimitExceeded) as refused:
        large.charge_events("s", make_events(3, project="e"))
    assert refused.value.retry_after


def test_small_events_are_never_refused_and_renew_the_budget() -> None:
    large = LargeEventLimiter(BUDGET_CHARACTERS)
    large.charge_events("s", make_events(12))
    large.charge_events("s", make_events(1000, size=LARGE_EVENT_THRESHOLD_CHARACTERS - 10))
    with pytest.raises(LargeEventLimitExceeded):
        large.charge_events("s", make_events(1))
    large.charge_events("s", make_events(20_000, size=1))
    large.charge_events("s", make_events(12))


def test_without_a_budget_everything_is_accepted() -> None:
    LargeEventLimiter(None).charge_events("s", make_events(1000))


def test_quarantined_items_are_truncated_beyond_their_budget() -> None:
    truncator = ItemTruncator(2**20, lambda: 0, LargeEventLimiter(BUDGET_CHARACTERS))
    truncated_items = [
        truncator.truncate_if_needed(RefusedItem(0, "No.", "x" * 2 * LARGE_EVENT_THRESHOLD_CHARACTERS))
        for _ in range(15)
    ]
    assert [truncated.is_truncated for truncated in truncated_items] == [False] * 12 + [True] * 3
    assert {len(truncated.text) for truncated in truncated_items if truncated.is_truncated} == {4096}
    assert not truncator.truncate_if_needed(RefusedItem(0, "No.", "x" * 1000)).is_truncated
