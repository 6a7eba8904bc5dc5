"""Shared parts of the serve tests: endpoints, a caller, and the query service over a scripted engine and a manual
clock.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.key import Caller
from cordwood.observe.observation import Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import Answer, QueryService, QueryServiceDependencies
from cordwood.serve.cached_answers import MemoryAnswerCache
from cordwood.serve.jobs import CompleteAnswer
from cordwood.serve.query_request import AnswerFormat, QueryRequest
from cordwood.web.encode import JSON_FORMAT
from tests.fakes.catalogs import MemoryCatalog
from tests.fakes.engines import ScriptedEngine

WARMED_ENDPOINT = Endpoint(
    name="warmed",
    id=UUID("00000000-0000-4000-8000-000000000001"),
    sql="with numbers as (select @ratio as ratio, @since as since, @project as project) select * from numbers",
    revision="revision-1",
    cache_seconds=900,
    warm_seconds=300,
    accepts_sandbox_queries=True,
    parameters=(
        Parameter("project", default="default"),
        Parameter("ratio", Kind.FLOAT64),
        Parameter("since", Kind.TIMESTAMP),
    ),
)
UNCACHED_ENDPOINT = msgspec.structs.replace(
    WARMED_ENDPOINT, name="uncached", id=UUID(int=2), cache_seconds=0.0, warm_seconds=None
)
CALLER = Caller("key-1", frozenset({"private"}))


def make_request(
    endpoint: Endpoint = WARMED_ENDPOINT, form: AnswerFormat = JSON_FORMAT, **parameters: str
) -> QueryRequest:
    return QueryRequest(endpoint, CALLER, form, parameters)


class NoteList:
    """A sink that keeps all observations."""

    def __init__(self) -> None:
        self.all: list[object] = []

    def record(self, observation: object) -> None:
        self.all.append(observation)


@dataclass
class ServeHarness:
    """The query service over an engine with scripted answers, at a time that the test sets."""

    limits: ServeLimits = field(default_factory=ServeLimits)
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    catalog: MemoryCatalog = field(default_factory=lambda: MemoryCatalog(WARMED_ENDPOINT, UNCACHED_ENDPOINT))
    notes: NoteList = field(default_factory=NoteList)
    now_us: int = 1_700_000_000_000_000
    answers: QueryService = field(init=False)

    def __post_init__(self) -> None:
        self.cache = MemoryAnswerCache(10_000_000)
        self.answers = QueryService(
            QueryServiceDependencies(self.catalog, self.engine, self.cache, Observer([self.notes])),
            self.limits,
            lambda: self.now_us,
        )

    def advance(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)

    async def tick(self, seconds: float = 0) -> int:
        """Advance the clock, and run the due refreshes until they end. Return their number."""
        self.advance(seconds)
        started = self.answers.start_due_refreshes()
        await asyncio.gather(*started)
        return len(started)

    async def body(self, request: QueryRequest) -> bytes:
        return complete_answer(await self.answers.answer(request)).body


def complete_answer(answer: Answer) -> CompleteAnswer:
    assert isinstance(answer.body, CompleteAnswer)
    return answer.body


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true. Another thread makes it true."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def run_with_harness(test: Callable[[ServeHarness], Awaitable[None]], harness: ServeHarness | None = None) -> None:
    async def with_harness() -> None:
        used = harness or ServeHarness()
        try:
            await test(used)
        finally:
            used.engine.release()
            await used.answers.close()

    asyncio.run(with_harness())
