"""Contention between callers: stalled readers, stuck runs, the compile pool and shared compilations."""

import asyncio
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from cordwood.errors import CompilationTimeout, EngineUnreachable, QueryOutOfTime, ServiceBusy
from cordwood.model.datatype import Row
from cordwood.model.key import Caller
from cordwood.observe.observation import AdmissionAwaited, Observer
from cordwood.serve.admission import ServeLimits, WaitingAccounts
from cordwood.serve.answer import Answer
from cordwood.serve.compilation import MAX_QUICK_COMPILATION_CPU_SECONDS, CompilePool
from cordwood.serve.jobs import StreamedAnswer
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.sql.budget import (
    MAX_COMPILATION_CPU_SECONDS,
    MAX_SAVED_QUERY_CPU_SECONDS,
    CompilationBudget,
    budget_scope,
    check_cpu_time,
    thread_cpu_seconds,
)
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from tests.unit.serve.harness import (
    UNCACHED_ENDPOINT,
    ServeHarness,
    complete_answer,
    make_request,
    run_with_harness,
    until,
)

NDJSON = ANSWER_FORMATS_BY_NAME["ndjson"]


def request_of_caller(key_id: str, request: QueryRequest, text: str | None = None) -> QueryRequest:
    sandbox = None if text is None else SandboxQuery(QueryLanguage.SQL, text)
    return msgspec.structs.replace(request, caller=Caller(key_id, frozenset({"private"})), sandbox=sandbox)


def request_with_text(key_id: str, number: int = 0) -> QueryRequest:
    return request_of_caller(key_id, make_request(UNCACHED_ENDPOINT), f"select {number} as n from numbers")


def endless_rows() -> Iterator[list[Row]]:
    while True:
        yield [(1,)] * 100


async def begin_streamed_answer(harness: ServeHarness, request: QueryRequest) -> StreamedAnswer:
    answer = await harness.answers.answer(request)
    assert isinstance(answer.body, StreamedAnswer)
    return answer.body


def test_a_stalled_reader_loses_its_slot_at_the_time_limit() -> None:
    endpoint = msgspec.structs.replace(UNCACHED_ENDPOINT, timeout_seconds=0.2)

    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = lambda _: endless_rows()
        stalled = [await begin_streamed_answer(harness, make_request(endpoint, NDJSON)) for _ in range(4)]
        await until(lambda: harness.answers.current_load().current_runs == [])
        harness.engine.rows = lambda number: [[(number,)]]
        assert complete_answer(await harness.answers.answer(make_request())).receipt.row_count == 1
        with pytest.raises(QueryOutOfTime):
            async for _ in stalled[0].chunks():
                pass

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


def test_streamed_answers_lend_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.MAX_QUICK_RUN_SECONDS", 0.05)
    monkeypatch.setattr("cordwood.serve.query_executor.RUN_POLL_SECONDS", 0.05)

    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = lambda _: endless_rows()
        form = msgspec.structs.replace(make_request(UNCACHED_ENDPOINT), format=NDJSON)
        stalled = [
            await begin_streamed_answer(
                harness, request_of_caller(f"reader {number}", form, "select 1 as n from numbers")
            )
            for number in range(3)
        ]
        harness.engine.rows = lambda number: [[(number,)]]
        answer = await asyncio.wait_for(harness.answers.answer(request_with_text("another")), 2)
        assert complete_answer(answer).receipt.row_count == 1
        for body in stalled:
            pieces = body.chunks()
            assert (await anext(pieces)).startswith(b'{"n":1}')
            await pieces.aclose()

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


def test_queries_that_ignore_cancellation_lose_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.MAX_QUICK_RUN_SECONDS", 0.05)
    monkeypatch.setattr("cordwood.serve.query_executor.RUN_POLL_SECONDS", 0.05)
    finished = threading.Event()

    def rows_that_ignore_cancellation(_: int) -> list[list[Row]]:
        finished.wait(60)
        return [[(1,)]]

    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = rows_that_ignore_cancellation
        stuck = [
            asyncio.ensure_future(harness.answers.answer(request_with_text(f"attacker {number}", number)))
            for number in range(3)
        ]
        await until(lambda: harness.engine.question_count == 3)
        harness.engine.rows = lambda number: [[(number,)]]
        answer = await asyncio.wait_for(harness.answers.answer(request_with_text("another", 99)), 10)
        assert complete_answer(answer).receipt.row_count == 1
        assert not any(task.done() for task in stuck)
        finished.set()
        assert [complete_answer(answer).receipt.row_count for answer in await asyncio.gather(*stuck)] == [1, 1, 1]

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


