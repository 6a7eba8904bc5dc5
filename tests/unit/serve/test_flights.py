"""Equal questions at once are one run, for as long as somebody waits for it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cordwood.engines.cancel_token import CancelToken
from cordwood.errors import QueryValue
from cordwood.serve.fair_queue import WaitingAccounts
from cordwood.serve.singleflight import SingleFlight


class Runs:
    """Runs that end when told, and are counted."""

    def __init__(self) -> None:
        self.halts: list[CancelToken] = []
        self.end = asyncio.Event()

    async def start(self, halt: CancelToken, _: WaitingAccounts) -> str:
        self.halts.append(halt)
        await self.end.wait()
        return f"answer {len(self.halts)}"


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(_awaited(test))


async def _awaited(test: Callable[[], Awaitable[None]]) -> None:
    await test()


def test_many_who_ask_at_once_get_one_runs_answer() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), Runs()
        asking = [asyncio.ensure_future(flights.join(b"q", "one", runs.start)) for _ in range(500)]
        await asyncio.sleep(0)
        runs.end.set()
        assert set(await asyncio.gather(*asking)) == {"answer 1"}
        assert len(runs.halts) == 1

    run(test)


def test_different_questions_are_different_runs() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), Runs()
        runs.end.set()
        await asyncio.gather(flights.join(b"q", "one", runs.start), flights.join(b"r", "one", runs.start))
        assert len(runs.halts) == 2

    run(test)


def test_the_others_get_their_answer_when_the_first_caller_goes_away() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), Runs()
        asking = [asyncio.ensure_future(flights.join(b"q", "one", runs.start)) for _ in range(3)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        assert not runs.halts[0].is_cancelled
        runs.end.set()
        assert await asyncio.gather(*asking[1:]) == ["answer 1", "answer 1"]

    run(test)


def test_the_run_is_stopped_in_the_engine_when_all_have_gone() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), Runs()
        asking = [asyncio.ensure_future(flights.join(b"q", "one", runs.start)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        assert runs.halts[0].is_cancelled
        assert not flights.is_running(b"q")

    run(test)


def test_who_asks_after_all_have_gone_starts_a_run_of_its_own() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), Runs()
        first = asyncio.ensure_future(flights.join(b"q", "one", runs.start))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        runs.end.set()
        assert await flights.join(b"q", "one", runs.start) == "answer 2"

    run(test)


def test_a_failure_reaches_everybody_and_is_not_kept() -> None:
    async def fails(_: CancelToken, __: WaitingAccounts) -> str:
        await asyncio.sleep(0)
        raise QueryValue("division by zero")

    async def test() -> None:
        flights = SingleFlight[str]()
        told = await asyncio.gather(*(flights.join(b"q", "one", fails) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in told] == [QueryValue] * 3
        assert not flights.is_running(b"q")

    run(test)


def test_a_halt_pulled_early_stops_what_registers_late() -> None:
    halt, stopped = CancelToken(), []
    halt.cancel()
    halt.on_cancel(lambda: stopped.append("late"))
    assert stopped == ["late"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_halt_stops_each_only_once(times: int) -> None:
    halt, stopped = CancelToken(), []
    halt.on_cancel(lambda: stopped.append("once"))
    for _ in range(times):
        halt.cancel()
    assert stopped == ["once"]
