"""Single flight: concurrent equal questions share one run, which is cancelled when the last caller leaves."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cordwood.engines.engine import CancelToken
from cordwood.errors import BadQueryValue
from cordwood.serve.admission import WaitingAccounts
from cordwood.serve.query_executor import SingleFlight


class CountedRuns:
    """Runs that are counted, and end when the test sets `end`."""

    def __init__(self) -> None:
        self.tokens: list[CancelToken] = []
        self.end = asyncio.Event()

    async def start(self, token: CancelToken, _: WaitingAccounts) -> str:
        self.tokens.append(token)
        await self.end.wait()
        return f"answer {len(self.tokens)}"


def run_async(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(_awaited(test))


async def _awaited(test: Callable[[], Awaitable[None]]) -> None:
    await test()


def test_concurrent_callers_share_one_run() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), CountedRuns()
        callers = [asyncio.ensure_future(flights.join_or_start_run(b"q", "one", runs.start)) for _ in range(500)]
        await asyncio.sleep(0)
        runs.end.set()
        assert set(await asyncio.gather(*callers)) == {"answer 1"}
        assert len(runs.tokens) == 1

    run_async(test)


def test_different_questions_are_different_runs() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), CountedRuns()
        runs.end.set()
        await asyncio.gather(
            flights.join_or_start_run(b"q", "one", runs.start), flights.join_or_start_run(b"r", "one", runs.start)
        )
        assert len(runs.tokens) == 2

    run_async(test)


def test_the_run_continues_when_the_first_caller_leaves() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), CountedRuns()
        callers = [asyncio.ensure_future(flights.join_or_start_run(b"q", "one", runs.start)) for _ in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        await asyncio.sleep(0)
        assert not runs.tokens[0].is_cancelled
        runs.end.set()
        assert await asyncio.gather(*callers[1:]) == ["answer 1", "answer 1"]

    run_async(test)


def test_the_run_is_cancelled_when_all_callers_have_left() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), CountedRuns()
        callers = [asyncio.ensure_future(flights.join_or_start_run(b"q", "one", runs.start)) for _ in range(3)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        assert runs.tokens[0].is_cancelled
        assert not flights.is_running(b"q")

    run_async(test)


def test_a_caller_after_a_cancellation_starts_a_new_run() -> None:
    async def test() -> None:
        flights, runs = SingleFlight[str](), CountedRuns()
        first = asyncio.ensure_future(flights.join_or_start_run(b"q", "one", runs.start))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        runs.end.set()
        assert await flights.join_or_start_run(b"q", "one", runs.start) == "answer 2"

    run_async(test)


def test_a_failure_reaches_all_callers_and_is_not_kept() -> None:
    async def fails(_: CancelToken, __: WaitingAccounts) -> str:
        await asyncio.sleep(0)
        raise BadQueryValue("division by zero")

    async def test() -> None:
        flights = SingleFlight[str]()
        results = await asyncio.gather(
            *(flights.join_or_start_run(b"q", "one", fails) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [BadQueryValue] * 3
        assert not flights.is_running(b"q")

    run_async(test)


def test_a_callback_registered_after_cancellation_runs_at_once() -> None:
    token, stopped = CancelToken(), []
    token.cancel()
    token.on_cancel(lambda: stopped.append("late"))
    assert stopped == ["late"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_callback_runs_only_once(times: int) -> None:
    token, stopped = CancelToken(), []
    token.on_cancel(lambda: stopped.append("once"))
    for _ in range(times):
        token.cancel()
    assert stopped == ["once"]