def test_a_query_whose_engine_was_replaced_is_not_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.TIME_LIMIT_GRACE_SECONDS", 0.0)

    def raise_engine_replaced(_: int) -> list[list[Row]]:
        time.sleep(0.5)
        raise EngineUnreachable("The engine's process ended and is being replaced.")

    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = raise_engine_replaced
        with pytest.raises(EngineUnreachable):
            await harness.answers.answer(request_with_text("caller"))

    run_with_harness(test, ServeHarness(ServeLimits(query_seconds=0.1)))


def test_the_oldest_lent_answer_is_cancelled_for_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.MAX_QUICK_RUN_SECONDS", 0.05)
    monkeypatch.setattr("cordwood.serve.query_executor.RUN_POLL_SECONDS", 0.05)

    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = lambda _: endless_rows()
        form = msgspec.structs.replace(make_request(UNCACHED_ENDPOINT), format=NDJSON)
        bodies = []
        for number in range(8):
            request = request_of_caller("reader", form, f"select {number} as n from numbers")
            bodies.append(await asyncio.wait_for(begin_streamed_answer(harness, request), 5))
        harness.engine.rows = lambda number: [[(number,)]]
        await asyncio.wait_for(harness.answers.answer(request_with_text("another")), 5)
        outcomes = await asyncio.gather(*[_read_some(body) for body in bodies], return_exceptions=True)
        assert any(isinstance(outcome, ServiceBusy) for outcome in outcomes), outcomes

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


async def _read_some(body: StreamedAnswer) -> None:
    pieces = body.chunks()
    for _ in range(1000):
        await anext(pieces)
    await pieces.aclose()


