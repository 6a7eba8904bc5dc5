"""Few run at once, a bounded number wait for a bounded time, and quick questions go first."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cordwood.errors import Busy
from cordwood.observe.observer import Observer
from cordwood.serve.admission import Admission, AdmissionSlot, CompileSlots, QuerySlots
from cordwood.serve.fair_queue import SERVICE, Lane, WaitingAccounts


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await test()

    asyncio.run(awaited())


def query_gate(places: int, queue_length: int = 100, patience_seconds: float = 10) -> Admission:
    return Admission(QuerySlots(places), queue_length, patience_seconds, Observer())


class Visitor:
    """Takes a turn and keeps it until told to leave."""

    def __init__(self, admission: Admission, lane: Lane, account: str = "one") -> None:
        self.inside = False
        self.waiting = WaitingAccounts(account)
        self.slot: AdmissionSlot | None = None
        self._leave = asyncio.Event()
        self.visit = asyncio.ensure_future(self._take(admission, lane))

    async def _take(self, admission: Admission, lane: Lane) -> None:
        async with admission.slot(lane, self.waiting) as self.slot:
            self.inside = True
            await self._leave.wait()
        self.inside = False

    @property
    def given(self) -> AdmissionSlot:
        assert self.slot is not None
        return self.slot

    async def leave(self) -> None:
        self._leave.set()
        await self.visit


async def arrive(admission: Admission, *lanes: Lane, account: str = "one") -> list[Visitor]:
    visitors = [Visitor(admission, lane, account) for lane in lanes]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return visitors


async def all_leave(visitors: list[Visitor]) -> None:
    for visitor in visitors:
        visitor.visit.cancel()
    await asyncio.gather(*(visitor.visit for visitor in visitors), return_exceptions=True)


def test_no_more_run_than_there_are_places() -> None:
    async def test() -> None:
        admission = query_gate(places=4, queue_length=10, patience_seconds=10)
        visitors = await arrive(admission, *[Lane.QUICK] * 6)
        assert [visitor.inside for visitor in visitors] == [True] * 4 + [False] * 2
        await visitors[0].leave()
        await asyncio.sleep(0)
        assert visitors[4].inside
        await all_leave(visitors)
        assert admission.running == 0

    run(test)


def test_unknown_and_slow_ones_leave_a_place_for_quick_ones() -> None:
    async def test() -> None:
        admission = query_gate(places=4, queue_length=100, patience_seconds=10)
        crowd = await arrive(admission, *[Lane.UNKNOWN] * 20, *[Lane.SLOW] * 20)
        quick = await arrive(admission, Lane.QUICK)
        assert quick[0].inside
        assert sum(visitor.inside for visitor in crowd) == 3
        await all_leave(crowd + quick)

    run(test)


def test_only_one_slow_one_runs_among_four_places() -> None:
    async def test() -> None:
        admission = query_gate(places=4, queue_length=100, patience_seconds=10)
        slow = await arrive(admission, *[Lane.SLOW] * 5)
        unknown = await arrive(admission, Lane.UNKNOWN)
        assert sum(visitor.inside for visitor in slow) == 1
        assert unknown[0].inside
        await all_leave(slow + unknown)

    run(test)


def test_a_queue_that_is_full_says_so_at_once() -> None:
    async def test() -> None:
        admission = query_gate(places=2, queue_length=1, patience_seconds=10)
        visitors = await arrive(admission, Lane.QUICK, Lane.QUICK, Lane.QUICK)
        with pytest.raises(Busy) as told:
            async with admission.slot(Lane.QUICK, WaitingAccounts("one")):
                pass
        assert told.value.retry_after
        await all_leave(visitors)

    run(test)


def test_who_has_waited_too_long_is_told_to_come_back() -> None:
    async def test() -> None:
        admission = query_gate(places=2, queue_length=10, patience_seconds=0.01)
        visitors = await arrive(admission, Lane.QUICK, Lane.QUICK)
        with pytest.raises(Busy):
            async with admission.slot(Lane.QUICK, WaitingAccounts("one")):
                pass
        assert admission.waiting == 0
        await all_leave(visitors)

    run(test)


def test_refreshes_wait_without_counting_as_a_queue() -> None:
    async def test() -> None:
        admission = query_gate(places=2, queue_length=1, patience_seconds=0.01)
        running = await arrive(admission, Lane.QUICK, Lane.QUICK)
        refreshes = await arrive(admission, *[Lane.REFRESH] * 5)
        await asyncio.sleep(0.05)
        assert admission.waiting == 0
        assert not any(visitor.visit.done() for visitor in refreshes)
        await all_leave(running + refreshes)

    run(test)


def test_quick_ones_go_before_others_that_came_first() -> None:
    async def test() -> None:
        admission = query_gate(places=2, queue_length=10, patience_seconds=10)
        running = await arrive(admission, Lane.QUICK, Lane.QUICK)
        waiting = await arrive(admission, Lane.UNKNOWN, Lane.QUICK)
        await running[0].leave()
        await asyncio.sleep(0)
        assert [visitor.inside for visitor in waiting] == [False, True]
        await all_leave(running + waiting)

    run(test)


def test_a_place_given_to_one_who_just_left_is_passed_on() -> None:
    async def test() -> None:
        admission = query_gate(places=2, queue_length=10, patience_seconds=10)
        running = await arrive(admission, Lane.QUICK, Lane.QUICK)
        waiting = await arrive(admission, Lane.QUICK, Lane.QUICK)
        running[0]._leave.set()
        await running[0].visit
        waiting[0].visit.cancel()
        await asyncio.gather(waiting[0].visit, return_exceptions=True)
        await asyncio.sleep(0)
        assert waiting[1].inside
        await all_leave(running + waiting)
        assert admission.running == 0

    run(test)


class Clock:
    """Tells the time that the test says it is."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def clocked_gate(places: int) -> tuple[Admission, Clock]:
    clock = Clock()
    return Admission(QuerySlots(places), 100, 10, Observer(), clock), clock


