"""The rate limit of a stream, and the budget for request bodies in memory."""

from contextlib import ExitStack
from uuid import UUID

import pytest

from cordwood.errors import BacklogFull, StreamRateExceeded
from cordwood.ingest.limits import MAX_BODIES_PER_KEY, BodyMemoryBudget, StreamRateLimiter
from cordwood.ingest.parsed_body import RefusedItem
from cordwood.ingest.quarantine import ItemTruncator
from cordwood.model.definitions import Stream

STREAM = Stream("s", UUID(int=1), events_per_second=100)


class ManualClock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limiter(clock: ManualClock) -> StreamRateLimiter:
    return StreamRateLimiter(None, clock)


def retry_seconds(limiter: StreamRateLimiter, stream: Stream = STREAM) -> float:
    with pytest.raises(StreamRateExceeded) as caught:
        limiter.check_rate(stream)
    assert caught.value.retry_after is not None
    return caught.value.retry_after


def test_a_burst_of_one_second_is_accepted(limiter: StreamRateLimiter) -> None:
    for _ in range(10):
        limiter.check_rate(STREAM)
        limiter.charge_events(STREAM, 10)
    assert retry_seconds(limiter) == 1


def test_a_body_above_the_rate_is_accepted_and_delays_the_next(limiter: StreamRateLimiter, clock: ManualClock) -> None:
    limiter.check_rate(STREAM)
    limiter.charge_events(STREAM, 600)
    assert retry_seconds(limiter) == 5
    clock.seconds = 4.9
    retry_seconds(limiter)
    clock.seconds = 5.1
    limiter.check_rate(STREAM)


def test_idle_time_does_not_accumulate(limiter: StreamRateLimiter, clock: ManualClock) -> None:
    clock.seconds = 3600
    limiter.check_rate(STREAM)
    limiter.charge_events(STREAM, 200)
    assert retry_seconds(limiter) == 1


def test_a_rate_below_one_per_second_accepts_an_event(limiter: StreamRateLimiter, clock: ManualClock) -> None:
    slow = Stream("slow", UUID(int=2), events_per_second=0.1)
    limiter.check_rate(slow)
    limiter.charge_events(slow, 1)
    limiter.charge_events(slow, 1)
    assert retry_seconds(limiter, slow) == 10
    clock.seconds = 10.1
    limiter.check_rate(slow)


def test_streams_have_separate_rates_with_a_common_default(clock: ManualClock) -> None:
    limiter = StreamRateLimiter(5, clock)
    limiter.charge_events(STREAM, 1000)
    other = Stream("other", UUID(int=3))
    limiter.check_rate(other)
    limiter.charge_events(other, 15)
    assert retry_seconds(limiter, other) == 2


def test_all_bodies_share_a_budget_and_a_refused_one_holds_nothing() -> None:
    budget = BodyMemoryBudget(100)
    with budget.open_reservation("a") as first, budget.open_reservation("a") as second:
        first.reserve(50)
        second.reserve(50)
        with pytest.raises(BacklogFull) as caught, budget.open_reservation("a") as third:
            third.reserve(1)
        assert caught.value.retry_after == 2
    with budget.open_reservation("a") as fourth, budget.open_reservation("a") as fifth:
        fourth.reserve(50)
        fifth.reserve(50)


def test_one_body_may_exceed_the_budget_and_leaves_half_of_it_to_others() -> None:
    budget = BodyMemoryBudget(100)
    with (
        budget.open_reservation("a") as large,
        budget.open_reservation("a") as small,
        budget.open_reservation("b") as of_another_key,
    ):
        large.reserve(90)
        large.reserve(900)
        of_another_key.reserve(30)
        with pytest.raises(BacklogFull):
            of_another_key.reserve(30)
        with pytest.raises(BacklogFull):
            small.reserve(1)
    with budget.open_reservation("a") as small:
        small.reserve(1)


def test_only_one_body_may_exceed_half_of_the_budget() -> None:
    budget = BodyMemoryBudget(100)
    with budget.open_reservation("a") as large, budget.open_reservation("b") as second:
        large.reserve(900)
        large.mark_body_complete()
        second.reserve(50)
        with pytest.raises(BacklogFull):
            second.reserve(1)


def test_arriving_bodies_of_a_key_with_more_than_half_are_revoked() -> None:
    budget = BodyMemoryBudget(100)
    revoked: list[str] = []
    with (
        budget.open_reservation("a") as stored,
        budget.open_reservation("a") as arriving,
        budget.open_reservation("b") as other,
    ):
        stored.reserve(40)
        stored.mark_body_complete()
        arriving.reserve(40)
        arriving.set_revoke_callback(lambda: revoked.append("arriving"))
        other.reserve(50)
        assert revoked == ["arriving"]
        with pytest.raises(BacklogFull):
            arriving.reserve(1)


def test_a_stalled_body_is_revoked_for_one_of_the_same_key(clock: ManualClock) -> None:
    budget = BodyMemoryBudget(100, lambda: clock.seconds)
    with (
        budget.open_reservation("a") as stalled,
        budget.open_reservation("a") as growing,
        budget.open_reservation("a") as new,
    ):
        stalled.reserve(50)
        clock.seconds = 4.0
        growing.reserve(50)
        new.reserve(40)
        assert stalled.is_revoked
        assert not growing.is_revoked


def test_the_number_of_bodies_of_one_key_is_limited() -> None:
    budget = BodyMemoryBudget(100)
    with ExitStack() as stack:
        for _ in range(MAX_BODIES_PER_KEY):
            stack.enter_context(budget.open_reservation("a"))
        with pytest.raises(BacklogFull), budget.open_reservation("a"):
            pass
        with budget.open_reservation("b"):
            pass


def test_quarantined_items_above_a_gigabyte_per_day_are_truncated(clock: ManualClock) -> None:
    truncator = ItemTruncator(2**20, lambda: round(clock.seconds * 1e6))
    large = RefusedItem(0, "No.", "x" * 2**21)
    assert all(truncator.truncate_if_needed(large) is large for _ in range(512))
    cut = truncator.truncate_if_needed(large)
    assert (cut.is_truncated, len(cut.text)) == (True, 4096)
    assert cut.reason == "No. Only its first 4 KiB are stored, and it cannot be replayed."
    small_item = RefusedItem(1, "No.", "x" * 4096)
    assert truncator.truncate_if_needed(small_item) is small_item
    clock.seconds = 3600
    assert truncator.truncate_if_needed(large) is large


def test_an_item_above_the_event_limit_is_truncated() -> None:
    cut = ItemTruncator(2**20, lambda: 0).truncate_if_needed(RefusedItem(0, "No.", "x" * (2**21 + 1)))
    assert (cut.is_truncated, len(cut.text)) == (True, 2**18)
