"""The queries that callers wait for, with the progress of each."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import Progress, ReadProgress
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.response_stream import StreamedAnswer


class RunningQuery(msgspec.Struct, eq=False):
    """A query that a caller waits for, in the queue or in the engine.

    Callers of the same question share a run of the engine, and its progress. `streamed` is the answer, if it continues
    after its first rows.
    """

    request_id: str
    endpoint: str
    key_id: str
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
    """The queries that callers wait for. Not thread-safe: use it on the event loop."""

    def __init__(self) -> None:
        self._running: dict[int, RunningQuery] = {}

    def of(self, key_id: str | None) -> list[RunningQuery]:
        """Return the queries of a key, or of all callers for None, the longest first."""
        return [query for query in self._running.values() if key_id is None or query.key_id == key_id]

    @contextmanager
    def track(self, request: QueryRequest, request_id: str) -> Iterator[RunningQuery]:
        """List a query during the block, and until the end of a streamed answer."""
        query = RunningQuery(request_id, request.endpoint.name, request.caller.key_id, time.monotonic())
        self._running[id(query)] = query
        try:
            yield query
        finally:
            forget = self._forgetter(query)
            if query.streamed is None:
                forget()
            else:
                query.streamed.on_end(forget)

    def _forgetter(self, query: RunningQuery) -> Callable[[], None]:
        def forget() -> None:
            self._running.pop(id(query), None)

        return forget