def inside(visitors: list[Visitor]) -> int:
    return sum(visitor.inside for visitor in visitors)


def test_texts_of_callers_never_take_the_places_of_saved_queries() -> None:
    async def test() -> None:
        for places, own in ((2, 1), (4, 3), (8, 6), (16, 12)):
            admission = query_gate(places)
            texts = await arrive(admission, *[Lane.OWN_QUICK, Lane.UNKNOWN, Lane.OWN_SLOW] * 16)
            saved = await arrive(admission, *[Lane.QUICK] * 16)
            assert (inside(texts), inside(saved)) == (own, places - own)
            await all_leave(texts + saved)

    run(test)


def test_with_two_places_a_slow_saved_query_and_a_callers_text_take_turns() -> None:
    async def test() -> None:
        admission = query_gate(2)
        text = await arrive(admission, Lane.UNKNOWN, account="caller")
        saved = await arrive(admission, Lane.SLOW, account="another")
        next_text = await arrive(admission, Lane.UNKNOWN, account="caller")
        quick = await arrive(admission, Lane.QUICK, account="dashboard")
        assert [inside(one) for one in (text, saved, next_text, quick)] == [1, 0, 0, 1]
        await text[0].leave()
        await asyncio.sleep(0)
        assert [inside(one) for one in (saved, next_text)] == [1, 0]
        await saved[0].leave()
        await asyncio.sleep(0)
        assert inside(next_text) == 1
        await all_leave(next_text + quick)

    run(test)


def test_a_slow_text_of_a_caller_does_not_keep_slow_saved_queries_out() -> None:
    async def test() -> None:
        admission = query_gate(4)
        texts = await arrive(admission, *[Lane.OWN_SLOW] * 4, account="attacker")
        saved = await arrive(admission, Lane.SLOW, account="dashboard")
        assert (inside(texts), inside(saved)) == (1, 1)
        await all_leave(texts + saved)

    run(test)


def test_one_caller_may_use_all_that_is_idle() -> None:
    async def test() -> None:
        admission = query_gate(4)
        texts = await arrive(admission, *[Lane.UNKNOWN] * 4)
        assert inside(texts) == 3
        await all_leave(texts)

    run(test)


