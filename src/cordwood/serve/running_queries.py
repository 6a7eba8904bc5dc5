"""The requests that wait for a query, with the progress of its run. `active_queries` has the runs of the engine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import Progress, ReadProgress
from cordwood.model.key import Caller
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.response_stream import StreamedAnswer


class RunningQuery(msgspec.Struct, eq=False):
    """A request whose query is in the queue or runs on the engine.

    Requests with the same question share a run, and its progress. `streamed` is the answer, if it continues
    after its first rows.
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
    """The requests that wait for a query. Not thread-safe: use it on the event loop."""

    def __init__(self) -> None:
        self._running: dict[int, RunningQuery] = {}

    def of(self, caller: Caller | None) -> list[RunningQuery]:
        """Return the requests of a caller, or of all callers for None, the longest first.

        Callers are compared with their pins and scopes: signed keys of one subject have the same id.
        """
        return [query for query in self._running.values() if caller is None or query.caller == caller]

    @contextmanager
    def track(self, request: QueryRequest, request_id: str) -> Iterator[RunningQuery]:
        """List a query during the block, and until the end of a streamed answer."""
        query = RunningQuery(request_id, request.endpoint.name, request.caller, time.monotonic())
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
