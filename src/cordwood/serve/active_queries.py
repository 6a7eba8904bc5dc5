"""The queries that are running now, and the slowest ones of the last hour."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from cordwood.errors import Fault
from cordwood.serve.ask import Ask

LATELY_SECONDS = 3600.0
MOST_SLOW = 20
_TEXT_CHARACTERS = 2000


class ActiveQuery(msgspec.Struct):
    """One run of a query, including its time in the queue. `outcome` is empty until it ends."""

    endpoint: str
    key_id: str
    language: str
    text: str
    began: float
    seconds: float = 0.0
    outcome: str = ""


class Load(msgspec.Struct, frozen=True):
    """The load of the service. `places` is the number of slots, `waiting` the number of queued queries."""

    places: int
    waiting: int
    under_way: list[ActiveQuery]
    slowest: list[ActiveQuery]
    cache_bytes: int
    cache_budget_bytes: int


class ActiveQueries:
    """The running queries and the slowest of the last hour. Not thread-safe: use it on the event loop."""

    def __init__(self) -> None:
        self._under_way: dict[int, ActiveQuery] = {}
        self._slow: list[ActiveQuery] = []

    def under_way(self) -> list[ActiveQuery]:
        """Return the running queries, longest first, with their durations up to now."""
        now = time.time()
        for run in self._under_way.values():
            run.seconds = now - run.began
        return sorted(self._under_way.values(), key=lambda run: run.began)

    def slowest(self) -> list[ActiveQuery]:
        self._forget_old()
        return sorted(self._slow, key=lambda run: -run.seconds)

    @contextmanager
    def run(self, ask: Ask) -> Iterator[None]:
        """Track a run from the moment when it enters the queue."""
        run = _started(ask)
        began = time.monotonic()
        self._under_way[id(run)] = run
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
            del self._under_way[id(run)]
            run.seconds = time.monotonic() - began
            self._note(run)

    def _note(self, run: ActiveQuery) -> None:
        if len(self._slow) >= MOST_SLOW:
            self._forget_old()
        if len(self._slow) < MOST_SLOW:
            self._slow.append(run)
            return
        quickest = min(range(MOST_SLOW), key=lambda place: self._slow[place].seconds)
        if self._slow[quickest].seconds < run.seconds:
            self._slow[quickest] = run

    def _forget_old(self) -> None:
        since = time.time() - LATELY_SECONDS
        self._slow = [run for run in self._slow if run.began >= since]


def _started(ask: Ask) -> ActiveQuery:
    language, text = (ask.sandbox.language.value, ask.sandbox.text) if ask.sandbox else ("", "")
    return ActiveQuery(ask.endpoint.name, ask.caller.key_id, language, text[:_TEXT_CHARACTERS], time.time())