def test_the_next_place_is_for_the_caller_that_has_used_the_least() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(4)
        crowd = await arrive(admission, *[Lane.UNKNOWN] * 50, account="heavy")
        clock.seconds = 1.0
        light = await arrive(admission, *[Lane.UNKNOWN] * 2, account="light")
        for visitor in crowd[:2]:
            await visitor.leave()
        await asyncio.sleep(0)
        assert inside(light) == 2
        assert admission.waiting == 47
        await all_leave(crowd + light)

    run(test)


def test_what_was_used_is_forgotten_after_a_while() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(4)
        before = await arrive(admission, Lane.UNKNOWN, account="heavy")
        clock.seconds = 8.0
        await all_leave(before)
        assert admission._usage.of("heavy") == pytest.approx(8.0)
        clock.seconds += 5.0
        assert admission._usage.of("heavy") == pytest.approx(4.0)
        clock.seconds += 60.0
        assert admission._usage.of("heavy") < 0.01

    run(test)


def test_quick_ones_of_a_heavy_caller_do_not_go_before_a_light_callers_texts() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(4)
        running = await arrive(admission, *[Lane.QUICK] * 4, account="heavy")
        clock.seconds = 1.0
        waiting = await arrive(admission, *[Lane.QUICK] * 20, account="heavy")
        light = await arrive(admission, Lane.UNKNOWN, account="light")
        await running[0].leave()
        await asyncio.sleep(0)
        assert (inside(light), inside(waiting)) == (1, 0)
        await all_leave(running + waiting + light)

    run(test)


def test_a_full_queue_refuses_the_caller_that_has_most_waiting() -> None:
    async def test() -> None:
        admission = query_gate(2, queue_length=10)
        crowd = await arrive(admission, *[Lane.QUICK] * 12, account="crowd")
        others = await arrive(admission, *[Lane.QUICK] * 7, account="other")
        # Two of the crowd run, ten waited; it is left with as many as the other has.
        refused = [visitor for visitor in crowd if visitor.visit.done()]
        assert refused == crowd[-5:]
        assert all(isinstance(visitor.visit.exception(), Busy) for visitor in refused)
        assert [visitor.visit.done() for visitor in others] == [False] * 5 + [True] * 2
        assert admission.waiting == 10
        await all_leave(crowd + others)

    run(test)


def test_a_saved_query_takes_the_place_of_a_text_of_its_own_caller_in_a_full_queue() -> None:
    async def test() -> None:
        admission = query_gate(2, queue_length=2)
        running = await arrive(admission, Lane.QUICK, Lane.QUICK)
        texts = await arrive(admission, Lane.UNKNOWN, Lane.UNKNOWN)
        saved = await arrive(admission, Lane.QUICK)
        assert [visitor.visit.done() for visitor in texts + saved] == [False, True, False]
        await all_leave(running + texts + saved)

    run(test)


def test_who_joins_a_run_that_waits_does_not_wait_behind_the_queries_of_who_began_it() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(2)
        crowd = await arrive(admission, *[Lane.QUICK] * 30, account="crowd")
        clock.seconds = 1.0
        last = crowd[-1]
        last.waiting.join("light")
        await crowd[0].leave()
        await asyncio.sleep(0)
        assert last.inside
        assert last.given.account == "light"
        await all_leave(crowd)
        assert (admission.running, admission.waiting) == (0, 0)

    run(test)


def test_a_refused_crowd_does_not_take_along_who_joined_one_of_its_runs() -> None:
    async def test() -> None:
        admission = query_gate(2, queue_length=3)
        crowd = await arrive(admission, *[Lane.QUICK] * 5, account="crowd")
        crowd[-1].waiting.join("light")
        other = await arrive(admission, Lane.QUICK, account="other")
        assert [visitor.visit.done() for visitor in crowd] == [False, False, False, True, False]
        await all_leave(crowd + other)

    run(test)


