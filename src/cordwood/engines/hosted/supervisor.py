"""Supervise the engine's process: kill it when a query does not stop or exceeds the memory ceiling, and restart it."""

import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from cordwood.engines.hosted.link import EngineCall, EngineLink, ProcessEndReason
from cordwood.engines.hosted.memory_ceiling import MemoryCeiling
from cordwood.engines.hosted.messages import FrameKind, StreamState, prefix_request_number
from cordwood.engines.hosted.request_dispatcher import RequestDispatcher
from cordwood.errors import EngineFailed, Fault
from cordwood.observe.observation import OperatorMessage
from cordwood.processes.fork_server import ForkServer

# How long a query that was interrupted at its time limit may take to stop before the process is killed.
INTERRUPT_GRACE_SECONDS = 1.0
# How long a query may continue after it was cancelled. After that, it is treated like a query that exceeds its time
# limit.
_CANCEL_GRACE_SECONDS = 10.0
_BUSY_PAUSE_SECONDS, _IDLE_PAUSE_SECONDS = 0.02, 0.1
# How long a process may send nothing before it is sent a ping, and before it is killed.
_SILENCE_BEFORE_PING_SECONDS, _MAX_SILENCE_SECONDS = 5.0, 30.0
# How often progress is requested, and how long the oldest query must have run before progress is requested.
_PROGRESS_INTERVAL_SECONDS, _PROGRESS_MIN_RUN_SECONDS = 0.25, 0.5
# The pause before the next process is started doubles with each failure, up to a maximum. If processes open the engine
# but end soon after, a query may be the cause. In this case, the maximum is short, so that other requests do not wait
# long.
_FIRST_BACK_OFF_SECONDS, _MAX_BACK_OFF_SECONDS, _MAX_BACK_OFF_AFTER_OPENING_SECONDS = 0.1, 5.0, 0.4
# A process that ends by itself sooner than this after it has opened the engine counts as a failure.
_MIN_PROCESS_LIFE_SECONDS = 1.0

# If a process exceeds its memory limit within `_EARLY_MEMORY_EXCESS_SECONDS` after it has opened the engine, and no
# query may be the cause, the next process would exceed the limit as well. Therefore, the memory watchdog watches no new
# process for `_MEMORY_UNWATCHED_SECONDS`.
_EARLY_MEMORY_EXCESS_SECONDS, _MEMORY_UNWATCHED_SECONDS = 10.0, 60.0

# A function that receives the reason why the engine cannot answer, or None if it can.
AvailabilityCallback = Callable[[str | None], None]


class LaunchOptions(msgspec.Struct, frozen=True):
    """The options for starting the engine's process.

    `memory_ceiling_bytes` limits the memory of the engine's process plus the growth of the serving process. If a
    process ended because of its memory, and no query is known to be the cause, the next process uses
    `low_memory_settings`.
    """

    engine_settings: object
    memory_ceiling_bytes: int
    on_availability_change: AvailabilityCallback
    low_memory_settings: object = None


