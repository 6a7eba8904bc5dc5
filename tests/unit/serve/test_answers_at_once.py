"""Many callers at once: one run a question, stopped when all have gone, and limits that hold."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator

import msgspec
import pytest

from cordwood.engines.cancel_token import CancelToken
from cordwood.errors import Busy, OutOfTime, QueryValue, RateExceeded, TooManyBytes
from cordwood.model.key import Caller
from cordwood.model.rows import Row
from cordwood.observe.observation import EngineQueried
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import Answer, Outcome
from cordwood.serve.fair_queue import WaitingAccounts
from cordwood.serve.jobs import Finished
from cordwood.serve.query_request import Language, QueryRequest, SandboxText
from cordwood.serve.response_stream import StreamedAnswer
from cordwood.serve.singleflight import SingleFlight
from cordwood.web.content_negotiation import FORMATS
from tests.unit.serve.kitchen import CALLER, UNCACHED, WARMED, Kitchen, ask, run, until, whole


def asking(kitchen: Kitchen, *asks: QueryRequest) -> list["asyncio.Task[Answer]"]:
    return [asyncio.ensure_future(kitchen.answers.answer(one)) for one in asks]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The questions that were joined or begun: a run may end once all who are to share it have come to it."""
    came: list[object] = []
    join = SingleFlight.join

    async def counted(
        flights: SingleFlight[Finished],
        key: Hashable,
        account: str,
        start: Callable[[CancelToken, WaitingAccounts], Awaitable[Finished]],
    ) -> Finished:
        if isinstance(key, bytes):
            came.append(key)
        return await join(flights, key, account, start)

    monkeypatch.setattr(SingleFlight, "join", counted)
    return came


def test_500_equal_asks_at_once_are_one_question_to_the_engine(joined: list[object]) -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        tasks = asking(kitchen, *[ask(project=" same ") for _ in range(500)])
        await until(lambda: kitchen.engine.asked > 0 and len(joined) == 500)
        kitchen.engine.release()
        answers = await asyncio.gather(*tasks)
        assert {whole(answer).body for answer in answers} == {b'{"result":[{"n":1}]}'}
        assert kitchen.engine.asked == 1
        outcomes = [answer.outcome for answer in answers]
        assert outcomes.count(Outcome.MISS) == 1
        assert outcomes.count(Outcome.COLLAPSED) == 499

    run(test)


def test_equal_asks_of_an_endpoint_without_a_cache_are_one_question_too(joined: list[object]) -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        tasks = asking(kitchen, *[ask(UNCACHED)] * 20)
        await until(lambda: kitchen.engine.asked > 0 and len(joined) == 20)
        kitchen.engine.release()
        await asyncio.gather(*tasks)
        assert kitchen.engine.asked == 1

    run(test)


def test_callers_that_hang_up_do_not_break_the_rest(joined: list[object]) -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        tasks = asking(kitchen, *[ask()] * 10)
        await until(lambda: kitchen.engine.asked > 0 and len(joined) == 10)
        for task in tasks[:9]:
            task.cancel()
        await asyncio.gather(*tasks[:9], return_exceptions=True)
        kitchen.engine.release()
        assert whole(await tasks[9]).body == b'{"result":[{"n":1}]}'
        assert kitchen.engine.stopped == 0

    run(test)


def test_the_engine_is_stopped_when_all_have_hung_up() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        tasks = asking(kitchen, ask(), ask())
        await until(lambda: kitchen.engine.asked > 0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: kitchen.engine.stopped == 1)
        await until(lambda: bool(outcomes(kitchen)))
        assert outcomes(kitchen) == ["abandoned"]

    run(test)


def outcomes(kitchen: Kitchen) -> list[str]:
    return [note.outcome for note in kitchen.notes.all if isinstance(note, EngineQueried)]


def test_a_fault_reaches_every_caller_and_is_counted_by_its_code() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.fails_with = QueryValue("division by zero")
        for told in await asyncio.gather(*asking(kitchen, ask(), ask()), return_exceptions=True):
            assert isinstance(told, QueryValue)
        assert outcomes(kitchen) == ["query.value"]

    run(test)


def test_a_run_past_its_limit_is_stopped_and_told_to_have_run_out_of_time() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        with pytest.raises(OutOfTime):
            await kitchen.answers.answer(ask(msgspec.structs.replace(WARMED, timeout_seconds=0.05)))
        assert kitchen.engine.stopped == 1

    run(test)


def test_an_answer_over_its_bytes_is_refused_not_cut() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = lambda _: [[("x" * 1000,)]] * 10
        with pytest.raises(TooManyBytes):
            await kitchen.answers.answer(ask())

    run(test, Kitchen(ServeLimits(answer_bytes=5000)))


def test_a_cut_at_max_rows_is_told() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.truncated = True
        assert whole(await kitchen.answers.answer(ask())).receipt.truncated == "max_rows=1000"

    run(test)


def heavy(number: int) -> QueryRequest:
    return msgspec.structs.replace(
        ask(UNCACHED), sandbox=SandboxText(Language.SQL, f"select {number} as n from numbers")
    )


