"""Few run at once, a bounded number wait for a bounded time, and quick questions go first."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cordwood.errors import Busy
from cordwood.serve.gate import Gate, Lane


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await test()

    asyncio.run(awaited())


class Visitor:
    """Takes a turn and keeps it until told to leave."""

    def __init__(self, gate: Gate, lane: Lane) -> None:
        self.inside = False
        self._leave = asyncio.Event()
        self.visit = asyncio.ensure_future(self._take(gate, lane))

    async def _take(self, gate: Gate, lane: Lane) -> None:
        async with gate.turn(lane):
            self.inside = True
            await self._leave.wait()
        self.inside = False

    async def leave(self) -> None:
        self._leave.set()
        await self.visit


async def arrive(gate: Gate, *lanes: Lane) -> list[Visitor]:
    visitors = [Visitor(gate, lane) for lane in lanes]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return visitors


async def all_leave(visitors: list[Visitor]) -> None:
    for visitor in visitors:
        visitor.visit.cancel()
    await asyncio.gather(*(visitor.visit for visitor in visitors), return_exceptions=True)


def test_no_more_run_than_there_are_places() -> None:
    async def test() -> None:
        gate = Gate(places=4, queue_length=10, patience_seconds=10)
        visitors = await arrive(gate, *[Lane.QUICK] * 6)
        assert [visitor.inside for visitor in visitors] == [True] * 4 + [False] * 2
        await visitors[0].leave()
        await asyncio.sleep(0)
        assert visitors[4].inside
        await all_leave(visitors)
        assert gate.running == 0

    run(test)


def test_unknown_and_slow_ones_leave_a_place_for_quick_ones() -> None:
    async def test() -> None:
        gate = Gate(places=4, queue_length=100, patience_seconds=10)
        crowd = await arrive(gate, *[Lane.UNKNOWN] * 20, *[Lane.SLOW] * 20)
        quick = await arrive(gate, Lane.QUICK)
        assert quick[0].inside
        assert sum(visitor.inside for visitor in crowd) == 3
        await all_leave(crowd + quick)

    run(test)


def test_only_one_slow_one_runs_among_four_places() -> None:
    async def test() -> None:
        gate = Gate(places=4, queue_length=100, patience_seconds=10)
        slow = await arrive(gate, *[Lane.SLOW] * 5)
        unknown = await arrive(gate, Lane.UNKNOWN)
        assert sum(visitor.inside for visitor in slow) == 1
        assert unknown[0].inside
        await all_leave(slow + unknown)

    run(test)


def test_a_queue_that_is_full_says_so_at_once() -> None:
    async def test() -> None:
        gate = Gate(places=2, queue_length=1, patience_seconds=10)
        visitors = await arrive(gate, Lane.QUICK, Lane.QUICK, Lane.QUICK)
        with pytest.raises(Busy) as told:
            async with gate.turn(Lane.QUICK):
                pass
        assert told.value.retry_after
        await all_leave(visitors)

    run(test)


def test_who_has_waited_too_long_is_told_to_come_back() -> None:
    async def test() -> None:
        gate = Gate(places=2, queue_length=10, patience_seconds=0.01)
        visitors = await arrive(gate, Lane.QUICK, Lane.QUICK)
        with pytest.raises(Busy):
            async with gate.turn(Lane.QUICK):
                pass
        assert gate.waiting == 0
        await all_leave(visitors)

    run(test)


def test_refreshes_wait_without_counting_as_a_queue() -> None:
    async def test() -> None:
        gate = Gate(places=2, queue_length=1, patience_seconds=0.01)
        running = await arrive(gate, Lane.QUICK, Lane.QUICK)
        refreshes = await arrive(gate, *[Lane.REFRESH] * 5)
        await asyncio.sleep(0.05)
        assert gate.waiting == 0
        assert not any(visitor.visit.done() for visitor in refreshes)
        await all_leave(running + refreshes)

    run(test)


def test_quick_ones_go_before_others_that_came_first() -> None:
    async def test() -> None:
        gate = Gate(places=2, queue_length=10, patience_seconds=10)
        running = await arrive(gate, Lane.QUICK, Lane.QUICK)
        waiting = await arrive(gate, Lane.UNKNOWN, Lane.QUICK)
        await running[0].leave()
        await asyncio.sleep(0)
        assert [visitor.inside for visitor in waiting] == [False, True]
        await all_leave(running + waiting)

    run(test)


def test_a_place_given_to_one_who_just_left_is_passed_on() -> None:
    async def test() -> None:
        gate = Gate(places=2, queue_length=10, patience_seconds=10)
        running = await arrive(gate, Lane.QUICK, Lane.QUICK)
        waiting = await arrive(gate, Lane.QUICK, Lane.QUICK)
        running[0]._leave.set()
        await running[0].visit
        waiting[0].visit.cancel()
        await asyncio.gather(waiting[0].visit, return_exceptions=True)
        await asyncio.sleep(0)
        assert waiting[1].inside
        await all_leave(running + waiting)
        assert gate.running == 0

    run(test)
