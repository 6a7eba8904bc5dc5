"""A small thread pool for compilation, shared fairly between accounts."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from cordwood.observe.observer import Observer
from cordwood.serve.fair_queue import Askers, Lane
from cordwood.serve.gate import CompilePlaces, Gate
from cordwood.serve.limits import ServeLimits

# Compilation is pure Python and holds the GIL: more threads would only compete with the event loop.
THREADS = 2
# An account that used more compile seconds than this recently leaves one thread to the others.
HEAVY_SECONDS = 0.5
# Compilations are short: at least this many may queue, even if the queue for the engine is configured shorter.
LEAST_QUEUE = 64

P = ParamSpec("P")
T = TypeVar("T")


class Compiling:
    """The threads that compile queries, behind fair admission."""

    def __init__(self, limits: ServeLimits, observer: Observer) -> None:
        queue_length = max(LEAST_QUEUE, limits.queued_queries)
        self._gate = Gate(CompilePlaces(THREADS), queue_length, limits.queue_seconds, observer)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="compile")

    async def own(self, askers: Askers, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Compile a query that a caller wrote; raise Busy if no thread becomes free in time."""
        used = min(map(self._gate.usage, askers.accounts))
        lane = Lane.OWN_SLOW if used > HEAVY_SECONDS else Lane.UNKNOWN
        return await self._run(lane, askers, lambda: work(*arguments, **named))

    async def saved(self, askers: Askers, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Compile a saved query, which may use the thread that is reserved from slow compilations."""
        return await self._run(Lane.QUICK, askers, lambda: work(*arguments, **named))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def _run(self, lane: Lane, askers: Askers, work: Callable[[], T]) -> T:
        async with self._gate.turn(lane, askers):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            finally:
                # Keep the slot of a caller that disconnected until its thread is free.
                if not running.done():
                    await asyncio.wait({running})
                    running.exception()
