"""Cached answers when the shapes of their streams change: their key is the compiled statement."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.observe.observation import Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import CacheOutcome, QueryService, QueryServiceDependencies
from cordwood.serve.cached_answers import MemoryAnswerCache
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.web.encode import JSON_FORMAT
from tests.fakes.catalogs import MemoryCatalog
from tests.unit.serve.harness import CALLER, complete_answer

ENDPOINT = Endpoint(
    name="fields",
    id=UUID(int=9),
    sql="with m as (select m.* from s as t cross join unnest(t.metadata) as m) select * from m",
    revision="1",
    cache_seconds=900,
    accepts_sandbox_queries=True,
)
WARMED = msgspec.structs.replace(ENDPOINT, warm_seconds=300, revision="2")
STAR_SQL, NAMED_COLUMN_SQL = "select * from m", "select a from m"
ONE_ROW = [{"a": "1"}]


class ShapeHarness:
    """The query service over a real engine, whose stream can get events with more fields."""

    def __init__(self, engine: DuckDBEngine, endpoint: Endpoint) -> None:
        self.engine = engine
        self.endpoint = endpoint
        self.now_us = 1_700_000_001_000_000
        dependencies = QueryServiceDependencies(
            MemoryCatalog(endpoint), engine, MemoryAnswerCache(1_000_000), Observer([])
        )
        self.answers = QueryService(dependencies, ServeLimits(), lambda: self.now_us)

    def store(self, **fields: str) -> None:
        event = Event(json.dumps(fields), 1_700_000_000_000_000, "", "p", json.dumps(fields), "{}")
        events_with_paths, learnt = ShapeInferrer(self.engine.shapes_by_stream).infer_stream_shape("s", [event])
        self.engine.append([ReceivedEventBatch("s", events_with_paths, 0, learnt)])

    def wait(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000

    async def ask(self, text: str) -> tuple[CacheOutcome, list[dict[str, str]]]:
        request = QueryRequest(self.endpoint, CALLER, JSON_FORMAT, {}, SandboxQuery(QueryLanguage.SQL, text))
        digest = self.answers.cache_lookup_digest(request)
        assert digest is not None
        answer = self.answers.cached_answer(digest) or await self.answers.answer(request)
        return answer.cache_outcome, json.loads(complete_answer(answer).body)["result"]

    async def tick(self) -> None:
        await asyncio.gather(*self.answers.start_due_refreshes())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    opened = DuckDBEngine(tmp_path, DuckDBTarget())
    opened.create_stream_tables([Stream("s", UUID(int=1))])
    yield opened
    opened.close()


def run(engine: DuckDBEngine, endpoint: Endpoint, test: Callable[[ShapeHarness], Awaitable[None]]) -> None:
    async def journey() -> None:
        fields = ShapeHarness(engine, endpoint)
        try:
            fields.store(a="1")
            await test(fields)
        finally:
            await fields.answers.close()

    asyncio.run(journey())


def test_queries_that_compile_to_one_statement_share_an_answer(engine: DuckDBEngine) -> None:
    async def test(fields: ShapeHarness) -> None:
        assert await fields.ask(STAR_SQL) == (CacheOutcome.MISS, ONE_ROW)
        assert await fields.ask(NAMED_COLUMN_SQL) == (CacheOutcome.HIT, ONE_ROW)

    run(engine, ENDPOINT, test)


def test_a_cached_answer_survives_a_change_of_shape(engine: DuckDBEngine) -> None:
    async def test(fields: ShapeHarness) -> None:
        await fields.ask(STAR_SQL)
        fields.store(b="2")
        assert await fields.ask(STAR_SQL) == (CacheOutcome.HIT, ONE_ROW)

    run(engine, ENDPOINT, test)


def test_queries_that_once_compiled_to_one_statement_are_separate_after_expiry(engine: DuckDBEngine) -> None:
    async def test(fields: ShapeHarness) -> None:
        await fields.ask(STAR_SQL)
        await fields.ask(NAMED_COLUMN_SQL)
        fields.store(b="2")
        fields.wait(901)
        star_answer, answer_of_named_columns = (await fields.ask(STAR_SQL))[1], (await fields.ask(NAMED_COLUMN_SQL))[1]
        assert [sorted(row) for row in star_answer] == [["a", "b"]] * 2
        assert [sorted(row) for row in answer_of_named_columns] == [["a"]] * 2

    run(engine, ENDPOINT, test)


def test_a_new_answer_of_the_old_statement_is_not_used_for_the_recompiled_query(engine: DuckDBEngine) -> None:
    async def test(fields: ShapeHarness) -> None:
        await fields.ask(STAR_SQL)
        await fields.ask(NAMED_COLUMN_SQL)
        fields.store(b="2")
        fields.wait(901)
        assert (await fields.ask(NAMED_COLUMN_SQL))[0] is CacheOutcome.MISS
        outcome, rows = await fields.ask(STAR_SQL)
        assert outcome is CacheOutcome.MISS
        assert [sorted(row) for row in rows] == [["a", "b"]] * 2

    run(engine, ENDPOINT, test)


def test_a_refresh_after_a_change_of_shape_replaces_the_cached_answer(engine: DuckDBEngine) -> None:
    async def test(fields: ShapeHarness) -> None:
        await fields.ask(STAR_SQL)
        fields.store(b="2")
        fields.wait(299)
        await fields.tick()
        for text in (STAR_SQL, "select *  from m -- laid out otherwise"):
            outcome, rows = await fields.ask(text)
            assert outcome is CacheOutcome.HIT
            assert [sorted(row) for row in rows] == [["a", "b"]] * 2
        outcome, rows = await fields.ask(NAMED_COLUMN_SQL)
        assert outcome is CacheOutcome.MISS
        assert [sorted(row) for row in rows] == [["a"]] * 2

    run(engine, WARMED, test)


def test_a_refresh_applies_to_the_same_query_in_another_layout(engine: DuckDBEngine) -> None:
    async def test(fields: ShapeHarness) -> None:
        await fields.ask(STAR_SQL)
        await fields.ask("select *\nfrom m")
        fields.store(b="2")
        fields.wait(299)
        await fields.tick()
        outcome, rows = await fields.ask("select *\nfrom m")
        assert outcome is CacheOutcome.HIT
        assert [sorted(row) for row in rows] == [["a", "b"]] * 2

    run(engine, WARMED, test)