class BlockedWork:
    """Work that blocks its thread until the test releases it."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.released = threading.Event()

    def __call__(self, name: str) -> str:
        self.begun.append(name)
        self.released.wait(10)
        return name


def make_pool(notes: "NoteList | None" = None, queue_seconds: float = 0.2) -> CompilePool:
    return CompilePool(ServeLimits(queue_seconds=queue_seconds), Observer([notes] if notes else []))


class NoteList:
    def __init__(self) -> None:
        self.queued: list[AdmissionAwaited] = []

    def record(self, observation: object) -> None:
        if isinstance(observation, AdmissionAwaited):
            self.queued.append(observation)


def test_slow_queries_of_one_caller_do_not_block_the_compilation_of_others() -> None:
    async def test() -> None:
        pool, blocked = make_pool(), BlockedWork()
        await pool.compile_caller_query(WaitingAccounts("heavy"), use_cpu, 2 * MAX_QUICK_COMPILATION_CPU_SECONDS)
        heavy_tasks = [
            asyncio.ensure_future(pool.compile_caller_query(WaitingAccounts("heavy"), blocked, f"text {number}"))
            for number in range(5)
        ]
        await until(lambda: blocked.begun == ["text 0"])
        assert await pool.compile_caller_query(WaitingAccounts("light"), str, "compiled") == "compiled"
        assert await pool.compile_saved_query(WaitingAccounts("heavy"), str, "saved") == "saved"
        assert blocked.begun == ["text 0"]
        blocked.released.set()
        await asyncio.gather(*heavy_tasks, return_exceptions=True)
        pool.close()

    asyncio.run(test())


def test_many_quick_compilations_do_not_count_as_slow() -> None:
    async def test() -> None:
        pool, blocked = make_pool(), BlockedWork()
        await pool.compile_caller_query(WaitingAccounts("heavy"), use_cpu, 2 * MAX_QUICK_COMPILATION_CPU_SECONDS)
        for _ in range(60):
            await pool.compile_caller_query(WaitingAccounts("busy"), time.sleep, 0.02)
        running = asyncio.ensure_future(pool.compile_caller_query(WaitingAccounts("heavy"), blocked, "slow"))
        await until(lambda: blocked.begun == ["slow"])
        assert await pool.compile_caller_query(WaitingAccounts("busy"), str, "compiled") == "compiled"
        blocked.released.set()
        await running
        pool.close()

    asyncio.run(test())


def test_a_slow_compilation_of_a_saved_query_is_not_counted_for_its_caller() -> None:
    async def test() -> None:
        pool, blocked = make_pool(), BlockedWork()
        await pool.compile_saved_query(WaitingAccounts("reader"), use_cpu, 2 * MAX_QUICK_COMPILATION_CPU_SECONDS)
        await pool.compile_caller_query(WaitingAccounts("heavy"), use_cpu, 2 * MAX_QUICK_COMPILATION_CPU_SECONDS)
        running = asyncio.ensure_future(pool.compile_caller_query(WaitingAccounts("heavy"), blocked, "slow"))
        await until(lambda: blocked.begun == ["slow"])
        assert await pool.compile_caller_query(WaitingAccounts("reader"), str, "compiled") == "compiled"
        blocked.released.set()
        await running
        pool.close()

    asyncio.run(test())


def test_a_slow_compilation_is_preempted_by_others_and_starts_again() -> None:
    async def test() -> None:
        notes = NoteList()
        pool, starts, is_released = make_pool(notes, queue_seconds=30), list[str](), threading.Event()

        def compile_until_released(name: str) -> str:
            starts.append(name)
            with budget_scope(CompilationBudget(seconds=60)):
                while not is_released.is_set():
                    check_cpu_time()
            return name

        slow_tasks = [
            asyncio.ensure_future(pool.compile_caller_query(WaitingAccounts(name), compile_until_released, name))
            for name in ("first", "second")
        ]
        await until(lambda: len(starts) == 2)
        assert await pool.compile_caller_query(WaitingAccounts("quick"), str, "compiled") == "compiled"
        # One of the slow compilations has started again, but it does not take the last free thread.
        await until(lambda: len(starts) == 3)
        assert await pool.compile_caller_query(WaitingAccounts("quick"), str, "compiled") == "compiled"
        is_released.set()
        assert set(await asyncio.gather(*slow_tasks)) == {"first", "second"}
        assert "own_slow" in {note.lane for note in notes.queued}
        pool.close()

    asyncio.run(test())


def test_a_slow_compilation_continues_if_nobody_waits() -> None:
    async def test() -> None:
        pool, starts = make_pool(), list[int]()

        def compile_slowly() -> None:
            starts.append(1)
            deadline = thread_cpu_seconds() + 2 * MAX_QUICK_COMPILATION_CPU_SECONDS
            with budget_scope(CompilationBudget(seconds=60)):
                while thread_cpu_seconds() < deadline:
                    check_cpu_time()

        await pool.compile_caller_query(WaitingAccounts("slow"), compile_slowly)
        assert len(starts) == 1
        pool.close()

    asyncio.run(test())


def test_saved_queries_have_more_time_to_compile_than_those_of_callers() -> None:
    def compile_for(seconds: float) -> str:
        ticks = iter([0.0, seconds])
        with budget_scope(CompilationBudget(clock=lambda: next(ticks))):
            check_cpu_time()
        return "compiled"

    async def test() -> None:
        pool, waiting = make_pool(), WaitingAccounts("caller")
        assert await pool.compile_saved_query(waiting, compile_for, MAX_SAVED_QUERY_CPU_SECONDS) == "compiled"
        assert await pool.compile_caller_query(waiting, compile_for, MAX_COMPILATION_CPU_SECONDS) == "compiled"
        with pytest.raises(CompilationTimeout):
            await pool.compile_saved_query(waiting, compile_for, MAX_SAVED_QUERY_CPU_SECONDS + 1)
        with pytest.raises(CompilationTimeout):
            await pool.compile_caller_query(waiting, compile_for, MAX_COMPILATION_CPU_SECONDS + 1)
        pool.close()

    asyncio.run(test())


def use_cpu(seconds: float) -> None:
    """Use this much CPU time in the current thread."""
    deadline = time.thread_time() + seconds
    while time.thread_time() < deadline:
        pass


def test_waiting_too_long_for_compilation_is_refused() -> None:
    async def test() -> None:
        notes = NoteList()
        pool, blocked = make_pool(notes), BlockedWork()
        running = [
            asyncio.ensure_future(pool.compile_caller_query(WaitingAccounts(f"caller {number}"), blocked, "text"))
            for number in range(2)
        ]
        await until(lambda: len(blocked.begun) == 2)
        with pytest.raises(ServiceBusy) as raised:
            await pool.compile_caller_query(WaitingAccounts("another"), blocked, "text")
        assert raised.value.retry_after
        blocked.released.set()
        await asyncio.gather(*running)
        pool.close()
        assert [(note.places, note.lane, note.outcome) for note in notes.queued] == [
            ("compile", "unknown", "admitted"),
            ("compile", "unknown", "admitted"),
            ("compile", "unknown", "refused"),
        ]

    asyncio.run(test())


def test_a_cancelled_compilation_holds_its_slot_until_the_thread_ends() -> None:
    async def test() -> None:
        pool, blocked = make_pool(), BlockedWork()
        leaving = [
            asyncio.ensure_future(pool.compile_caller_query(WaitingAccounts("caller"), blocked, "text"))
            for _ in range(2)
        ]
        await until(lambda: len(blocked.begun) == 2)
        for task in leaving:
            task.cancel()
        with pytest.raises(ServiceBusy):
            await pool.compile_caller_query(WaitingAccounts("another"), blocked, "text")
        blocked.released.set()
        await asyncio.gather(*leaving, return_exceptions=True)
        assert await pool.compile_caller_query(WaitingAccounts("another"), blocked, "text") == "text"
        pool.close()

    asyncio.run(test())


def test_a_compiled_query_does_not_wait_for_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(harness: ServeHarness) -> None:
        await harness.answers.answer(request_with_text("light"))
        blocked = BlockedWork()
        compile_once = harness.answers._statement_cache.compile_and_cache

        def compile_slowly(*text: object) -> object:
            blocked("text")
            return compile_once(*text)  # type: ignore[arg-type] # as it is called

        monkeypatch.setattr(harness.answers._statement_cache, "compile_and_cache", compile_slowly)
        heavy_tasks = [
            asyncio.ensure_future(harness.answers.answer(request_with_text("heavy", number))) for number in range(1, 5)
        ]
        await until(lambda: len(blocked.begun) == 2)
        assert (
            complete_answer(
                await asyncio.wait_for(harness.answers.answer(request_with_text("light")), 2)
            ).receipt.row_count
            == 1
        )
        blocked.released.set()
        await asyncio.gather(*heavy_tasks)

    run_with_harness(test)


def test_concurrent_requests_compile_a_query_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(harness: ServeHarness) -> None:
        compiled: list[object] = []
        compile_once = harness.answers._statement_cache.compile_and_cache

        def compile_and_count(*text: object) -> object:
            compiled.append(text)
            time.sleep(0.05)
            return compile_once(*text)  # type: ignore[arg-type] # as it is called

        monkeypatch.setattr(harness.answers._statement_cache, "compile_and_cache", compile_and_count)
        tasks: list[asyncio.Task[Answer]] = [
            asyncio.ensure_future(harness.answers.answer(request_with_text("caller"))) for _ in range(500)
        ]
        await asyncio.gather(*tasks)
        assert len(compiled) == 1

    run_with_harness(test)


def test_callers_without_a_key_are_limited_by_address() -> None:
    anonymous = Caller("anonymous", frozenset())

    def request_from_address(address: str, project: str) -> QueryRequest:
        return msgspec.structs.replace(
            make_request(project=project), caller=anonymous, anonymous_account=f"anonymous {address}"
        )

    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        first = asyncio.ensure_future(harness.answers.answer(request_from_address("192.0.2.1", "a")))
        await until(lambda: harness.engine.question_count == 1)
        second = asyncio.ensure_future(harness.answers.answer(request_from_address("192.0.2.2", "b")))
        await until(lambda: harness.engine.question_count == 2)
        harness.engine.release()
        await asyncio.gather(first, second)

    run_with_harness(test, ServeHarness(ServeLimits(key_concurrent_queries=1)))
