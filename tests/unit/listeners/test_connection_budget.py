"""The bounds on connections of listeners: strangers are closed in time, and one address holds its part alone."""

import asyncio
from collections.abc import Callable

from cordwood.listeners.connection_budget import ConnectionBudget
from cordwood.web.receiving import GRACE_SECONDS, LEAST_BYTES_PER_SECOND, STALL_SECONDS


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class One:
    """A connection that waits for its sender since it was opened, unless a test says otherwise."""

    def __init__(self, address: str, clock: Clock, *, is_proven: bool = True) -> None:
        self.address = address
        self.opened_at = clock.now
        self.is_proven = is_proven
        self.partial_bytes = 0
        self.waited_seconds = 0.0
        self.waiting_since: float | None = clock.now
        self.was_cut = False

    def cut(self) -> None:
        self.was_cut = True


def run(work: Callable[[ConnectionBudget, Clock], None], most: int = 10) -> None:
    async def inside() -> None:
        clock = Clock()
        budget = ConnectionBudget(most, clock)
        work(budget, clock)
        budget.close()

    asyncio.run(inside())


def test_a_stranger_that_says_nothing_is_closed_and_an_idle_sender_is_kept() -> None:
    def work(budget: ConnectionBudget, clock: Clock) -> None:
        stranger, known = One("a", clock, is_proven=False), One("b", clock)
        assert budget.add(stranger)
        assert budget.add(known)
        clock.now += 19
        budget.sweep()
        assert not stranger.was_cut
        clock.now += 3600
        budget.sweep()
        assert (stranger.was_cut, known.was_cut) == (True, False)
        assert budget.open_connections == (known,)

    run(work)


def test_an_unfinished_message_that_stalls_or_drips_is_closed() -> None:
    def work(budget: ConnectionBudget, clock: Clock) -> None:
        stalled, dripping, steady, stored = (One("a", clock) for _ in range(4))
        for one in (stalled, dripping, steady, stored):
            one.partial_bytes = 5
            assert budget.add(one)
        stored.waiting_since = None
        clock.now += STALL_SECONDS + 1
        dripping.waiting_since = steady.waiting_since = clock.now - 1
        dripping.waited_seconds = steady.waited_seconds = GRACE_SECONDS + 100
        dripping.partial_bytes = 99 * LEAST_BYTES_PER_SECOND
        steady.partial_bytes = 102 * LEAST_BYTES_PER_SECOND
        budget.sweep()
        assert [one.was_cut for one in (stalled, dripping, steady, stored)] == [True, True, False, False]

    run(work)


def test_one_address_holds_half_of_the_places() -> None:
    def work(budget: ConnectionBudget, clock: Clock) -> None:
        crowd = []
        for _ in range(20):
            crowd.append(One("crowd", clock))
            assert budget.add(crowd[-1])
            clock.now += 1
        assert [one.was_cut for one in crowd] == [True] * 15 + [False] * 5
        others = [One(f"other-{number}", clock) for number in range(5)]
        assert all(map(budget.add, others))
        assert not any(one.was_cut for one in (*crowd[15:], *others))

    run(work)


def test_a_new_connection_takes_the_place_of_a_stranger_first_then_of_the_largest_address() -> None:
    def work(budget: ConnectionBudget, clock: Clock) -> None:
        stranger, *others = (One(f"{number}", clock, is_proven=bool(number)) for number in range(5))
        pair = [One("pair", clock) for _ in range(5)]
        for one in (stranger, *others, *pair):
            assert budget.add(one)
        assert budget.add(One("new", clock))
        assert stranger.was_cut
        assert budget.add(One("newer", clock))
        assert [one.was_cut for one in pair].count(True) == 1

    run(work)


def test_connections_that_are_being_stored_are_not_closed_for_others() -> None:
    def work(budget: ConnectionBudget, clock: Clock) -> None:
        busy = [One(f"{number}", clock) for number in range(10)]
        for one in busy:
            one.waiting_since = None
            assert budget.add(one)
        assert not budget.add(One("new", clock))
        budget.discard(busy[0])
        budget.discard(busy[0])
        assert budget.add(One("new", clock))
        assert not any(one.was_cut for one in busy)

    run(work)
