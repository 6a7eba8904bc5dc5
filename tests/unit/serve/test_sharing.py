"""The journey with several callers: compiling in turns, readers that do not read, and what joined runs wait for."""

import asyncio
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from cordwood.errors import Busy, EngineUnreachable, OutOfTime
from cordwood.model.key import Caller
from cordwood.model.rows import Row
from cordwood.observe.observation import Queued
from cordwood.observe.observer import Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import Answer
from cordwood.serve.compilation import SLOW_CPU_SECONDS, CompilePool
from cordwood.serve.fair_queue import WaitingAccounts
from cordwood.serve.query_request import Language, QueryRequest, SandboxText
from cordwood.serve.response_stream import StreamedAnswer
from cordwood.web.content_negotiation import FORMATS
from tests.unit.serve.kitchen import UNCACHED, Kitchen, ask, run, until, whole

NDJSON = FORMATS["ndjson"]


def of(key_id: str, asked: QueryRequest, text: str | None = None) -> QueryRequest:
    sandbox = None if text is None else SandboxText(Language.SQL, text)
    return msgspec.structs.replace(asked, caller=Caller(key_id, frozenset({"private"})), sandbox=sandbox)


def text_of(key_id: str, number: int = 0) -> QueryRequest:
    return of(key_id, ask(UNCACHED), f"select {number} as n from numbers")


def endless() -> Iterator[list[Row]]:
    while True:
        yield [(1,)] * 100


async def begun(kitchen: Kitchen, asked: QueryRequest) -> StreamedAnswer:
    answer = await kitchen.answers.answer(asked)
    assert isinstance(answer.body, StreamedAnswer)
    return answer.body


def test_a_reader_that_does_not_read_holds_no_place_beyond_the_time_limit() -> None:
    endpoint = msgspec.structs.replace(UNCACHED, timeout_seconds=0.2)

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = lambda _: endless()
        stalled = [await begun(kitchen, ask(endpoint, NDJSON)) for _ in range(4)]
        await until(lambda: kitchen.answers.load().running == [])
        kitchen.engine.rows = lambda number: [[(number,)]]
        assert whole(await kitchen.answers.answer(ask())).receipt.rows == 1
        with pytest.raises(OutOfTime):
            async for _ in stalled[0].chunks():
                pass

    run(test, Kitchen(ServeLimits(concurrent_queries=4)))


def test_answers_that_leave_as_they_come_lend_their_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.QUICK_SECONDS", 0.05)
    monkeypatch.setattr("cordwood.serve.query_executor.POLL_SECONDS", 0.05)

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = lambda _: endless()
        form = msgspec.structs.replace(ask(UNCACHED), format=NDJSON)
        stalled = [
            await begun(kitchen, of(f"reader {number}", form, "select 1 as n from numbers")) for number in range(3)
        ]
        kitchen.engine.rows = lambda number: [[(number,)]]
        answer = await asyncio.wait_for(kitchen.answers.answer(text_of("another")), 2)
        assert whole(answer).receipt.rows == 1
        for body in stalled:
            pieces = body.chunks()
            assert (await anext(pieces)).startswith(b'{"n":1}')
            await pieces.aclose()

    run(test, Kitchen(ServeLimits(concurrent_queries=4)))


def test_queries_that_do_not_stop_give_up_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.QUICK_SECONDS", 0.05)
    monkeypatch.setattr("cordwood.serve.query_executor.POLL_SECONDS", 0.05)
    over = threading.Event()

    def deaf(_: int) -> list[list[Row]]:
        over.wait(60)
        return [[(1,)]]

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = deaf
        stuck = [
            asyncio.ensure_future(kitchen.answers.answer(text_of(f"attacker {number}", number))) for number in range(3)
        ]
        await until(lambda: kitchen.engine.asked == 3)
        kitchen.engine.rows = lambda number: [[(number,)]]
        answer = await asyncio.wait_for(kitchen.answers.answer(text_of("another", 99)), 10)
        assert whole(answer).receipt.rows == 1
        assert not any(one.done() for one in stuck)
        over.set()
        assert [whole(answer).receipt.rows for answer in await asyncio.gather(*stuck)] == [1, 1, 1]

    run(test, Kitchen(ServeLimits(concurrent_queries=4)))


