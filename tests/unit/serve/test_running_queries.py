"""The list of the queries for which callers wait, with the progress of the queries' runs."""

import asyncio
import threading
from collections.abc import Iterator

import msgspec
import pytest

from cordwood.engines.engine import QueryProgress
from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Row
from cordwood.model.key import Caller
from cordwood.serve.answer import Answer
from cordwood.serve.jobs import StreamedAnswer
from cordwood.serve.query_request import QueryRequest
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from tests.unit.serve.harness import (
    CALLER,
    UNCACHED_ENDPOINT,
    WARMED_ENDPOINT,
    ServeHarness,
    make_request,
    run_with_harness,
    until,
)

OTHER_CALLER = Caller("key-2", frozenset({"query"}))
HALF_PROGRESS = QueryProgress(0.5, 10, 20)


def as_other_caller(request: QueryRequest) -> QueryRequest:
    return msgspec.structs.replace(request, caller=OTHER_CALLER)


def listed_queries(harness: ServeHarness, caller: Caller | None = None) -> list[tuple[str, str]]:
    return [(query.request_id, query.endpoint_name) for query in harness.answers.running_queries(caller)]


def start_request(harness: ServeHarness, request: QueryRequest, request_id: str) -> "asyncio.Task[Answer]":
    return asyncio.ensure_future(harness.answers.answer(request, request_id))


def test_each_caller_of_a_shared_run_sees_its_own_request_and_the_progress_of_the_run() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        harness.engine.progress = HALF_PROGRESS
        tasks = [
            start_request(harness, make_request(), "first"),
            start_request(harness, as_other_caller(make_request()), "second"),
        ]
        await until(lambda: harness.engine.question_count > 0 and len(harness.answers.running_queries(None)) == 2)
        assert listed_queries(harness, CALLER) == [("first", WARMED_ENDPOINT.name)]
        assert listed_queries(harness, OTHER_CALLER) == [("second", WARMED_ENDPOINT.name)]
        assert [query.progress for query in harness.answers.running_queries(None)] == [HALF_PROGRESS, HALF_PROGRESS]
        harness.engine.release()
        await asyncio.gather(*tasks)
        assert harness.engine.question_count == 1
        assert listed_queries(harness) == []

    run_with_harness(test)


def test_callers_with_the_same_key_id_and_other_pins_do_not_see_each_other() -> None:
    """Compare the pins too, because all signed keys of one subject have the same id."""

    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        pinned = msgspec.structs.replace(OTHER_CALLER, pins={"project": "mine"})
        task = start_request(harness, msgspec.structs.replace(make_request(), caller=pinned), "pinned")
        await until(lambda: len(harness.answers.running_queries(None)) == 1)
        assert listed_queries(harness, pinned) == [("pinned", WARMED_ENDPOINT.name)]
        assert listed_queries(harness, OTHER_CALLER) == []
        harness.engine.release()
        await task

    run_with_harness(test)


def test_a_query_that_fails_or_is_abandoned_is_no_longer_listed() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        abandoned = start_request(harness, make_request(), "abandoned")
        await until(lambda: harness.engine.question_count > 0)
        assert listed_queries(harness) == [("abandoned", WARMED_ENDPOINT.name)]
        abandoned.cancel()
        await asyncio.gather(abandoned, return_exceptions=True)
        assert listed_queries(harness) == []
        harness.engine.release()
        harness.engine.fails_with = BadQueryValue("No.")
        with pytest.raises(BadQueryValue):
            await harness.answers.answer(make_request(project="other"), "failing")
        assert listed_queries(harness) == []

    run_with_harness(test)


def test_progress_that_is_unknown_is_empty() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.hold()
        task = start_request(harness, make_request(UNCACHED_ENDPOINT), "one")
        await until(lambda: harness.engine.question_count > 0)
        assert [query.progress for query in harness.answers.running_queries(None)] == [QueryProgress()]
        harness.engine.release()
        await task

    run_with_harness(test)


def test_a_streamed_answer_is_listed_until_its_last_row() -> None:
    async def test(harness: ServeHarness) -> None:
        may_end = threading.Event()

        def rows(_: int) -> Iterator[list[Row]]:
            yield [("x" * 300_000,)]
            may_end.wait()
            yield [("y",)]

        harness.engine.rows = rows
        answer = await harness.answers.answer(
            make_request(UNCACHED_ENDPOINT, ANSWER_FORMATS_BY_NAME["ndjson"]), "streamed"
        )
        assert isinstance(answer.body, StreamedAnswer)
        assert listed_queries(harness) == [("streamed", UNCACHED_ENDPOINT.name)]
        may_end.set()
        async for _ in answer.body.chunks():
            pass
        await until(lambda: listed_queries(harness) == [])

    run_with_harness(test)
