"""A query that was compiled when a field had only numbers redacts a text that arrives before the query runs."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, Cancellation
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.datatype import Rows
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.observe.observation import Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import QueryService, QueryServiceDependencies
from cordwood.serve.cached_answers import MemoryAnswerCache
from cordwood.serve.jobs import StreamedAnswer
from cordwood.sql.stages import BoundStatement
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from tests.fakes.catalogs import MemoryCatalog
from tests.unit.serve.harness import complete_answer, make_request

ENDPOINT = Endpoint(
    name="numbers",
    id=UUID(int=9),
    sql="select max(cast(m.client as string)) as most, count(m.client) as n from s cross join unnest(s.metadata) as m",
    revision="1",
    redact_pii=True,
)


class RacingEngine(DuckDBEngine):
    """An engine that stores an event immediately before each of its first runs."""

    def expect(self, *values: object) -> None:
        self.coming = list(values)
        self.executed_sql: list[str] = []

    def store(self, value: object) -> None:
        event = Event(json.dumps(value), 1_700_000_000_000_000, "", "p", json.dumps({"client": value}), "{}")
        events_with_paths, learnt = ShapeInferrer(self.shapes_by_stream).infer_stream_shape("s", [event])
        self.append([ReceivedEventBatch("s", events_with_paths, 0, learnt)])

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        self.executed_sql.append(question.statement.sql)
        if self.coming:
            self.store(self.coming.pop(0))
        return super().answer(question, limits, cancel)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RacingEngine]:
    opened = RacingEngine(tmp_path, DuckDBTarget())
    opened.create_stream_tables([Stream("s", UUID(int=1))])
    opened.store(7)
    yield opened
    opened.close()


AnswerText = Callable[..., str]


@pytest.fixture
def answer_text(engine: RacingEngine) -> AnswerText:
    def answer_after_arrivals(*arriving_values: object, form: str = "json") -> str:
        engine.expect(*arriving_values)
        dependencies = QueryServiceDependencies(
            MemoryCatalog(ENDPOINT), engine, MemoryAnswerCache(1_000_000), Observer([])
        )
        answers = QueryService(dependencies, ServeLimits(), lambda: 1_700_000_001_000_000)

        async def journey() -> str:
            try:
                answer = await answers.answer(make_request(ENDPOINT, ANSWER_FORMATS_BY_NAME[form]))
                return (
                    await _complete_text(answer.body)
                    if isinstance(answer.body, StreamedAnswer)
                    else complete_answer(answer).body.decode()
                )
            finally:
                await answers.close()

        return asyncio.run(journey())

    return answer_after_arrivals


async def _complete_text(streamed: StreamedAnswer) -> str:
    return b"".join([chunk async for chunk in streamed.chunks()]).decode()


def test_numbers_are_queried_once_without_redaction(engine: RacingEngine, answer_text: AnswerText) -> None:
    assert answer_text(8) == '{"result":[{"most":"8","n":2}]}'
    assert len(engine.executed_sql) == 1
    assert "redacted" not in engine.executed_sql[0]


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_a_text_stored_before_the_run_is_redacted(engine: RacingEngine, answer_text: AnswerText, form: str) -> None:
    answer = answer_text("from 203.0.113.7", form=form)
    assert "from REDACTED" in answer
    assert "203" not in answer
    assert len(engine.executed_sql) == 2


def test_a_text_inside_an_object_stored_before_the_run_is_redacted(answer_text: AnswerText) -> None:
    assert "203" not in answer_text({"ip": "203.0.113.7"})


def test_a_text_stored_before_the_second_run_needs_no_third_run(engine: RacingEngine, answer_text: AnswerText) -> None:
    assert "203" not in answer_text("from 203.0.113.7", "by 203.0.113.8")
    assert len(engine.executed_sql) == 2


def test_all_callers_of_a_shared_run_get_the_second_answer(engine: RacingEngine) -> None:
    engine.expect("from 203.0.113.7")
    dependencies = QueryServiceDependencies(MemoryCatalog(ENDPOINT), engine, MemoryAnswerCache(1_000_000), Observer([]))
    answers = QueryService(dependencies, ServeLimits(), lambda: 1_700_000_001_000_000)

    async def request_twice() -> list[str]:
        try:
            requests = [answers.answer(make_request(ENDPOINT, ANSWER_FORMATS_BY_NAME["json"])) for _ in range(2)]
            return [complete_answer(answer).body.decode() for answer in await asyncio.gather(*requests)]
        finally:
            await answers.close()

    assert asyncio.run(request_twice()) == ['{"result":[{"most":"from REDACTED","n":2}]}'] * 2
    assert len(engine.executed_sql) == 2
