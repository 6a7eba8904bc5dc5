"""The queries that are being answered: requests with their progress, runs on the engine, and the slowest recent runs."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import Progress, ReadProgress
from cordwood.errors import Fault
from cordwood.model.key import Caller
from cordwood.serve.jobs import StreamedAnswer
from cordwood.serve.query_request import QueryRequest


class RunningQuery(msgspec.Struct, eq=False):
    """A request whose query is queued or runs on the engine.

    Requests with the same question share one run and its progress. `streamed` is the answer if it goes on after its
    first rows.
    """

    request_id: str
    endpoint: str
    caller: Caller
    started_at: float
    read_progress: ReadProgress = lambda: None
    streamed: StreamedAnswer | None = None

    @property
    def progress(self) -> Progress:
        return self.read_progress() or Progress()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_at


class RunningQueries:
    """The requests that wait for an answer. Not thread-safe: use it on the event loop."""

    def __init__(self) -> None:
        self._running: dict[int, RunningQuery] = {}

    def of(self, caller: Caller | None) -> list[RunningQuery]:
        """Return the requests of one caller, or of all if `caller` is None, the longest-running first.

        Callers are compared with their pins and scopes, because signed keys of one subject have the same id.
        """
        return [query for query in self._running.values() if caller is None or query.caller == caller]

    @contextmanager
    def track(self, request: QueryRequest, request_id: str) -> Iterator[RunningQuery]:
        """List a query while the block runs, and until the end of a streamed answer."""
        query = RunningQuery(request_id, request.endpoint.name, request.caller, time.monotonic())
        self._running[id(query)] = query
        try:
            yield query
        finally:
            remove = self._remover(query)
            if query.streamed is None:
                remove()
            else:
                query.streamed.on_end(remove)

    def _remover(self, query: RunningQuery) -> Callable[[], None]:
        def remove() -> None:
            self._running.pop(id(query), None)

        return remove


RECENT_SECONDS = 3600.0
MAX_SLOW_QUERIES = 20
_TEXT_CHARACTERS = 2000


class ActiveQuery(msgspec.Struct):
    """One run of a query, with its time in the queue. `outcome` is empty until the run ends."""

    endpoint: str
    key_id: str
    language: str
    text: str
    started_at: float
    seconds: float = 0.0
    outcome: str = ""


class Load(msgspec.Struct, frozen=True):
    """The load of the service: total slots, queued queries, running and slowest queries, and the size of the cache."""

    slots: int
    waiting: int
    running: list[ActiveQuery]
    slowest: list[ActiveQuery]
    cache_bytes: int
    cache_budget_bytes: int


class ActiveQueries:
    """The running queries, and the slowest of the last hour. Not thread-safe: use it on the event loop."""

    def __init__(self) -> None:
        self._running: dict[int, ActiveQuery] = {}
        self._slow: list[ActiveQuery] = []

    def running(self) -> list[ActiveQuery]:
        """Return the running queries with their durations until now, the longest first."""
        now = time.time()
        for run in self._running.values():
            run.seconds = now - run.started_at
        return sorted(self._running.values(), key=lambda run: run.started_at)

    def slowest(self) -> list[ActiveQuery]:
        self._drop_old()
        return sorted(self._slow, key=lambda run: -run.seconds)

    @contextmanager
    def run(self, request: QueryRequest) -> Iterator[None]:
        """Track a run while the block runs, from its entry into the queue."""
        run = _started(request)
        started_at = time.monotonic()
        self._running[id(run)] = run
        try:
            yield
            run.outcome = "ok"
        except Fault as fault:
            run.outcome = fault.code
            raise
        except asyncio.CancelledError:
            run.outcome = "abandoned"
            raise
        finally:
            del self._running[id(run)]
            run.seconds = time.monotonic() - started_at
            self._note(run)

    def _note(self, run: ActiveQuery) -> None:
        if len(self._slow) >= MAX_SLOW_QUERIES:
            self._drop_old()
        if len(self._slow) < MAX_SLOW_QUERIES:
            self._slow.append(run)
            return
        quickest = min(range(MAX_SLOW_QUERIES), key=lambda index: self._slow[index].seconds)
        if self._slow[quickest].seconds < run.seconds:
            self._slow[quickest] = run

    def _drop_old(self) -> None:
        since = time.time() - RECENT_SECONDS
        self._slow = [run for run in self._slow if run.started_at >= since]


def _started(request: QueryRequest) -> ActiveQuery:
    language, text = (request.sandbox.language.value, request.sandbox.written) if request.sandbox else ("", "")
    return ActiveQuery(request.endpoint.name, request.caller.key_id, language, text[:_TEXT_CHARACTERS], time.time())
