"""Admission: only a few queries run at once, others wait in a bounded queue for a bounded time, and quick ones go
first.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cordwood.errors import ServiceBusy
from cordwood.observe.observation import Observer
from cordwood.serve.admission import (
    BACKGROUND_ACCOUNT,
    AdmissionController,
    AdmissionLane,
    AdmissionSlot,
    CompileSlotPolicy,
    QuerySlotPolicy,
    WaitingAccounts,
)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await test()

    asyncio.run(awaited())


def make_admission(slots: int, queue_length: int = 100, patience_seconds: float = 10) -> AdmissionController:
    return AdmissionController(QuerySlotPolicy(slots), queue_length, patience_seconds, Observer())


class QueuedRun:
    """A run that acquires an admission slot, and holds it until `release_slot` is called."""

    def __init__(self, admission: AdmissionController, lane: AdmissionLane, account: str = "one") -> None:
        self.inside = False
        self.waiting = WaitingAccounts(account)
        self.slot: AdmissionSlot | None = None
        self._leave = asyncio.Event()
        self.visit = asyncio.ensure_future(self._take(admission, lane))

    async def _take(self, admission: AdmissionController, lane: AdmissionLane) -> None:
        async with admission.hold_slot(lane, self.waiting) as self.slot:
            self.inside = True
            await self._leave.wait()
        self.inside = False

    @property
    def has_slot(self) -> AdmissionSlot:
        assert self.slot is not None
        return self.slot

    async def release_slot(self) -> None:
        self._leave.set()
        await self.visit


async def queue_visitors(
    admission: AdmissionController, *lanes: AdmissionLane, account: str = "one"
) -> list[QueuedRun]:
    visitors = [QueuedRun(admission, lane, account) for lane in lanes]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return visitors


async def release_visitors(visitors: list[QueuedRun]) -> None:
    for visitor in visitors:
        visitor.visit.cancel()
    await asyncio.gather(*(visitor.visit for visitor in visitors), return_exceptions=True)


def test_no_more_queries_run_than_there_are_slots() -> None:
    async def test() -> None:
        admission = make_admission(slots=4, queue_length=10, patience_seconds=10)
        visitors = await queue_visitors(admission, *[AdmissionLane.QUICK] * 6)
        assert [visitor.inside for visitor in visitors] == [True] * 4 + [False] * 2
        await visitors[0].release_slot()
        await asyncio.sleep(0)
        assert visitors[4].inside
        await release_visitors(visitors)
        assert admission.running_count == 0

    run(test)


def test_unknown_and_slow_queries_leave_a_slot_for_quick_ones() -> None:
    async def test() -> None:
        admission = make_admission(slots=4, queue_length=100, patience_seconds=10)
        slow_visitors = await queue_visitors(admission, *[AdmissionLane.UNKNOWN] * 20, *[AdmissionLane.SLOW] * 20)
        quick = await queue_visitors(admission, AdmissionLane.QUICK)
        assert quick[0].inside
        assert sum(visitor.inside for visitor in slow_visitors) == 3
        await release_visitors(slow_visitors + quick)

    run(test)


def test_only_one_of_four_slots_runs_a_slow_query() -> None:
    async def test() -> None:
        admission = make_admission(slots=4, queue_length=100, patience_seconds=10)
        slow = await queue_visitors(admission, *[AdmissionLane.SLOW] * 5)
        unknown = await queue_visitors(admission, AdmissionLane.UNKNOWN)
        assert sum(visitor.inside for visitor in slow) == 1
        assert unknown[0].inside
        await release_visitors(slow + unknown)

    run(test)


def test_a_full_queue_refuses_at_once() -> None:
    async def test() -> None:
        admission = make_admission(slots=2, queue_length=1, patience_seconds=10)
        visitors = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK, AdmissionLane.QUICK)
        with pytest.raises(ServiceBusy) as raised:
            async with admission.hold_slot(AdmissionLane.QUICK, WaitingAccounts("one")):
                pass
        assert raised.value.retry_after
        await release_visitors(visitors)

    run(test)


def test_a_run_that_waited_too_long_is_refused() -> None:
    async def test() -> None:
        admission = make_admission(slots=2, queue_length=10, patience_seconds=0.01)
        visitors = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        with pytest.raises(ServiceBusy):
            async with admission.hold_slot(AdmissionLane.QUICK, WaitingAccounts("one")):
                pass
        assert admission.queued_count == 0
        await release_visitors(visitors)

    run(test)


def test_refreshes_wait_without_counting_as_queued() -> None:
    async def test() -> None:
        admission = make_admission(slots=2, queue_length=1, patience_seconds=0.01)
        running = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        refreshes = await queue_visitors(admission, *[AdmissionLane.REFRESH] * 5)
        await asyncio.sleep(0.05)
        assert admission.queued_count == 0
        assert not any(visitor.visit.done() for visitor in refreshes)
        await release_visitors(running + refreshes)

    run(test)


def test_quick_queries_overtake_earlier_unknown_ones() -> None:
    async def test() -> None:
        admission = make_admission(slots=2, queue_length=10, patience_seconds=10)
        running = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        waiting = await queue_visitors(admission, AdmissionLane.UNKNOWN, AdmissionLane.QUICK)
        await running[0].release_slot()
        await asyncio.sleep(0)
        assert [visitor.inside for visitor in waiting] == [False, True]
        await release_visitors(running + waiting)

    run(test)


def test_a_slot_granted_to_a_cancelled_run_is_passed_on() -> None:
    async def test() -> None:
        admission = make_admission(slots=2, queue_length=10, patience_seconds=10)
        running = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        waiting = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        running[0]._leave.set()
        await running[0].visit
        waiting[0].visit.cancel()
        await asyncio.gather(waiting[0].visit, return_exceptions=True)
        await asyncio.sleep(0)
        assert waiting[1].inside
        await release_visitors(running + waiting)
        assert admission.running_count == 0

    run(test)


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def make_clocked_admission(slots: int) -> tuple[AdmissionController, ManualClock]:
    clock = ManualClock()
    return AdmissionController(QuerySlotPolicy(slots), 100, 10, Observer(), clock), clock


def running_count(visitors: list[QueuedRun]) -> int:
    return sum(visitor.inside for visitor in visitors)


def test_own_queries_of_callers_leave_slots_for_saved_queries() -> None:
    async def test() -> None:
        for places, own in ((2, 1), (4, 3), (8, 6), (16, 12)):
            admission = make_admission(places)
            text_visitors = await queue_visitors(
                admission, *[AdmissionLane.OWN_QUICK, AdmissionLane.UNKNOWN, AdmissionLane.OWN_SLOW] * 16
            )
            saved = await queue_visitors(admission, *[AdmissionLane.QUICK] * 16)
            assert (running_count(text_visitors), running_count(saved)) == (own, places - own)
            await release_visitors(text_visitors + saved)

    run(test)


def test_with_two_slots_a_slow_saved_query_and_an_unknown_one_alternate() -> None:
    async def test() -> None:
        admission = make_admission(2)
        text = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="caller")
        saved = await queue_visitors(admission, AdmissionLane.SLOW, account="another")
        next_text = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="caller")
        quick = await queue_visitors(admission, AdmissionLane.QUICK, account="dashboard")
        assert [running_count(visitors) for visitors in (text, saved, next_text, quick)] == [1, 0, 0, 1]
        await text[0].release_slot()
        await asyncio.sleep(0)
        assert [running_count(visitors) for visitors in (saved, next_text)] == [1, 0]
        await saved[0].release_slot()
        await asyncio.sleep(0)
        assert running_count(next_text) == 1
        await release_visitors(next_text + quick)

    run(test)


def test_slow_own_queries_do_not_block_slow_saved_ones() -> None:
    async def test() -> None:
        admission = make_admission(4)
        text_visitors = await queue_visitors(admission, *[AdmissionLane.OWN_SLOW] * 4, account="attacker")
        saved = await queue_visitors(admission, AdmissionLane.SLOW, account="dashboard")
        assert (running_count(text_visitors), running_count(saved)) == (1, 1)
        await release_visitors(text_visitors + saved)

    run(test)


def test_one_caller_may_use_all_idle_slots() -> None:
    async def test() -> None:
        admission = make_admission(4)
        text_visitors = await queue_visitors(admission, *[AdmissionLane.UNKNOWN] * 4)
        assert running_count(text_visitors) == 3
        await release_visitors(text_visitors)

    run(test)


def test_the_next_slot_goes_to_the_caller_with_the_least_usage() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(4)
        heavy_visitors = await queue_visitors(admission, *[AdmissionLane.UNKNOWN] * 50, account="heavy")
        clock.seconds = 1.0
        light = await queue_visitors(admission, *[AdmissionLane.UNKNOWN] * 2, account="light")
        for visitor in heavy_visitors[:2]:
            await visitor.release_slot()
        await asyncio.sleep(0)
        assert running_count(light) == 2
        assert admission.queued_count == 47
        await release_visitors(heavy_visitors + light)

    run(test)


def test_usage_decays_over_time() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(4)
        before = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="heavy")
        clock.seconds = 8.0
        await release_visitors(before)
        assert admission._slot_usage.used_seconds("heavy") == pytest.approx(8.0)
        clock.seconds += 5.0
        assert admission._slot_usage.used_seconds("heavy") == pytest.approx(4.0)
        clock.seconds += 60.0
        assert admission._slot_usage.used_seconds("heavy") < 0.01

    run(test)


def test_the_usage_of_a_caller_has_precedence_over_the_lane_of_its_query() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(4)
        running = await queue_visitors(admission, *[AdmissionLane.QUICK] * 4, account="heavy")
        clock.seconds = 1.0
        waiting = await queue_visitors(admission, *[AdmissionLane.QUICK] * 20, account="heavy")
        light = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="light")
        await running[0].release_slot()
        await asyncio.sleep(0)
        assert (running_count(light), running_count(waiting)) == (1, 0)
        await release_visitors(running + waiting + light)

    run(test)


def test_a_full_queue_refuses_the_caller_with_the_most_waiting_queries() -> None:
    async def test() -> None:
        admission = make_admission(2, queue_length=10)
        crowd_visitors = await queue_visitors(admission, *[AdmissionLane.QUICK] * 12, account="crowd")
        other_visitors = await queue_visitors(admission, *[AdmissionLane.QUICK] * 7, account="other")
        # Two queries of the crowd run and ten waited, of which five were refused. Each account has five in the queue.
        refused = [visitor for visitor in crowd_visitors if visitor.visit.done()]
        assert refused == crowd_visitors[-5:]
        assert all(isinstance(visitor.visit.exception(), ServiceBusy) for visitor in refused)
        assert [visitor.visit.done() for visitor in other_visitors] == [False] * 5 + [True] * 2
        assert admission.queued_count == 10
        await release_visitors(crowd_visitors + other_visitors)

    run(test)


def test_in_a_full_queue_a_saved_query_displaces_an_own_query_of_its_caller() -> None:
    async def test() -> None:
        admission = make_admission(2, queue_length=2)
        running = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        text_visitors = await queue_visitors(admission, AdmissionLane.UNKNOWN, AdmissionLane.UNKNOWN)
        saved = await queue_visitors(admission, AdmissionLane.QUICK)
        assert [visitor.visit.done() for visitor in text_visitors + saved] == [False, True, False]
        await release_visitors(running + text_visitors + saved)

    run(test)


def test_a_waiting_run_has_the_priority_of_a_caller_that_joins_it() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(2)
        crowd_visitors = await queue_visitors(admission, *[AdmissionLane.QUICK] * 30, account="crowd")
        clock.seconds = 1.0
        last_visitor = crowd_visitors[-1]
        last_visitor.waiting.join("light")
        await crowd_visitors[0].release_slot()
        await asyncio.sleep(0)
        assert last_visitor.inside
        assert last_visitor.has_slot.charged_account == "light"
        await release_visitors(crowd_visitors)
        assert (admission.running_count, admission.queued_count) == (0, 0)

    run(test)


def test_a_run_that_another_caller_joined_is_not_refused_with_its_starter() -> None:
    async def test() -> None:
        admission = make_admission(2, queue_length=3)
        crowd_visitors = await queue_visitors(admission, *[AdmissionLane.QUICK] * 5, account="crowd")
        crowd_visitors[-1].waiting.join("light")
        other = await queue_visitors(admission, AdmissionLane.QUICK, account="other")
        assert [visitor.visit.done() for visitor in crowd_visitors] == [False, False, False, True, False]
        await release_visitors(crowd_visitors + other)

    run(test)


def test_a_refresh_that_a_caller_joins_is_queued_as_a_query() -> None:
    async def test() -> None:
        admission = make_admission(2)
        running = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        refreshes = await queue_visitors(
            admission, AdmissionLane.REFRESH, AdmissionLane.REFRESH, account=BACKGROUND_ACCOUNT
        )
        refreshes[1].waiting.join("caller")
        assert admission.queued_count == 1
        await running[0].release_slot()
        await asyncio.sleep(0)
        assert [refresh.inside for refresh in refreshes] == [False, True]
        await release_visitors(running + refreshes)
        assert (admission.running_count, admission.queued_count) == (0, 0)

    run(test)


def test_a_run_yields_only_to_a_caller_with_less_usage() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(4)
        heavy = await queue_visitors(admission, AdmissionLane.UNKNOWN, AdmissionLane.UNKNOWN, account="heavy")
        clock.seconds = 1.0
        light = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="light")
        waiting = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="heavy")
        assert not light[0].has_slot.must_yield()
        assert heavy[0].has_slot.must_yield()
        assert not heavy[1].has_slot.must_yield(), "one waits, so one yields"
        await release_visitors(heavy + light + waiting)

    run(test)


def test_an_own_query_yields_to_a_saved_query_whatever_the_usage() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(2)
        saved = await queue_visitors(admission, AdmissionLane.QUICK, account="dashboard")
        clock.seconds = 5.0
        text = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="caller")
        assert running_count(text) == 1
        waiting = await queue_visitors(admission, AdmissionLane.QUICK, account="dashboard")
        assert text[0].has_slot.must_yield()
        await release_visitors(saved + text + waiting)

    run(test)


def test_streaming_runs_lend_their_slots_up_to_a_limit() -> None:
    async def test() -> None:
        admission, clock = make_clocked_admission(4)
        streams: list[QueuedRun] = []
        for second in range(5):
            streams += await queue_visitors(admission, AdmissionLane.UNKNOWN, account=f"caller {second % 2}")
            clock.seconds += 1.0
            streams[-1].has_slot.lend_to_queued_request()
        assert running_count(streams) == 5
        assert admission.running_count == 0
        withdrawn = [stream.has_slot.is_withdrawn for stream in streams]
        assert sum(withdrawn) == 1
        assert withdrawn[0] or withdrawn[2] or withdrawn[4], "the caller with most of them loses one"
        await release_visitors(streams)
        assert admission.running_count == 0

    run(test)


def test_starvation_lasts_from_a_timed_out_wait_until_a_slot_is_granted() -> None:
    async def test() -> None:
        admission = make_admission(2, patience_seconds=0.01)
        running = await queue_visitors(admission, AdmissionLane.QUICK, AdmissionLane.QUICK)
        assert admission.queue_stalled_seconds == 0
        waiting = await queue_visitors(admission, AdmissionLane.QUICK)
        await asyncio.gather(waiting[0].visit, return_exceptions=True)
        assert admission.queue_stalled_seconds > 0
        await running[0].release_slot()
        assert admission.queue_stalled_seconds == 0
        await release_visitors(running)

    run(test)


def test_slow_compilations_leave_a_compile_slot_free() -> None:
    async def test() -> None:
        admission = AdmissionController(CompileSlotPolicy(2), 100, 10, Observer())
        heavy = await queue_visitors(admission, *[AdmissionLane.OWN_SLOW] * 5)
        light = await queue_visitors(admission, AdmissionLane.UNKNOWN, account="light")
        assert (running_count(heavy), running_count(light)) == (1, 1)
        await release_visitors(heavy + light)

    run(test)


def test_cancelled_runs_release_everything_in_any_state() -> None:
    async def test() -> None:
        admission = make_admission(2, queue_length=3)
        visitors = await queue_visitors(
            admission, *[AdmissionLane.UNKNOWN, AdmissionLane.QUICK, AdmissionLane.REFRESH, AdmissionLane.OWN_SLOW] * 5
        )
        for visitor in visitors[1::2]:
            visitor.visit.cancel()
        await asyncio.sleep(0)
        visitors += await queue_visitors(admission, *[AdmissionLane.QUICK] * 5, account="other")
        await release_visitors(visitors)
        assert (admission.running_count, admission.queued_count) == (0, 0)
        assert running_count(await queue_visitors(admission, AdmissionLane.QUICK)) == 1

    run(test)
