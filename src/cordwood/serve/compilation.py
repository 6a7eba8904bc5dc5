"""Compilation in a small thread pool that accounts share fairly, and the log of compiler errors."""

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

# The maximum number of source lines for which an error is logged.
MAX_LOGGED_ERRORS = 1000


class CompilerErrorLog:
    """Logs compiler errors once for each exception type and source line, so that repeats do not flood the log."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._logged: set[str] = set()

    def log(self, fault: CompilerBroke) -> None:
        """Log an error and add its incident id to the hint.

        The query and the message, which may quote the query, are not logged.
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


# Compilation is pure Python, which holds the GIL: more threads would only compete with the event loop.
THREADS = 2
# After a query that took this much CPU time to compile, an account cannot use the last free thread for a minute. The
# slowest query of a known client takes 0.06 s, and a garbage collection, which may hit any thread, 0.1 s. The total
# time of an account does not count, because many short compilations are no burden.
SLOW_CPU_SECONDS = 0.25
SLOW_FOR_SECONDS = 60.0
_SLOW_ACCOUNTS_BYTES = 2**20
# At least this many compilations may be queued, even if the queue for the engine is configured shorter, because they
# are short.
MIN_QUEUE = 64

P = ParamSpec("P")
T = TypeVar("T")


class CompilePool:
    """The threads that compile queries, with fair admission."""

    def __init__(self, limits: ServeLimits, observer: Observer) -> None:
        queue_length = max(MIN_QUEUE, limits.queued_queries)
        self._admission = Admission(CompileSlots(THREADS), queue_length, limits.queue_seconds, observer)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="compile")
        # By account: the time until which it counts as slow.
        self._slow_until: BoundedCache[str, float] = BoundedCache(_SLOW_ACCOUNTS_BYTES, _entry_bytes)

    async def compile_unsaved(
        self, waiting: WaitingAccounts, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Compile a caller's own query; raise Busy if no thread becomes free in time."""
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
        """Compile a saved query, which may use the last free thread."""
        return await self._run(Lane.QUICK, waiting, lambda: work(*arguments, **named))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def _run(self, lane: Lane, waiting: WaitingAccounts, work: Callable[[], T]) -> T:
        async with self._admission.slot(lane, waiting):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            finally:
                # If the caller has disconnected, its slot is held until its thread is free.
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
