"""Keep memory below its ceiling: interrupt the query that uses too much memory, or kill the engine's process."""

import os
import signal
from collections.abc import Callable, Sequence

from cordwood.engines.hosted.link import EngineCall, EngineLink, ProcessEndReason
from cordwood.errors import OutOfMemory
from cordwood.processes.memory_use import ResidentMemoryReader
from cordwood.processes.memory_watchdog import MEMORY_LIMIT_SIGNAL, MemoryLimit

# If memory exceeds this multiple of the ceiling, the fork server's memory watchdog kills the engine's process at once.
_HARD_LIMIT_CEILING_RATIO = 1.08
# How long an interrupted query may take to free its memory. After that, the process is killed.
_MEMORY_RELEASE_GRACE_SECONDS = 0.3
# A query is stopped or suspected only if memory has grown by more than this share of the ceiling while it ran.
_MIN_SUSPICIOUS_GROWTH_SHARE = 1 / 16
# How long memory may stay above the ceiling before the process is killed, and the shortest time between two such kills.
_MAX_ABOVE_CEILING_SECONDS, _REPLACEMENT_INTERVAL_SECONDS = 5.0, 60.0


class MemoryCeiling:
    """Enforces a ceiling on the memory of the engine's process plus the growth of the serving process."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._hard_limit_bytes = max_bytes, int(_HARD_LIMIT_CEILING_RATIO * max_bytes)
        self._own_memory_reader = ResidentMemoryReader(os.getpid())
        self._initial_own_memory_bytes = self._own_memory_reader.read() or 0
        self._process_memory_reader: ResidentMemoryReader | None = None
        # How much memory the engine's process used when its use was last read.
        self._last_process_memory_bytes = 0
        self._exceeded_since: float | None = None
        self._next_process_replacement_at = 0.0

    def hard_limit(self) -> MemoryLimit:
        return MemoryLimit(self._hard_limit_bytes, self._initial_own_memory_bytes)

    def watch(self, pid: int) -> None:
        """Watch the memory of the process `pid` from now on, instead of the memory of the previous process."""
        self.close()
        self._process_memory_reader = ResidentMemoryReader(pid)
        self._exceeded_since = None

    def close(self) -> None:
        if self._process_memory_reader is not None:
            self._process_memory_reader.close()

    def enforce(
        self,
        link: EngineLink,
        queries: Sequence[EngineCall],
        now: float,
        interrupt: Callable[[EngineLink, EngineCall], None],
    ) -> None:
        process_bytes = None if self._process_memory_reader is None else self._process_memory_reader.read()
        if process_bytes is None:
            return
        self._last_process_memory_bytes = process_bytes
        for call in queries:
            call.lowest_process_memory_bytes = min(call.lowest_process_memory_bytes or process_bytes, process_bytes)
        if process_bytes + self._own_growth_bytes() <= self._max_bytes:
            self._exceeded_since = None
            return
        self._exceeded_since = self._exceeded_since or now
        self._stop_newest_query(link, queries, process_bytes, now, interrupt)
        if now > max(self._exceeded_since + _MAX_ABOVE_CEILING_SECONDS, self._next_process_replacement_at):
            self._next_process_replacement_at = now + _REPLACEMENT_INTERVAL_SECONDS
            link.kill(ProcessEndReason("memory", "memory stayed above its ceiling"))

    def explain_process_end(self, signal_number: int, calls: Sequence[EngineCall]) -> ProcessEndReason | None:
        """Return why a signal ended the process during these calls; None if it has nothing to do with memory."""
        queries = [call for call in calls if call.is_query]
        if signal_number == MEMORY_LIMIT_SIGNAL:
            return self._hard_limit_kill_reason(queries)
        if signal_number == signal.SIGKILL:
            # Either a person sent the signal, or the kernel did because memory ran out. In the second case, the process
            # has grown while the query that caused the end was running.
            alone_calls = [
                call
                for call in self._calls_with_memory_growth(queries, self._last_process_memory_bytes)
                if call.is_suspect_rerun
            ]
            return ProcessEndReason("died", "the process was killed", alone_calls if len(alone_calls) == 1 else [])
        return None

    def _hard_limit_kill_reason(self, queries: Sequence[EngineCall]) -> ProcessEndReason:
        """Return the reason for the kill by the memory watchdog, and the queries that may be its cause.

        Background work, or several queries together, may have taken the memory. Therefore, the queries run again one at
        a time. If exactly one of them was already running for the second time (`is_suspect_rerun`), it is the cause.
        """
        process_bytes = self._hard_limit_bytes - self._own_growth_bytes()
        new_queries = [call for call in queries if call.lowest_process_memory_bytes is None]
        suspects = [*new_queries, *self._calls_with_memory_growth(queries, process_bytes)]
        causes = [call for call in suspects if call.is_suspect_rerun]
        if len(causes) == 1:
            return _ceiling_kill_reason(causes)
        return ProcessEndReason("memory", "memory passed its hard limit", [], suspects)

    def _own_growth_bytes(self) -> int:
        """Return by how many bytes the serving process has grown since it was first measured.

        Its initial bytes are not counted, because it may share them with the engine's process.
        """
        return max(0, (self._own_memory_reader.read() or 0) - self._initial_own_memory_bytes)

    def _stop_newest_query(
        self,
        link: EngineLink,
        queries: Sequence[EngineCall],
        process_bytes: int,
        now: float,
        interrupt: Callable[[EngineLink, EngineCall], None],
    ) -> None:
        """Interrupt the newest query during which memory grew considerably; kill the process if that does not help.

        A query is known to be the cause only if memory did not grow considerably during any other query.
        """
        grown_calls = self._calls_with_memory_growth(queries, process_bytes)
        if not grown_calls:
            return
        stopped_calls = [call for call in queries if call.stop_fault is not None]
        if not stopped_calls:
            stopped_calls = [max(grown_calls, key=lambda call: call.sent_at or 0.0)]
            stopped_calls[0].stop_fault, stopped_calls[0].stopped_at = _out_of_memory_fault(), now
            interrupt(link, stopped_calls[0])
        if any(now > call.stopped_at + _MEMORY_RELEASE_GRACE_SECONDS for call in stopped_calls):
            link.kill(_ceiling_kill_reason(grown_calls))

    def _calls_with_memory_growth(self, queries: Sequence[EngineCall], process_bytes: int) -> Sequence[EngineCall]:
        """Return the queries during which memory grew by more than `_MIN_SUSPICIOUS_GROWTH_SHARE` of the ceiling."""
        min_growth = self._max_bytes * _MIN_SUSPICIOUS_GROWTH_SHARE
        return [
            call
            for call in queries
            if call.lowest_process_memory_bytes is not None
            and process_bytes - call.lowest_process_memory_bytes > min_growth
        ]


def _ceiling_kill_reason(grown_calls: Sequence[EngineCall]) -> ProcessEndReason:
    causes, suspects = (grown_calls, []) if len(grown_calls) == 1 else ([], grown_calls)
    return ProcessEndReason("memory", "memory passed its ceiling while it ran", causes, suspects)


def _out_of_memory_fault() -> OutOfMemory:
    return OutOfMemory(
        "The query was stopped: memory passed its ceiling while it ran.",
        hint="Read a shorter time range, or fewer columns.",
    )
