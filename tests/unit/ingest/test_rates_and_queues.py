"""What a stream takes in a second, and what may be under way to the disk."""

from contextlib import ExitStack
from uuid import UUID

import pytest

from cordwood.errors import Backlog, StreamRateExceeded
from cordwood.ingest.body_budget import MOST_BODIES_OF_A_KEY, BodyBudget
from cordwood.ingest.parsed_body import RefusedItem
from cordwood.ingest.quarantine import ItemTruncator
from cordwood.ingest.stream_rate_limiter import StreamRateLimiter
from cordwood.model.stream import Stream

STREAM = Stream("s", UUID(int=1), events_per_second=100)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> StreamRateLimiter:
    return StreamRateLimiter(None, clock)


def refused_for(pace: StreamRateLimiter, stream: Stream = STREAM) -> float:
    with pytest.raises(StreamRateExceeded) as caught:
        pace.admit(stream)
    assert caught.value.retry_after is not None
    return caught.value.retry_after


def test_a_second_s_worth_may_come_at_once(pace: StreamRateLimiter) -> None:
    for _ in range(10):
        pace.admit(STREAM)
        pace.charge(STREAM, 10)
    assert refused_for(pace) == 1


def test_a_body_larger_than_the_rate_is_taken_whole_and_made_up_for(pace: StreamRateLimiter, clock: Clock) -> None:
    pace.admit(STREAM)
    pace.charge(STREAM, 600)
    assert refused_for(pace) == 5
    clock.seconds = 4.9
    refused_for(pace)
    clock.seconds = 5.1
    pace.admit(STREAM)


def test_quiet_times_are_not_saved_up(pace: StreamRateLimiter, clock: Clock) -> None:
    clock.seconds = 3600
    pace.admit(STREAM)
    pace.charge(STREAM, 200)
    assert refused_for(pace) == 1


def test_a_rate_below_one_a_second_still_takes_an_event(pace: StreamRateLimiter, clock: Clock) -> None:
    slow = Stream("slow", UUID(int=2), events_per_second=0.1)
    pace.admit(slow)
    pace.charge(slow, 1)
    pace.charge(slow, 1)
    assert refused_for(pace, slow) == 10
    clock.seconds = 10.1
    pace.admit(slow)


def test_streams_do_not_share_and_one_without_a_rate_has_the_one_of_all(clock: Clock) -> None:
    pace = StreamRateLimiter(5, clock)
    pace.charge(STREAM, 1000)
    other = Stream("other", UUID(int=3))
    pace.admit(other)
    pace.charge(other, 15)
    assert refused_for(pace, other) == 2


def test_what_all_requests_hold_together_is_bounded_and_a_refused_one_holds_nothing() -> None:
    budget = BodyBudget(100)
    with budget.reserve("a") as first, budget.reserve("a") as second:
        first.take(50)
        second.take(50)
        with pytest.raises(Backlog) as caught, budget.reserve("a") as third:
            third.take(1)
        assert caught.value.retry_after == 2
    with budget.reserve("a") as fourth, budget.reserve("a") as fifth:
        fourth.take(50)
        fifth.take(50)


def test_one_body_may_be_larger_than_the_room_and_leaves_half_of_it_to_others() -> None:
    budget = BodyBudget(100)
    with budget.reserve("a") as large, budget.reserve("a") as small, budget.reserve("b") as of_another_key:
        large.take(90)
        large.take(900)
        of_another_key.take(30)
        with pytest.raises(Backlog):
            of_another_key.take(30)
        with pytest.raises(Backlog):
            small.take(1)
    with budget.reserve("a") as small:
        small.take(1)


def test_while_one_body_is_larger_than_half_of_the_room_no_second_one_is() -> None:
    budget = BodyBudget(100)
    with budget.reserve("a") as large, budget.reserve("b") as second:
        large.take(900)
        large.arrived()
        second.take(50)
        with pytest.raises(Backlog):
            second.take(1)


def test_a_key_that_holds_more_than_half_gives_way_while_its_bodies_arrive() -> None:
    budget = BodyBudget(100)
    revoked: list[str] = []
    with budget.reserve("a") as stored, budget.reserve("a") as arriving, budget.reserve("b") as other:
        stored.take(40)
        stored.arrived()
        arriving.take(40)
        arriving.on_revoke(lambda: revoked.append("arriving"))
        other.take(50)
        assert revoked == ["arriving"]
        with pytest.raises(Backlog):
            arriving.take(1)


def test_a_body_that_has_stalled_gives_way_to_the_same_key(clock: Clock) -> None:
    budget = BodyBudget(100, lambda: clock.seconds)
    with budget.reserve("a") as stalled, budget.reserve("a") as growing, budget.reserve("a") as new:
        stalled.take(50)
        clock.seconds = 4.0
        growing.take(50)
        new.take(40)
        assert stalled.is_revoked
        assert not growing.is_revoked


def test_bodies_of_one_key_under_way_are_bounded_in_number() -> None:
    budget = BodyBudget(100)
    with ExitStack() as stack:
        for _ in range(MOST_BODIES_OF_A_KEY):
            stack.enter_context(budget.reserve("a"))
        with pytest.raises(Backlog), budget.reserve("a"):
            pass
        with budget.reserve("b"):
            pass


def test_of_what_is_set_aside_a_day_keeps_a_gigabyte_whole_and_says_what_it_cuts(clock: Clock) -> None:
    shelf = ItemTruncator(2**20, lambda: round(clock.seconds * 1e6))
    large = RefusedItem(0, "No.", "x" * 2**21)
    assert all(shelf.fitted(large) is large for _ in range(512))
    cut = shelf.fitted(large)
    assert (cut.is_cut, len(cut.text)) == (True, 4096)
    assert cut.reason == "No. Only its first 4 KiB are stored, and it cannot be replayed."
    small = RefusedItem(1, "No.", "x" * 4096)
    assert shelf.fitted(small) is small
    clock.seconds = 3600
    assert shelf.fitted(large) is large


def test_an_item_larger_than_any_event_may_be_is_cut() -> None:
    cut = ItemTruncator(2**20, lambda: 0).fitted(RefusedItem(0, "No.", "x" * (2**21 + 1)))
    assert (cut.is_cut, len(cut.text)) == (True, 2**18)
