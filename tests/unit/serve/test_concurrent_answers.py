"""Concurrent requests: single flight, cancellation when all callers have left, limits, and streamed answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator

import msgspec
import pytest

from cordwood.engines.engine import CancelToken
from cordwood.errors import AnswerTooLarge, BadQueryValue, QueryOutOfTime, RequestRateExceeded, ServiceBusy
from cordwood.model.datatype import Row
from cordwood.model.key import Caller
from cordwood.observe.observation import AdmissionAwaited, EngineQueried
from cordwood.serve.admission import ServeLimits, WaitingAccounts
from cordwood.serve.answer import Answer, CacheOutcome
from cordwood.serve.jobs import CompleteAnswer, StreamedAnswer
from cordwood.serve.query_executor import SingleFlight
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from tests.unit.serve.harness import (
    CALLER,
    UNCACHED_ENDPOINT,
    WARMED_ENDPOINT,
    ServeHarness,
    complete_answer,
    make_request,
    run_with_harness,
    until,
)


def start_requests(harness: ServeHarness, *asks: QueryRequest) -> list["asyncio.Task[Answer]"]:
    return [asyncio.ensure_future(harness.answers.answer(request)) for request in asks]


@pytest.fixture
def joined_keys(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the keys of joined and started runs, so that a test can wait until all its requests have joined a run."""
    keys: list[object] = []
    join = SingleFlight.join_or_start_run

    async def counted(
        flights: SingleFlight[CompleteAnswer],
        key: Hashable,
        account: str,
        start: Callable[[CancelToken, WaitingAccounts], Awaitable[CompleteAnswer]],
    ) -> CompleteAnswer:
        if isinstance(key, bytes):
            keys.append(key)
        return await join(flights, key, account, start)

    monkeypatch.setattr(SingleFlight, "join_or_start_run", counted)
    return keys


def test_500_equal_requests_are_one_run(joined_keys: list[object]) -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        tasks = start_requests(harness, *[make_request(project=" same ") for _ in range(500)])
        await until(lambda: harness.engine.question_count > 0 and len(joined_keys) == 500)
        harness.engine.release()
        answers = await asyncio.gather(*tasks)
        assert {complete_answer(answer).body for answer in answers} == {b'{"result":[{"n":1}]}'}
        assert harness.engine.question_count == 1
        outcomes = [answer.cache_outcome for answer in answers]
        assert outcomes.count(CacheOutcome.MISS) == 1
        assert outcomes.count(CacheOutcome.COLLAPSED) == 499

    run_with_harness(test)


def test_equal_requests_of_an_uncached_endpoint_are_one_run(joined_keys: list[object]) -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        tasks = start_requests(harness, *[make_request(UNCACHED_ENDPOINT)] * 20)
        await until(lambda: harness.engine.question_count > 0 and len(joined_keys) == 20)
        harness.engine.release()
        await asyncio.gather(*tasks)
        assert harness.engine.question_count == 1

    run_with_harness(test)


def test_callers_that_disconnect_do_not_affect_the_others(joined_keys: list[object]) -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        tasks = start_requests(harness, *[make_request()] * 10)
        await until(lambda: harness.engine.question_count > 0 and len(joined_keys) == 10)
        for task in tasks[:9]:
            task.cancel()
        await asyncio.gather(*tasks[:9], return_exceptions=True)
        harness.engine.release()
        assert complete_answer(await tasks[9]).body == b'{"result":[{"n":1}]}'
        assert harness.engine.stopped == 0

    run_with_harness(test)


def test_the_run_is_cancelled_when_all_callers_have_disconnected() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        tasks = start_requests(harness, make_request(), make_request())
        await until(lambda: harness.engine.question_count > 0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: harness.engine.stopped == 1)
        await until(lambda: bool(outcomes(harness)))
        assert outcomes(harness) == ["abandoned"]

    run_with_harness(test)


def outcomes(harness: ServeHarness) -> list[str]:
    return [note.outcome for note in harness.notes.all if isinstance(note, EngineQueried)]


