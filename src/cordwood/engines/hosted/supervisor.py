"""Supervise the engine's process: kill it when a query does not stop or exceeds the memory ceiling, and restart it."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from cordwood.engines.hosted.link import Call, KillReason, Link
from cordwood.engines.hosted.messages import FrameKind, StreamState, with_number
from cordwood.engines.hosted.request_dispatcher import RequestDispatcher
from cordwood.errors import EngineFailed, Fault, OutOfMemory
from cordwood.observe.observation import Noted
from cordwood.processes.fork_server import ForkServer
from cordwood.processes.memory_use import resident_bytes

# The time in which a query must stop after it was interrupted at its time limit, before the process is killed.
GRACE_SECONDS = 1.0
# The time in which a cancelled query must stop.
_ABANDONED_SECONDS = 10.0
_BUSY_PAUSE_SECONDS, _IDLE_PAUSE_SECONDS = 0.02, 0.1
# Above this share of the ceiling memory is read more often: two threads fill some gigabytes a second.
_ALERT_SHARE, _ALERT_PAUSE_SECONDS = 0.6, 0.004
# The time for an interrupted query to free its memory.
_FREE_MEMORY_SECONDS = 0.3
# Above this multiple of the ceiling the process is killed at once.
_KILL_RATIO = 1.1
# A query is stopped only if memory has grown by this share of the ceiling while it ran.
_MIN_MEMORY_GROWTH_SHARE = 1 / 16
_PING_SECONDS, _SILENT_SECONDS = 5.0, 30.0
# The interval at which progress is requested, and the time for which the oldest query must have run before that.
_PROGRESS_SECONDS, _LONG_SECONDS = 0.25, 0.5
# The pause before the next process doubles with each failure. If processes open but end soon, a query may be the cause:
# then the pause is short, so that other requests need not wait long.
_FIRST_BACK_OFF_SECONDS, _MAX_BACK_OFF_SECONDS, _MAX_BACK_OFF_AFTER_OPENING_SECONDS = 0.1, 5.0, 0.4
# A process that ends by itself sooner than this after it was opened counts as a failure.
_SHORT_LIFE_SECONDS = 1.0

# A function that receives the reason why the engine cannot answer, or None if it can.
StateCallback = Callable[[str | None], None]


class LaunchOptions(msgspec.Struct, frozen=True):
    """How to open the engine's process, and the limit of its memory together with the growth of this process."""

    settings: object
    memory_ceiling: int
    on_state: StateCallback


