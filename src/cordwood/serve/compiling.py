"""Compiling in a few threads, whose places are shared fairly between callers."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cordwood.observe.observer import Observer
from cordwood.serve.fair_queue import Askers, Lane
from cordwood.serve.gate import CompilePlaces, Gate
from cordwood.serve.limits import ServeLimits

# Compiling is Python's own work: more threads would only take turns with the event loop's.
THREADS = 2
# An account whose texts took longer than this of late leaves a place to the others.
HEAVY_SECONDS = 0.5
# Compiling is short: a burst may wait for it even where few queries may wait for the engine.
LEAST_QUEUE = 64

P = ParamSpec("P")
T = TypeVar("T")


class Compiling:
    """The threads in which queries are compiled."""

    def __init__(self, limits: ServeLimits, observer: Observer) -> None:
        queue_length = max(LEAST_QUEUE, limits.queued_queries)
        self._gate = Gate(CompilePlaces(THREADS), queue_length, limits.queue_seconds, observer)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="compile")

    async def own(self, askers: Askers, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Work on a text of the callers' own, in its turn; Busy when there is none in time."""
        used = min(map(self._gate.usage, askers.accounts))
        lane = Lane.OWN_SLOW if used > HEAVY_SECONDS else Lane.UNKNOWN
        return await self._run(lane, askers, lambda: work(*arguments, **named))

    async def saved(self, askers: Askers, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The same for a saved query, which has a place that texts which take long cannot have."""
        return await self._run(Lane.QUICK, askers, lambda: work(*arguments, **named))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def _run(self, lane: Lane, askers: Askers, work: Callable[[], T]) -> T:
        async with self._gate.turn(lane, askers):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            finally:
                # A caller that has left gives its place back when the thread is free.
                if not running.done():
                    await asyncio.wait({running})
                    running.exception()