def test_a_fault_reaches_every_caller_and_is_counted_by_its_code() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.fails_with = BadQueryValue("division by zero")
        for fault in await asyncio.gather(
            *start_requests(harness, make_request(), make_request()), return_exceptions=True
        ):
            assert isinstance(fault, BadQueryValue)
        assert outcomes(harness) == ["query.value"]

    run_with_harness(test)


def test_a_run_past_its_time_limit_is_cancelled_as_out_of_time() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        with pytest.raises(QueryOutOfTime):
            await harness.answers.answer(make_request(msgspec.structs.replace(WARMED_ENDPOINT, timeout_seconds=0.05)))
        assert harness.engine.stopped == 1

    run_with_harness(test)


def test_an_answer_above_the_byte_limit_is_refused() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = lambda _: [[("x" * 1000,)]] * 10
        with pytest.raises(AnswerTooLarge):
            await harness.answers.answer(make_request())

    run_with_harness(test, ServeHarness(ServeLimits(answer_bytes=5000)))


def test_truncation_at_max_rows_is_in_the_receipt() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.truncated = True
        assert complete_answer(await harness.answers.answer(make_request())).receipt.truncated_by == "max_rows=1000"

    run_with_harness(test)


def heavy_request(number: int) -> QueryRequest:
    return msgspec.structs.replace(
        make_request(UNCACHED_ENDPOINT), sandbox=SandboxQuery(QueryLanguage.SQL, f"select {number} as n from numbers")
    )


def test_a_saved_query_gets_a_slot_despite_many_unknown_queries() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        heavy_requests = start_requests(harness, *[heavy_request(number) for number in range(50)])
        await until(lambda: harness.engine.question_count == 3)
        quick = start_requests(harness, make_request(UNCACHED_ENDPOINT))
        await until(lambda: harness.engine.question_count == 4)
        harness.engine.release()
        await asyncio.gather(*heavy_requests, *quick)

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


def test_an_unknown_query_that_is_slow_is_demoted_and_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.MAX_QUICK_RUN_SECONDS", 0.05)

    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        heavy_requests = start_requests(harness, *[heavy_request(number) for number in range(8)])
        await until(lambda: harness.engine.question_count >= 8)
        assert harness.engine.stopped >= 3
        harness.engine.release()
        assert len({complete_answer(answer).body for answer in await asyncio.gather(*heavy_requests)}) == 8
        assert "demoted" in outcomes(harness)

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


@pytest.mark.parametrize("was_quick", [True, False])
def test_a_demoted_query_waits_for_a_slow_slot_unless_its_form_was_quick(
    monkeypatch: pytest.MonkeyPatch, *, was_quick: bool
) -> None:
    """Move a demoted query to a slow slot, unless a query of the same form was quick before.

    Other queries may have delayed a query whose form was quick. The form is the query without its literals, which
    differ here.
    """

    async def test(harness: ServeHarness) -> None:
        began = time.monotonic()
        if was_quick:
            await harness.answers.answer(heavy_request(99))
        quick_seconds = 0.05 + time.monotonic() - began
        monkeypatch.setattr("cordwood.serve.query_executor.MAX_QUICK_RUN_SECONDS", quick_seconds)
        harness.engine.hold()
        heavy_requests = start_requests(harness, *[heavy_request(number) for number in range(4)])
        await until(lambda: "demoted" in outcomes(harness))
        harness.engine.release()
        await asyncio.gather(*heavy_requests)
        lanes = [
            note.lane for note in harness.notes.all if isinstance(note, AdmissionAwaited) and note.places == "query"
        ]
        assert len(lanes) == 4 + was_quick + outcomes(harness).count("demoted")
        assert ("own_slow" not in lanes) is was_quick

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4)))


def test_requests_beyond_the_queue_are_refused_with_retry_after() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        tasks = start_requests(harness, *[heavy_request(number) for number in range(20)])
        await until(lambda: sum(task.done() for task in tasks) == 12)
        harness.engine.release()
        refusals = [
            result for result in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(result, ServiceBusy)
        ]
        assert len(refusals) == 12
        assert all(fault.retry_after for fault in refusals)

    run_with_harness(test, ServeHarness(ServeLimits(concurrent_queries=4, queued_queries=5)))


