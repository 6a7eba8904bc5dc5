"""Compilation on a small thread pool, shared fairly between accounts, and the log of compiler errors."""

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import ParamSpec, TypeVar

from cordwood.errors import CompilerBroke
from cordwood.observe.observation import BugFound
from cordwood.observe.observer import Observer
from cordwood.serve.admission import Admission, CompileSlots, ServeLimits
from cordwood.serve.fair_queue import Lane, WaitingAccounts

# The number of distinct places that are logged.
MAX_LOGGED_ERRORS = 1000


class CompilerErrorLog:
    """Logs compiler errors by exception type and source line, so that a repeated query does not flood the log."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._logged: set[str] = set()

    def log(self, fault: CompilerBroke) -> None:
        """Log the error and add an incident id to the hint.

        The log has neither the query nor the message, which may quote it.
        """
        cause = fault.__cause__
        if cause is None:
            return
        location = _location_of(cause)
        incident = f"compiler-{sha256(location.encode()).hexdigest()[:12]}"
        fault.hint = f"Rewrite the query, and report the incident {incident}."
        if location not in self._logged and len(self._logged) < MAX_LOGGED_ERRORS:
            self._logged.add(location)
            trace = "".join([*traceback.format_tb(cause.__traceback__), type(cause).__name__])
            self._observer.note(BugFound(incident=incident, trace=trace))


def _location_of(cause: BaseException) -> str:
    frames = traceback.extract_tb(cause.__traceback__)
    last = frames[-1] if frames else None
    return f"{type(cause).__name__} {last.filename}:{last.lineno}" if last else type(cause).__name__


# Compilation is pure Python and holds the GIL: more threads would only compete with the event loop.
THREADS = 2
# An account that used more compile seconds than this recently leaves one thread to the others.
HEAVY_SECONDS = 0.5
# Compilations are short: at least this many may queue, even if the queue for the engine is configured shorter.
MIN_QUEUE = 64

P = ParamSpec("P")
T = TypeVar("T")


class CompilePool:
    """The threads that compile queries, behind fair admission."""

    def __init__(self, limits: ServeLimits, observer: Observer) -> None:
        queue_length = max(MIN_QUEUE, limits.queued_queries)
        self._admission = Admission(CompileSlots(THREADS), queue_length, limits.queue_seconds, observer)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="compile")

    async def compile_unsaved(
        self, waiting: WaitingAccounts, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Compile a query that a caller wrote; raise Busy if no thread becomes free in time."""
        used_seconds = min(map(self._admission.usage, waiting.accounts))
        lane = Lane.OWN_SLOW if used_seconds > HEAVY_SECONDS else Lane.UNKNOWN
        return await self._run(lane, waiting, lambda: work(*arguments, **named))

    async def compile_saved(
        self, waiting: WaitingAccounts, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Compile a saved query, which may use the thread that is reserved from slow compilations."""
        return await self._run(Lane.QUICK, waiting, lambda: work(*arguments, **named))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def _run(self, lane: Lane, waiting: WaitingAccounts, work: Callable[[], T]) -> T:
        async with self._admission.slot(lane, waiting):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            finally:
                # Keep the slot of a caller that disconnected until its thread is free.
                if not running.done():
                    await asyncio.wait({running})
                    running.exception()