def test_a_query_whose_engine_was_replaced_is_not_told_that_it_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.GRACE_SECONDS", 0.0)

    def replaced(_: int) -> list[list[Row]]:
        time.sleep(0.5)
        raise EngineUnreachable("The engine's process ended and is being replaced.")

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = replaced
        with pytest.raises(EngineUnreachable):
            await kitchen.answers.answer(text_of("caller"))

    run(test, Kitchen(ServeLimits(query_seconds=0.1)))


def test_an_answer_that_was_lent_too_long_ago_is_stopped_for_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.QUICK_SECONDS", 0.05)
    monkeypatch.setattr("cordwood.serve.query_executor.POLL_SECONDS", 0.05)

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = lambda _: endless()
        form = msgspec.structs.replace(ask(UNCACHED), format=NDJSON)
        bodies = []
        for number in range(8):
            asked = of("reader", form, f"select {number} as n from numbers")
            bodies.append(await asyncio.wait_for(begun(kitchen, asked), 5))
        kitchen.engine.rows = lambda number: [[(number,)]]
        await asyncio.wait_for(kitchen.answers.answer(text_of("another")), 5)
        outcomes = await asyncio.gather(*[_read_some(body) for body in bodies], return_exceptions=True)
        assert any(isinstance(outcome, Busy) for outcome in outcomes), outcomes

    run(test, Kitchen(ServeLimits(concurrent_queries=4)))


async def _read_some(body: StreamedAnswer) -> None:
    pieces = body.chunks()
    for _ in range(1000):
        await anext(pieces)
    await pieces.aclose()


