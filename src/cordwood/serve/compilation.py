"""Compilation on a small thread pool, shared fairly between accounts, and the log of compiler errors."""

import asyncio
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import ParamSpec, TypeVar

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.errors import CompilerBroke
from cordwood.observe.observation import BugFound, Observer
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
# An account leaves one thread to the others for a minute after a query of its own took this much CPU time to compile. The
# slowest query of a client takes 0.06 s, and a garbage collection, which any thread may run, takes 0.1 s. The total of an
# account does not count: many short compilations are no burden.
SLOW_CPU_SECONDS = 0.25
SLOW_FOR_SECONDS = 60.0
_SLOW_ACCOUNTS_BYTES = 2**20
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
        # Until when each account counts as slow.
        self._slow_until: BoundedCache[str, float] = BoundedCache(_SLOW_ACCOUNTS_BYTES, _entry_bytes)

    async def compile_unsaved(
        self, waiting: WaitingAccounts, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Compile a query that a caller wrote; raise Busy if no thread becomes free in time."""
        cpu_seconds = 0.0

        def timed_work() -> T:
            nonlocal cpu_seconds
            began = time.thread_time()
            try:
                return work(*arguments, **named)
            finally:
                cpu_seconds = time.thread_time() - began

        lane = Lane.OWN_SLOW if all(map(self._is_slow, waiting.accounts)) else Lane.UNKNOWN
        try:
            return await self._run(lane, waiting, timed_work)
        finally:
            if cpu_seconds > SLOW_CPU_SECONDS:
                self._note_slow(waiting)

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

    def _is_slow(self, account: str) -> bool:
        return (self._slow_until.get(account) or 0.0) > time.monotonic()

    def _note_slow(self, waiting: WaitingAccounts) -> None:
        for account in waiting.accounts:
            self._slow_until.put(account, time.monotonic() + SLOW_FOR_SECONDS)


def _entry_bytes(account: str, _: float) -> int:
    return bytes_of(account)