def test_a_saved_query_has_a_place_however_many_unknown_ones_are_there() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        crowd = asking(kitchen, *[heavy(number) for number in range(50)])
        await until(lambda: kitchen.engine.asked == 3)
        quick = asking(kitchen, ask(UNCACHED))
        await until(lambda: kitchen.engine.asked == 4)
        kitchen.engine.release()
        await asyncio.gather(*crowd, *quick)

    run(test, Kitchen(ServeLimits(concurrent_queries=4)))


def test_an_unknown_query_that_proves_slow_makes_room_for_others_and_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cordwood.serve.query_executor.QUICK_SECONDS", 0.05)

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        crowd = asking(kitchen, *[heavy(number) for number in range(8)])
        await until(lambda: kitchen.engine.asked >= 8)
        assert kitchen.engine.stopped >= 3
        kitchen.engine.release()
        assert len({whole(answer).body for answer in await asyncio.gather(*crowd)}) == 8
        assert "demoted" in outcomes(kitchen)

    run(test, Kitchen(ServeLimits(concurrent_queries=4)))


def test_more_than_the_queue_holds_are_told_to_come_back() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        tasks = asking(kitchen, *[heavy(number) for number in range(20)])
        await until(lambda: sum(task.done() for task in tasks) == 12)
        kitchen.engine.release()
        told = [one for one in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(one, Busy)]
        assert len(told) == 12
        assert all(fault.retry_after for fault in told)

    run(test, Kitchen(ServeLimits(concurrent_queries=4, queued_queries=5)))


def test_a_key_may_have_only_so_many_queries_under_way() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.hold()
        tasks = asking(kitchen, ask(project="a"), ask(project="b"))
        await until(lambda: kitchen.engine.asked == 2)
        with pytest.raises(RateExceeded):
            await kitchen.answers.answer(ask(project="c"))
        other = asking(kitchen, msgspec.structs.replace(ask(project="d"), caller=Caller("another", CALLER.scopes)))
        kitchen.engine.release()
        await asyncio.gather(*tasks, *other)
        await kitchen.answers.answer(ask(project="c"))

    run(test, Kitchen(ServeLimits(key_concurrent_queries=2)))


def streaming(kitchen: Kitchen, rows: int) -> Awaitable[Answer]:
    kitchen.engine.rows = lambda _: ([(number,)] for number in range(rows))
    return kitchen.answers.answer(ask(UNCACHED, FORMATS["ndjson"]))


def test_a_short_stream_is_whole_and_has_its_receipt() -> None:
    async def test(kitchen: Kitchen) -> None:
        answer = await streaming(kitchen, 3)
        assert whole(answer).body == b'{"n":0}\n{"n":1}\n{"n":2}\n'
        assert whole(answer).receipt.rows == 3

    run(test)


class Dripping:
    """Rows that come one at a time, each when the reader has seen the one before."""

    def __init__(self) -> None:
        self.seen = 0
        self.made = 0

    def batches(self) -> Iterator[list[Row]]:
        while True:
            while self.made > self.seen + 20:
                time.sleep(0.001)
            self.made += 1
            time.sleep(0.01)
            yield [(self.made,)]


def test_a_long_stream_leaves_as_it_comes_and_stops_when_its_reader_does() -> None:
    async def test(kitchen: Kitchen) -> None:
        rows = Dripping()
        kitchen.engine.rows = lambda _: rows.batches()
        answer = await kitchen.answers.answer(ask(UNCACHED, FORMATS["ndjson"]))
        assert isinstance(answer.body, StreamedAnswer)
        pieces = answer.body.chunks()
        for number in range(1, 40):
            assert await anext(pieces) == b'{"n":%d}\n' % number
            rows.seen = number
        await pieces.aclose()
        await until(lambda: bool(outcomes(kitchen)))
        made = rows.made
        await asyncio.sleep(0.05)
        assert rows.made == made

    run(test)


def test_a_stream_that_fails_before_its_first_row_is_a_fault() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.fails_with = QueryValue("division by zero")
        with pytest.raises(QueryValue):
            await kitchen.answers.answer(ask(UNCACHED, FORMATS["csv"]))

    run(test)


def test_a_stream_that_fails_on_its_way_says_so_after_what_is_out() -> None:
    def breaking() -> Iterator[list[Row]]:
        for number in range(10):
            time.sleep(0.01)
            yield [(number,)]
        raise QueryValue("too late")

    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.rows = lambda _: breaking()
        answer = await kitchen.answers.answer(ask(UNCACHED, FORMATS["ndjson"]))
        assert isinstance(answer.body, StreamedAnswer)
        said = []
        with pytest.raises(QueryValue):
            said.extend([piece async for piece in answer.body.chunks()])

    run(test)


def test_a_kept_stream_is_kept_whole() -> None:
    async def test(kitchen: Kitchen) -> None:
        answers = [await kitchen.answers.answer(ask(WARMED, FORMATS["csv"])) for _ in range(2)]
        assert [answer.outcome for answer in answers] == [Outcome.MISS, Outcome.HIT]
        assert whole(answers[1]).body == b"n\r\n1\r\n"

    run(test)