class EngineProcessSupervisor:
    """Starts, watches and replaces the engine's process, in a thread of its own."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        fork_server: ForkServer,
        options: LaunchOptions,
        update_states: Callable[..., None],
    ) -> None:
        self._request_dispatcher = dispatcher
        self._fork_server = fork_server
        self._launch_options = options
        self._update_stream_states = update_states
        self._link_being_opened: EngineLink | None = None
        # The link to the process that opened the engine last, until that process is replaced.
        self._last_opened_link: EngineLink | None = None
        self._has_last_process_exceeded_memory = False
        self._consecutive_failures = 0
        self._next_start_at = 0.0
        self._pinged_at = self._asked_progress_at = 0.0
        self._memory_ceiling = MemoryCeiling(options.memory_ceiling_bytes)
        # The earliest time at which the memory watchdog is told to watch a new process.
        self._memory_watch_paused_until = 0.0
        self._memory_watched_link: EngineLink | None = None
        self._thread = threading.Thread(target=self._run_thread, name="engine-keeper", daemon=True)

    def start(self) -> None:
        """Start the first process, or raise an error; afterwards, a thread replaces each process that ends."""
        self._start_process()
        self._thread.start()

    def stop(self) -> None:
        """Stop the supervisor thread and close the last process; call this after the dispatcher was closed."""
        while self._thread.is_alive():
            # The thread may be opening another process at this moment; killing that process makes the thread end soon.
            opening = self._link_being_opened
            if opening is not None:
                opening.kill()
            self._request_dispatcher.supervisor_wake_event.set()
            self._thread.join(_BUSY_PAUSE_SECONDS)
        if self._last_opened_link is not None:
            self._last_opened_link.close()
        self._memory_ceiling.close()

    def pids(self) -> list[int]:
        """Return the process ids of the fork server and of the engine's process, as far as they exist."""
        link = self._request_dispatcher.link
        pids = [self._fork_server.pid, link.child_process.pid if link else None]
        return [pid for pid in pids if pid is not None]

    def _run_thread(self) -> None:
        while not self._request_dispatcher.is_closed:
            link = self._request_dispatcher.link
            self._fork_server.replace_if_ended()
            if link is None:
                self._replace_process()
            else:
                self._watch_process(link, time.monotonic())
            is_idle = link is not None and not link.unanswered_calls
            self._request_dispatcher.supervisor_wake_event.wait(_IDLE_PAUSE_SECONDS if is_idle else _BUSY_PAUSE_SECONDS)
            self._request_dispatcher.supervisor_wake_event.clear()

    # The following methods open and replace processes.

    def _start_process(self) -> None:
        try:
            child = self._fork_server.fork()
        except OSError as problem:
            raise EngineFailed(f"The engine's process cannot be started: {problem}.") from problem
        link = self._link_being_opened = EngineLink(
            child, self._request_dispatcher.record_observation, self._memory_ceiling.explain_process_end
        )
        low_memory_settings = (
            self._launch_options.low_memory_settings if self._has_last_process_exceeded_memory else None
        )
        settings = low_memory_settings or self._launch_options.engine_settings
        try:
            states: dict[str, StreamState] = link.open_engine(settings, list(self._request_dispatcher.streams.values()))
        except BaseException as problem:
            link.close()
            if isinstance(problem, OSError):
                raise EngineFailed("The engine's process ended while it opened the events.") from problem
            raise
        finally:
            self._link_being_opened = None
        self._last_opened_link = link
        self._memory_ceiling.watch(child.pid)
        self._update_stream_states(states)
        self._request_dispatcher.attach_link(link)

    def _replace_process(self) -> None:
        now = time.monotonic()
        if now < self._next_start_at:
            return
        previous, self._last_opened_link = self._last_opened_link, None
        if previous is not None:
            previous.close()
            self._has_last_process_exceeded_memory = _ended_because_of_memory(previous)
            if _exceeded_memory_early(previous, now):
                self._memory_watch_paused_until = now + _MEMORY_UNWATCHED_SECONDS
            if _ended_soon_after_opening(previous, now):
                self._record_failure(
                    "The engine's process ends soon after it was started.", _MAX_BACK_OFF_AFTER_OPENING_SECONDS
                )
                if self._consecutive_failures > 1:
                    return
        try:
            self._start_process()
        except Fault as fault:
            self._record_failure(fault.message)
        except Exception as problem:  # noqa: BLE001 - the service goes on and says that it cannot answer
            self._record_failure(f"The engine cannot be opened: {problem!r}.")
        else:
            self._launch_options.on_availability_change(None)

    def _record_failure(self, reason: str, max_back_off_seconds: float = _MAX_BACK_OFF_SECONDS) -> None:
        self._consecutive_failures += 1
        self._next_start_at = time.monotonic() + min(
            _FIRST_BACK_OFF_SECONDS * 2 ** min(self._consecutive_failures - 1, 10), max_back_off_seconds
        )
        if self._consecutive_failures > 1:
            self._launch_options.on_availability_change(reason)
            self._request_dispatcher.record_observation(
                OperatorMessage(message=f"The engine cannot answer: {reason}", level="error")
            )

    # The following methods watch a process.

    def _watch_process(self, link: EngineLink, now: float) -> None:
        if self._consecutive_failures and now - link.opened_at > _MIN_PROCESS_LIFE_SECONDS:
            self._consecutive_failures = 0
        calls = self._request_dispatcher.calls_in_progress()
        self._request_dispatcher.run_next_suspect_call()
        for call in calls:
            if call.cancelled_at is not None and not call.is_cancel_sent:
                _send_interrupt(link, call)
        queries = [call for call in calls if call.is_query]
        self._kill_process_if_overdue(link, queries, now)
        self._watch_memory(link, now)
        self._memory_ceiling.enforce(link, queries, now, _send_interrupt)
        self._ask_progress(link, queries, now)
        self._ping_or_kill_silent_process(link, now)

    def _kill_process_if_overdue(self, link: EngineLink, queries: Sequence[EngineCall], now: float) -> None:
        """Kill the process if a query has not stopped some time after its time limit.

        If other queries are running, the overdue query may only have waited for them. In this case, it becomes a
        suspect. If it was a suspect already (`is_suspect_rerun`), it counts as the cause.
        """
        for call in queries:
            if call.overdue_since is None and now > _deadline_of(call):
                # The grace period begins now, and not at the deadline. If the whole machine was suspended, the deadline
                # may be long past, and the engine still needs time to stop the query.
                call.overdue_since = now
        overdue = [call for call in queries if now > (call.overdue_since or now) + INTERRUPT_GRACE_SECONDS]
        if overdue:
            causes = overdue if len(queries) == 1 else [call for call in overdue if call.is_suspect_rerun]
            suspects = [call for call in overdue if call not in causes]
            message = f"it did not stop within {INTERRUPT_GRACE_SECONDS:g} s after its time was over"
            link.kill(ProcessEndReason("time", message, causes, suspects))

    def _watch_memory(self, link: EngineLink, now: float) -> None:
        """Tell the memory watchdog to watch the process, once for each process.

        Before `_memory_watch_paused_until`, do nothing.
        """
        if link is not self._memory_watched_link and now >= self._memory_watch_paused_until:
            self._fork_server.watch_memory(link.child_process, self._memory_ceiling.hard_limit())
            self._memory_watched_link = link

    def _ask_progress(self, link: EngineLink, queries: Sequence[EngineCall], now: float) -> None:
        """Ask the engine's process for the progress of its queries, if a query has been running for a long time."""
        is_long = any(now > (call.sent_at or now) + _PROGRESS_MIN_RUN_SECONDS for call in queries)
        if (
            is_long
            and now > self._asked_progress_at + _PROGRESS_INTERVAL_SECONDS
            and _try_send_frame(link, FrameKind.ASK_PROGRESS)
        ):
            self._asked_progress_at = now

    def _ping_or_kill_silent_process(self, link: EngineLink, now: float) -> None:
        if now > link.last_received_at + _MAX_SILENCE_SECONDS and self._pinged_at > link.last_received_at:
            link.is_unresponsive = True
            link.kill()
        if now > max(self._pinged_at, link.last_received_at) + _SILENCE_BEFORE_PING_SECONDS and _try_send_frame(
            link, FrameKind.PING
        ):
            self._pinged_at = now