def test_a_refresh_that_a_caller_joins_is_one_no_more() -> None:
    async def test() -> None:
        admission = query_gate(2)
        running = await arrive(admission, Lane.QUICK, Lane.QUICK)
        refreshes = await arrive(admission, Lane.REFRESH, Lane.REFRESH, account=SERVICE)
        refreshes[1].waiting.join("caller")
        assert admission.waiting == 1
        await running[0].leave()
        await asyncio.sleep(0)
        assert [refresh.inside for refresh in refreshes] == [False, True]
        await all_leave(running + refreshes)
        assert (admission.running, admission.waiting) == (0, 0)

    run(test)


def test_a_run_yields_to_a_caller_that_has_used_less_and_to_none_that_has_used_more() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(4)
        heavy = await arrive(admission, Lane.UNKNOWN, Lane.UNKNOWN, account="heavy")
        clock.seconds = 1.0
        light = await arrive(admission, Lane.UNKNOWN, account="light")
        waiting = await arrive(admission, Lane.UNKNOWN, account="heavy")
        assert not light[0].given.must_yield()
        assert heavy[0].given.must_yield()
        assert not heavy[1].given.must_yield(), "one waits, so one yields"
        await all_leave(heavy + light + waiting)

    run(test)


def test_a_text_yields_to_a_saved_query_however_much_its_caller_has_used() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(2)
        saved = await arrive(admission, Lane.QUICK, account="dashboard")
        clock.seconds = 5.0
        text = await arrive(admission, Lane.UNKNOWN, account="caller")
        assert inside(text) == 1
        waiting = await arrive(admission, Lane.QUICK, account="dashboard")
        assert text[0].given.must_yield()
        await all_leave(saved + text + waiting)

    run(test)


def test_runs_that_cannot_be_started_again_lend_their_places_and_few_do_at_once() -> None:
    async def test() -> None:
        admission, clock = clocked_gate(4)
        streams: list[Visitor] = []
        for second in range(5):
            streams += await arrive(admission, Lane.UNKNOWN, account=f"caller {second % 2}")
            clock.seconds += 1.0
            streams[-1].given.lend()
        assert inside(streams) == 5
        assert admission.running == 0
        withdrawn = [stream.given.is_withdrawn for stream in streams]
        assert sum(withdrawn) == 1
        assert withdrawn[0] or withdrawn[2] or withdrawn[4], "the caller with most of them loses one"
        await all_leave(streams)
        assert admission.running == 0

    run(test)


def test_it_is_starved_from_the_first_that_waited_in_vain_until_a_place_is_given() -> None:
    async def test() -> None:
        admission = query_gate(2, patience_seconds=0.01)
        running = await arrive(admission, Lane.QUICK, Lane.QUICK)
        assert admission.starved_seconds == 0
        waiting = await arrive(admission, Lane.QUICK)
        await asyncio.gather(waiting[0].visit, return_exceptions=True)
        assert admission.starved_seconds > 0
        await running[0].leave()
        assert admission.starved_seconds == 0
        await all_leave(running)

    run(test)


def test_texts_of_callers_whose_texts_took_long_leave_a_place_to_compile() -> None:
    async def test() -> None:
        admission = Admission(CompileSlots(2), 100, 10, Observer())
        heavy = await arrive(admission, *[Lane.OWN_SLOW] * 5)
        light = await arrive(admission, Lane.UNKNOWN, account="light")
        assert (inside(heavy), inside(light)) == (1, 1)
        await all_leave(heavy + light)

    run(test)


def test_those_who_leave_in_any_state_leave_nothing_behind() -> None:
    async def test() -> None:
        admission = query_gate(2, queue_length=3)
        visitors = await arrive(admission, *[Lane.UNKNOWN, Lane.QUICK, Lane.REFRESH, Lane.OWN_SLOW] * 5)
        for visitor in visitors[1::2]:
            visitor.visit.cancel()
        await asyncio.sleep(0)
        visitors += await arrive(admission, *[Lane.QUICK] * 5, account="other")
        await all_leave(visitors)
        assert (admission.running, admission.waiting) == (0, 0)
        assert inside(await arrive(admission, Lane.QUICK)) == 1

    run(test)