def test_a_key_has_a_limit_of_concurrent_queries() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        tasks = start_requests(harness, make_request(project="a"), make_request(project="b"))
        await until(lambda: harness.engine.question_count == 2)
        with pytest.raises(RequestRateExceeded):
            await harness.answers.answer(make_request(project="c"))
        other_request = start_requests(
            harness, msgspec.structs.replace(make_request(project="d"), caller=Caller("another", CALLER.scopes))
        )
        harness.engine.release()
        await asyncio.gather(*tasks, *other_request)
        await harness.answers.answer(make_request(project="c"))

    run_with_harness(test, ServeHarness(ServeLimits(key_concurrent_queries=2)))


def use_streamed_rows(harness: ServeHarness, rows: int) -> Awaitable[Answer]:
    harness.engine.rows = lambda _: ([(number,)] for number in range(rows))
    return harness.answers.answer(make_request(UNCACHED_ENDPOINT, ANSWER_FORMATS_BY_NAME["ndjson"]))


def test_a_short_streamed_answer_is_sent_whole_with_a_receipt() -> None:
    async def test(harness: ServeHarness) -> None:
        answer = await use_streamed_rows(harness, 3)
        assert complete_answer(answer).body == b'{"n":0}\n{"n":1}\n{"n":2}\n'
        assert complete_answer(answer).receipt.row_count == 3

    run_with_harness(test)


class SlowRows:
    """Rows that are produced one at a time, at most twenty rows ahead of the reader."""

    def __init__(self) -> None:
        self.statements = 0
        self.made = 0

    def batches(self) -> Iterator[list[Row]]:
        while True:
            while self.made > self.statements + 20:
                time.sleep(0.001)
            self.made += 1
            time.sleep(0.01)
            yield [(self.made,)]


def test_a_long_answer_is_streamed_and_cancelled_when_its_reader_closes() -> None:
    async def test(harness: ServeHarness) -> None:
        rows = SlowRows()
        harness.engine.rows = lambda _: rows.batches()
        answer = await harness.answers.answer(make_request(UNCACHED_ENDPOINT, ANSWER_FORMATS_BY_NAME["ndjson"]))
        assert isinstance(answer.body, StreamedAnswer)
        pieces = answer.body.chunks()
        for number in range(1, 40):
            assert await anext(pieces) == b'{"n":%d}\n' % number
            rows.statements = number
        await pieces.aclose()
        await until(lambda: bool(outcomes(harness)))
        produced = rows.made
        await asyncio.sleep(0.05)
        assert rows.made == produced

    run_with_harness(test)


def test_a_stream_that_fails_before_its_first_row_raises_the_fault() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.fails_with = BadQueryValue("division by zero")
        with pytest.raises(BadQueryValue):
            await harness.answers.answer(make_request(UNCACHED_ENDPOINT, ANSWER_FORMATS_BY_NAME["csv"]))

    run_with_harness(test)


def test_a_stream_that_fails_later_raises_after_the_sent_rows() -> None:
    def failing_rows() -> Iterator[list[Row]]:
        for number in range(10):
            time.sleep(0.01)
            yield [(number,)]
        raise BadQueryValue("too late")

    async def test(harness: ServeHarness) -> None:
        harness.engine.rows = lambda _: failing_rows()
        answer = await harness.answers.answer(make_request(UNCACHED_ENDPOINT, ANSWER_FORMATS_BY_NAME["ndjson"]))
        assert isinstance(answer.body, StreamedAnswer)
        received = []
        with pytest.raises(BadQueryValue):
            received.extend([chunk async for chunk in answer.body.chunks()])

    run_with_harness(test)


def test_a_streamed_answer_is_cached_whole() -> None:
    async def test(harness: ServeHarness) -> None:
        answers = [
            await harness.answers.answer(make_request(WARMED_ENDPOINT, ANSWER_FORMATS_BY_NAME["csv"])) for _ in range(2)
        ]
        assert [answer.cache_outcome for answer in answers] == [CacheOutcome.MISS, CacheOutcome.HIT]
        assert complete_answer(answers[1]).body == b"n\r\n1\r\n"

    run_with_harness(test)
