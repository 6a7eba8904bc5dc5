"""Limits on the connections of listeners: timeouts, the share of one address, and the choice of the one to close."""

import asyncio
from collections.abc import Callable

from cordwood.listeners.connection import ConnectionBudget
from cordwood.web.request_body import BODY_RATE_GRACE_SECONDS, MAX_READ_STALL_SECONDS, MIN_BODY_BYTES_PER_SECOND


class ManualClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeConnection:
    """A connection that has waited for its sender since it was opened, unless a test sets other values."""

    def __init__(self, address: str, clock: ManualClock, *, is_proven: bool = True) -> None:
        self.peer_address = address
        self.opened_at = clock.now
        self.has_sent_valid_message = is_proven
        self.partial_message_bytes = 0
        self.partial_message_wait_seconds = 0.0
        self.waiting_since: float | None = clock.now
        self.was_cut = False

    def abort(self) -> None:
        self.was_cut = True


def run_with_budget(test: Callable[[ConnectionBudget, ManualClock], None], limit: int = 10) -> None:
    async def inside() -> None:
        clock = ManualClock()
        budget = ConnectionBudget(limit, clock)
        test(budget, clock)
        budget.close()

    asyncio.run(inside())


def test_a_connection_without_a_valid_message_is_closed_and_an_idle_proven_one_is_kept() -> None:
    def test(budget: ConnectionBudget, clock: ManualClock) -> None:
        unproven, proven = FakeConnection("a", clock, is_proven=False), FakeConnection("b", clock)
        assert budget.add(unproven)
        assert budget.add(proven)
        clock.now += 19
        budget.close_overdue_connections()
        assert not unproven.was_cut
        clock.now += 3600
        budget.close_overdue_connections()
        assert (unproven.was_cut, proven.was_cut) == (True, False)
        assert budget.open_connections == (proven,)

    run_with_budget(test)


def test_a_connection_whose_message_stalls_or_is_too_slow_is_closed() -> None:
    def test(budget: ConnectionBudget, clock: ManualClock) -> None:
        stalled, dripping, steady, stored = (FakeConnection("a", clock) for _ in range(4))
        for connection in (stalled, dripping, steady, stored):
            connection.partial_message_bytes = 5
            assert budget.add(connection)
        stored.waiting_since = None
        clock.now += MAX_READ_STALL_SECONDS + 1
        dripping.waiting_since = steady.waiting_since = clock.now - 1
        dripping.partial_message_wait_seconds = steady.partial_message_wait_seconds = BODY_RATE_GRACE_SECONDS + 100
        dripping.partial_message_bytes = 99 * MIN_BODY_BYTES_PER_SECOND
        steady.partial_message_bytes = 102 * MIN_BODY_BYTES_PER_SECOND
        budget.close_overdue_connections()
        assert [item.was_cut for item in (stalled, dripping, steady, stored)] == [True, True, False, False]

    run_with_budget(test)


def test_one_address_holds_at_most_half_of_the_connections() -> None:
    def test(budget: ConnectionBudget, clock: ManualClock) -> None:
        first_connections = []
        for _ in range(20):
            first_connections.append(FakeConnection("crowd", clock))
            assert budget.add(first_connections[-1])
            clock.now += 1
        assert [connection.was_cut for connection in first_connections] == [True] * 15 + [False] * 5
        others = [FakeConnection(f"other-{number}", clock) for number in range(5)]
        assert all(map(budget.add, others))
        assert not any(connection.was_cut for connection in (*first_connections[15:], *others))

    run_with_budget(test)


def test_a_new_connection_replaces_an_unproven_one_or_one_of_the_largest_address() -> None:
    def test(budget: ConnectionBudget, clock: ManualClock) -> None:
        unproven, *others = (FakeConnection(f"{number}", clock, is_proven=bool(number)) for number in range(5))
        pair = [FakeConnection("pair", clock) for _ in range(5)]
        for connection in (unproven, *others, *pair):
            assert budget.add(connection)
        assert budget.add(FakeConnection("new", clock))
        assert unproven.was_cut
        assert budget.add(FakeConnection("newer", clock))
        assert [item.was_cut for item in pair].count(True) == 1

    run_with_budget(test)


def test_connections_whose_messages_are_being_stored_are_not_replaced() -> None:
    def test(budget: ConnectionBudget, clock: ManualClock) -> None:
        busy = [FakeConnection(f"{number}", clock) for number in range(10)]
        for connection in busy:
            connection.waiting_since = None
            assert budget.add(connection)
        assert not budget.add(FakeConnection("new", clock))
        budget.discard(busy[0])
        budget.discard(busy[0])
        assert budget.add(FakeConnection("new", clock))
        assert not any(item.was_cut for item in busy)

    run_with_budget(test)