class Supervisor:
    """The supervisor thread of the engine's process."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        fork_server: ForkServer,
        options: LaunchOptions,
        update_states: Callable[..., None],
    ) -> None:
        self._dispatcher = dispatcher
        self._fork_server = fork_server
        self._options = options
        self._update_states = update_states
        self._opening_link: Link | None = None
        # The last process that opened the engine, until it is replaced.
        self._opened_link: Link | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._pinged_at = self._asked_progress_at = 0.0
        self._initial_own_bytes = resident_bytes(os.getpid()) or 0
        # The memory that counts towards the ceiling, as it was read last while a query ran.
        self._total_bytes = 0
        self._thread = threading.Thread(target=self._run_thread, name="engine-keeper", daemon=True)

    def start(self) -> None:
        """Open the first process, raising any failure; from then on replace each process that ends."""
        self._open()
        self._thread.start()

    def stop(self) -> None:
        """Stop supervising; call it after the dispatcher is closed."""
        while self._thread.is_alive():
            # The thread may be opening another process at this moment.
            opening = self._opening_link
            if opening is not None:
                opening.kill()
            self._dispatcher.wake.set()
            self._thread.join(_BUSY_PAUSE_SECONDS)
        if self._opened_link is not None:
            self._opened_link.close()

    def pids(self) -> list[int]:
        """Return the ids of the child processes."""
        link = self._dispatcher.link
        pids = [self._fork_server.pid, link.child.pid if link else None]
        return [pid for pid in pids if pid is not None]

    def _run_thread(self) -> None:
        while not self._dispatcher.is_closed:
            link = self._dispatcher.link
            self._fork_server.replace_ended()
            if link is None:
                self._replace()
            else:
                self._watch(link, time.monotonic())
            self._dispatcher.wake.wait(self._pause_seconds(link))
            self._dispatcher.wake.clear()

    def _pause_seconds(self, link: Link | None) -> float:
        if link is not None and not link.calls:
            return _IDLE_PAUSE_SECONDS
        is_alert = self._total_bytes > _ALERT_SHARE * self._options.memory_ceiling
        return _ALERT_PAUSE_SECONDS if is_alert else _BUSY_PAUSE_SECONDS

    # Opening a process

    def _open(self) -> None:
        try:
            child = self._fork_server.fork()
        except OSError as problem:
            raise EngineFailed(f"The engine's process cannot be started: {problem}.") from problem
        link = self._opening_link = Link(child, self._dispatcher.note)
        try:
            states: dict[str, StreamState] = link.open(self._options.settings, list(self._dispatcher.streams.values()))
        except BaseException as problem:
            link.close()
            if isinstance(problem, OSError):
                raise EngineFailed("The engine's process ended while it opened the events.") from problem
            raise
        finally:
            self._opening_link = None
        self._opened_link = link
        self._update_states(states)
        self._dispatcher.attach(link)

    def _replace(self) -> None:
        now = time.monotonic()
        if now < self._retry_at:
            return
        previous, self._opened_link = self._opened_link, None
        if previous is not None:
            previous.close()
            if _ended_soon(previous, now):
                self._record_failure(
                    "The engine's process ends soon after it was started.", _MAX_BACK_OFF_AFTER_OPENING_SECONDS
                )
                if self._failures > 1:
                    return
        try:
            self._open()
        except Fault as fault:
            self._record_failure(fault.message)
        except Exception as problem:  # noqa: BLE001 - the service goes on and says that it cannot answer
            self._record_failure(f"The engine cannot be opened: {problem!r}.")
        else:
            self._options.on_state(None)

    def _record_failure(self, reason: str, max_back_off_seconds: float = _MAX_BACK_OFF_SECONDS) -> None:
        self._failures += 1
        self._retry_at = time.monotonic() + min(
            _FIRST_BACK_OFF_SECONDS * 2 ** min(self._failures - 1, 10), max_back_off_seconds
        )
        if self._failures > 1:
            self._options.on_state(reason)
            self._dispatcher.note(Noted(message=f"The engine cannot answer: {reason}", level="error"))

    # Watching a process

    def _watch(self, link: Link, now: float) -> None:
        if self._failures and now - link.opened_at > _SHORT_LIFE_SECONDS:
            self._failures = 0
        calls = self._dispatcher.calls_in_progress()
        self._dispatcher.run_next_suspect()
        for call in calls:
            if call.cancelled_at is not None and not call.cancel_is_sent:
                _interrupt(link, call)
        queries = [call for call in calls if call.is_query]
        self._kill_overdue(link, queries, now)
        self._enforce_memory_ceiling(link, queries, now)
        self._ask_progress(link, queries, now)
        self._check_liveness(link, now)

    def _kill_overdue(self, link: Link, queries: Sequence[Call], now: float) -> None:
        overdue = [call for call in queries if now > _deadline_of(call) + GRACE_SECONDS]
        if overdue:
            link.kill(
                KillReason("time", f"it did not stop within {GRACE_SECONDS:g} s after its time was over", overdue)
            )

    def _enforce_memory_ceiling(self, link: Link, queries: Sequence[Call], now: float) -> None:
        process_bytes = resident_bytes(link.child.pid) if queries else None
        if process_bytes is None:
            self._total_bytes = 0
            return
        for call in queries:
            call.bytes_before = min(call.bytes_before or process_bytes, process_bytes)
        self._total_bytes = process_bytes + self._unshared_bytes()
        if self._total_bytes > self._options.memory_ceiling:
            self._stop_newest_query(link, queries, process_bytes, self._total_bytes, now)

    def _unshared_bytes(self) -> int:
        """Return the resident bytes of this process, without the pages that it shares with the engine's process."""
        return max(0, (resident_bytes(os.getpid()) or 0) - self._initial_own_bytes)

    def _stop_newest_query(
        self, link: Link, queries: Sequence[Call], process_bytes: int, total_bytes: int, now: float
    ) -> None:
        """Interrupt the newest query during which memory grew much; kill the process if that does not help.

        A query is known to be the cause only if memory grew while no other query was running.
        """
        grown_calls = [
            call
            for call in queries
            if process_bytes - (call.bytes_before or process_bytes)
            > self._options.memory_ceiling * _MIN_MEMORY_GROWTH_SHARE
        ]
        if not grown_calls:
            return
        stopped_calls = [call for call in queries if call.stop_fault is not None]
        if not stopped_calls:
            stopped_calls = [max(grown_calls, key=lambda call: call.sent_at or 0.0)]
            stopped_calls[0].stop_fault, stopped_calls[0].stopped_at = _out_of_memory_fault(), now
            _interrupt(link, stopped_calls[0])
        is_late = any(now > call.stopped_at + _FREE_MEMORY_SECONDS for call in stopped_calls)
        if is_late or total_bytes > _KILL_RATIO * self._options.memory_ceiling:
            causes, suspects = (grown_calls, []) if len(grown_calls) == 1 else ([], grown_calls)
            link.kill(KillReason("memory", "memory passed its ceiling while it ran", causes, suspects))

    def _ask_progress(self, link: Link, queries: Sequence[Call], now: float) -> None:
        """Ask the engine's process for the progress of its queries, if one of them takes long."""
        is_long = any(now > (call.sent_at or now) + _LONG_SECONDS for call in queries)
        if is_long and now > self._asked_progress_at + _PROGRESS_SECONDS and _try_send(link, FrameKind.ASK_PROGRESS):
            self._asked_progress_at = now

    def _check_liveness(self, link: Link, now: float) -> None:
        if now > link.last_received_at + _SILENT_SECONDS and self._pinged_at > link.last_received_at:
            link.kill()
        if now > max(self._pinged_at, link.last_received_at) + _PING_SECONDS and _try_send(link, FrameKind.PING):
            self._pinged_at = now


def _ended_soon(link: Link, now: float) -> bool:
    """Return whether a process ended by itself soon after it was opened, and was not killed for a query."""
    return link.kill_reason is None and now - link.opened_at < _SHORT_LIFE_SECONDS


def _deadline_of(call: Call) -> float:
    sent_at = call.sent_at or time.monotonic()
    deadline = sent_at + (call.seconds or float("inf"))
    return (
        deadline if call.cancelled_at is None else min(deadline, max(call.cancelled_at, sent_at) + _ABANDONED_SECONDS)
    )


def _interrupt(link: Link, call: Call) -> None:
    call.cancel_is_sent = _try_send(link, FrameKind.CANCEL, with_number(call.number))


def _try_send(link: Link, kind: FrameKind, payload: bytes = b"") -> bool:
    try:
        return link.frames.try_send(kind, payload)
    except OSError:
        link.kill()
        return False


def _out_of_memory_fault() -> OutOfMemory:
    return OutOfMemory(
        "The query was stopped: memory passed its ceiling while it ran.",
        hint="Read a shorter time range, or fewer columns.",
    )