class Held:
    """Work that a thread does until it is released."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.released = threading.Event()

    def __call__(self, name: str) -> str:
        self.begun.append(name)
        self.released.wait(10)
        return name


def compiling_alone(notes: "Notes | None" = None) -> CompilePool:
    return CompilePool(ServeLimits(queue_seconds=0.2), Observer([notes] if notes else []))


class Notes:
    def __init__(self) -> None:
        self.queued: list[Queued] = []

    def note(self, observation: object) -> None:
        if isinstance(observation, Queued):
            self.queued.append(observation)


def test_texts_of_one_caller_wait_for_each_other_while_anothers_is_compiled() -> None:
    async def test() -> None:
        compiling, held = compiling_alone(), Held()
        await compiling.compile_unsaved(WaitingAccounts("heavy"), compute, 2 * SLOW_CPU_SECONDS)
        crowd = [
            asyncio.ensure_future(compiling.compile_unsaved(WaitingAccounts("heavy"), held, f"text {number}"))
            for number in range(5)
        ]
        await until(lambda: held.begun == ["text 0"])
        assert await compiling.compile_unsaved(WaitingAccounts("light"), str, "compiled") == "compiled"
        assert await compiling.compile_saved(WaitingAccounts("heavy"), str, "saved") == "saved"
        assert held.begun == ["text 0"]
        held.released.set()
        await asyncio.gather(*crowd, return_exceptions=True)
        compiling.close()

    asyncio.run(test())


def test_a_caller_of_many_short_texts_does_not_wait_with_those_of_slow_ones() -> None:
    async def test() -> None:
        compiling, held = compiling_alone(), Held()
        await compiling.compile_unsaved(WaitingAccounts("heavy"), compute, 2 * SLOW_CPU_SECONDS)
        for _ in range(60):
            await compiling.compile_unsaved(WaitingAccounts("busy"), time.sleep, 0.02)
        running = asyncio.ensure_future(compiling.compile_unsaved(WaitingAccounts("heavy"), held, "slow"))
        await until(lambda: held.begun == ["slow"])
        assert await compiling.compile_unsaved(WaitingAccounts("busy"), str, "compiled") == "compiled"
        held.released.set()
        await running
        compiling.close()

    asyncio.run(test())


def test_a_saved_query_that_is_slow_to_compile_makes_nobody_who_asks_it_slow() -> None:
    async def test() -> None:
        compiling, held = compiling_alone(), Held()
        await compiling.compile_saved(WaitingAccounts("reader"), compute, 2 * SLOW_CPU_SECONDS)
        await compiling.compile_unsaved(WaitingAccounts("heavy"), compute, 2 * SLOW_CPU_SECONDS)
        running = asyncio.ensure_future(compiling.compile_unsaved(WaitingAccounts("heavy"), held, "slow"))
        await until(lambda: held.begun == ["slow"])
        assert await compiling.compile_unsaved(WaitingAccounts("reader"), str, "compiled") == "compiled"
        held.released.set()
        await running
        compiling.close()

    asyncio.run(test())


def compute(seconds: float) -> None:
    """Use that much CPU time."""
    deadline = time.thread_time() + seconds
    while time.thread_time() < deadline:
        pass


def test_waiting_to_be_compiled_ends_by_being_told_to_come_back() -> None:
    async def test() -> None:
        notes = Notes()
        compiling, held = compiling_alone(notes), Held()
        running = [
            asyncio.ensure_future(compiling.compile_unsaved(WaitingAccounts(f"caller {number}"), held, "text"))
            for number in range(2)
        ]
        await until(lambda: len(held.begun) == 2)
        with pytest.raises(Busy) as told:
            await compiling.compile_unsaved(WaitingAccounts("another"), held, "text")
        assert told.value.retry_after
        held.released.set()
        await asyncio.gather(*running)
        compiling.close()
        assert [(note.places, note.lane, note.outcome) for note in notes.queued] == [
            ("compile", "unknown", "admitted"),
            ("compile", "unknown", "admitted"),
            ("compile", "unknown", "refused"),
        ]

    asyncio.run(test())


def test_a_caller_that_leaves_while_its_text_is_compiled_keeps_the_place_until_the_thread_is_free() -> None:
    async def test() -> None:
        compiling, held = compiling_alone(), Held()
        leaving = [
            asyncio.ensure_future(compiling.compile_unsaved(WaitingAccounts("caller"), held, "text")) for _ in range(2)
        ]
        await until(lambda: len(held.begun) == 2)
        for task in leaving:
            task.cancel()
        with pytest.raises(Busy):
            await compiling.compile_unsaved(WaitingAccounts("another"), held, "text")
        held.released.set()
        await asyncio.gather(*leaving, return_exceptions=True)
        assert await compiling.compile_unsaved(WaitingAccounts("another"), held, "text") == "text"
        compiling.close()

    asyncio.run(test())


def test_what_is_compiled_already_waits_for_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(kitchen: Kitchen) -> None:
        await kitchen.answers.answer(text_of("light"))
        held = Held()
        compile_once = kitchen.answers._statements.compile

        def slowly(*text: object) -> object:
            held("text")
            return compile_once(*text)  # type: ignore[arg-type] # as it is called

        monkeypatch.setattr(kitchen.answers._statements, "compile", slowly)
        crowd = [asyncio.ensure_future(kitchen.answers.answer(text_of("heavy", number))) for number in range(1, 5)]
        await until(lambda: len(held.begun) == 2)
        assert whole(await asyncio.wait_for(kitchen.answers.answer(text_of("light")), 2)).receipt.rows == 1
        held.released.set()
        await asyncio.gather(*crowd)

    run(test)


def test_the_same_new_text_is_compiled_once_however_many_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(kitchen: Kitchen) -> None:
        compiled: list[object] = []
        compile_once = kitchen.answers._statements.compile

        def counted(*text: object) -> object:
            compiled.append(text)
            time.sleep(0.05)
            return compile_once(*text)  # type: ignore[arg-type] # as it is called

        monkeypatch.setattr(kitchen.answers._statements, "compile", counted)
        asked: list[asyncio.Task[Answer]] = [
            asyncio.ensure_future(kitchen.answers.answer(text_of("caller"))) for _ in range(500)
        ]
        await asyncio.gather(*asked)
        assert len(compiled) == 1

    run(test)


def test_callers_without_a_key_are_counted_by_their_addresses() -> None:
    anonymous = Caller("anonymous", frozenset())

    def of_address(address: str, project: str) -> QueryRequest:
        return msgspec.structs.replace(ask(project=project), caller=anonymous, counted_as=f"anonymous {address}")

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        first = asyncio.ensure_future(kitchen.answers.answer(of_address("192.0.2.1", "a")))
        await until(lambda: kitchen.engine.asked == 1)
        second = asyncio.ensure_future(kitchen.answers.answer(of_address("192.0.2.2", "b")))
        await until(lambda: kitchen.engine.asked == 2)
        kitchen.engine.release()
        await asyncio.gather(first, second)

    run(test, Kitchen(ServeLimits(key_concurrent_queries=1)))