def _ended_soon_after_opening(link: EngineLink, now: float) -> bool:
    """Return whether a process ended soon after it had opened the engine, for an unknown reason."""
    return link.known_end_reason is None and now - link.opened_at < _MIN_PROCESS_LIFE_SECONDS


def _ended_because_of_memory(link: EngineLink) -> bool:
    """Return whether a process ended because of its memory, while no query is known to be the cause."""
    reason = link.known_end_reason
    return reason is not None and reason.cause == "memory" and not reason.causing_calls


def _exceeded_memory_early(link: EngineLink, now: float) -> bool:
    """Return whether memory exceeded its limit soon after the engine was opened, and no query may be the cause."""
    reason = link.known_end_reason
    has_suspects = reason is not None and bool(reason.suspect_calls)
    return _ended_because_of_memory(link) and not has_suspects and now - link.opened_at < _EARLY_MEMORY_EXCESS_SECONDS


def _deadline_of(call: EngineCall) -> float:
    sent_at = call.sent_at or time.monotonic()
    deadline = sent_at + (call.timeout_seconds or float("inf"))
    return (
        deadline
        if call.cancelled_at is None
        else min(deadline, max(call.cancelled_at, sent_at) + _CANCEL_GRACE_SECONDS)
    )


def _send_interrupt(link: EngineLink, call: EngineCall) -> None:
    call.is_cancel_sent = _try_send_frame(link, FrameKind.CANCEL, prefix_request_number(call.number))


def _try_send_frame(link: EngineLink, kind: FrameKind, payload: bytes = b"") -> bool:
    try:
        return link.frame_connection.try_send(kind, payload)
    except OSError:
        link.kill()
        return False
