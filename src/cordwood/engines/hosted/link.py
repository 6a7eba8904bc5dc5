"""A connection to an engine's process, the requests that are sent over it, and the reasons for a process's end."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from cordwood.engines.engine import QueryProgress
from cordwood.engines.hosted.messages import (
    FrameKind,
    StreamState,
    pack_object,
    prefix_request_number,
    split_request_number,
    unpack_exception,
    unpack_object,
)
from cordwood.errors import EngineFailed, Fault
from cordwood.model.definitions import Stream
from cordwood.observe.observation import RecordObservation
from cordwood.processes.fork_server import ForkedProcess
from cordwood.processes.frames import FrameConnection
from cordwood.processes.memory_watchdog import MEMORY_LIMIT_SIGNAL

# A query that waited longer than this for a process counts as delayed: it had less than its full time to run.
_MAX_UNDELAYED_WAIT_SECONDS = 0.5
_call_numbers = itertools.count(1)
_CALL_NUMBER_LIMIT = 2**32


class EngineCall:
    """A request to the engine's process, and its answer in chunks, which the reader thread adds and the caller takes.

    `build_payload` encodes the request; its argument tells whether the request was sent before. `seconds` is the time
    limit of a query. `has_delivered_chunks` is set when the caller takes the first chunk. From then on, the query
    cannot be repeated on another process. If `is_buffered` is set, chunks can be taken only when the answer is
    complete.
    """

    def __init__(
        self,
        kind: FrameKind,
        build_payload: Callable[[bool], bytes],
        *,
        seconds: float | None = None,
        is_buffered: bool = True,
    ) -> None:
        self.number = next(_call_numbers) % _CALL_NUMBER_LIMIT
        self.frame_kind = kind
        self.timeout_seconds = seconds
        self.is_buffered = is_buffered
        self.has_delivered_chunks = False
        self.times_sent = 0
        self.sent_at: float | None = None
        self.created_at = self.waiting_since = time.monotonic()
        # How long the call had been running when its process ended, if that happened.
        self.run_seconds_at_process_end = 0.0
        self.cancelled_at: float | None = None
        self.is_cancel_sent = False
        # The time at which the supervisor first noticed that the query had exceeded its time limit.
        self.overdue_since: float | None = None
        # Set if the query is a suspect (it may have ended a process), and runs again separately from other suspects.
        self.is_suspect_rerun = False
        # If the supervisor interrupted the call: the error to raise in the caller, and the time of the interruption.
        self.stop_fault: Fault | None = None
        self.stopped_at = 0.0
        # The lowest memory use of the engine's process, in bytes, since the call began. The growth during the call is
        # measured from it.
        self.lowest_process_memory_bytes: int | None = None
        # The progress that the engine's process reported last.
        self.progress: QueryProgress | None = None
        self._build_payload = build_payload
        self._state_changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._has_ended = False
        self._answer: memoryview | None = None
        self._exception: Exception | None = None

    @property
    def is_query(self) -> bool:
        return self.frame_kind == FrameKind.RUN_QUERY

    @property
    def was_delayed(self) -> bool:
        """Whether the call lost time because a process ended: it had to be sent again, or had to wait for a process."""
        began_at = time.monotonic() if self.sent_at is None else self.sent_at
        return self.times_sent > 1 or began_at - self.created_at > _MAX_UNDELAYED_WAIT_SECONDS

    def build_request_payload(self) -> bytes:
        """Return the payload of the frame that sends the request, and count the request as sent."""
        self.times_sent += 1
        return prefix_request_number(self.number, self._build_payload(self.times_sent > 1))

    def add_chunk(self, chunk: bytes) -> None:
        with self._state_changed:
            self._chunks.append(chunk)
            self._state_changed.notify()

    def succeed(self, answer: memoryview) -> None:
        self._end_call(answer=answer)

    def fail(self, exception: Exception) -> None:
        self._end_call(exception=exception)

    def fail_with_payload(self, payload: memoryview) -> None:
        self._end_call(exception=self.stop_fault or unpack_exception(payload))

    def reset_for_resend(self) -> None:
        """Prepare the call to be sent again: reset the state of its run, and drop chunks that were not taken yet."""
        with self._state_changed:
            self._chunks.clear()
        self.run_seconds_at_process_end = 0.0 if self.sent_at is None else time.monotonic() - self.sent_at
        self.sent_at, self.waiting_since, self.is_cancel_sent = None, time.monotonic(), False
        self.stop_fault, self.lowest_process_memory_bytes, self.progress, self.overdue_since = None, None, None, None

    def wait(self, seconds: float) -> bool:
        """Wait until the call has ended or has a chunk; return False if neither happens within `seconds`."""
        with self._state_changed:
            return self._state_changed.wait_for(self._is_ready, seconds)

    def next_chunk(self) -> bytes | None:
        """Return the next chunk, or None at the end of the answer; raise the fault that ended the call."""
        with self._state_changed:
            if self._exception is not None:
                raise self._exception
            self.has_delivered_chunks = True
            return self._chunks.popleft() if self._chunks else None

    def result(self) -> object:
        if self._exception is not None:
            raise self._exception
        return None if self._answer is None else unpack_object(self._answer)

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def _is_ready(self) -> bool:
        return self._has_ended or (bool(self._chunks) and not self.is_buffered)

    def _end_call(self, answer: memoryview | None = None, exception: Exception | None = None) -> None:
        with self._state_changed:
            if not self._has_ended:
                self._has_ended, self._answer, self._exception = True, answer, exception
            self._state_changed.notify_all()


_OPENING_CALL_NUMBER = 0


class ProcessEndReason:
    """The reason why a process ended, and the queries that caused its end.

    `kind` classifies the reason: `memory`, `time` or `died`. `message` states the reason, as the end of a sentence,
    after "because". `calls` are the queries that are known to be the cause. Of the queries in `suspects`, one may be
    the cause. They run again one at a time, but with the kind `time`, they fail instead.
    """

    def __init__(
        self, kind: str, message: str, calls: Sequence[EngineCall] = (), suspects: Sequence[EngineCall] = ()
    ) -> None:
        self.cause = kind
        self.message = message
        self.causing_calls = calls
        self.suspect_calls = suspects


class EngineLink:
    """A connection to one engine process.

    `unanswered_calls` are the calls that were sent and are not answered yet; the dispatcher's lock guards them.
    `explain_end` is called after the process has ended, with the signal that ended it and the calls that were running.
    It returns the reason for the end, or None if the signal does not reveal the reason.
    """

    def __init__(
        self,
        child: ForkedProcess,
        note: RecordObservation,
        explain_end: Callable[[int, Sequence[EngineCall]], ProcessEndReason | None],
    ) -> None:
        self.child_process = child
        self.frame_connection = FrameConnection(child.connection_socket)
        self.unanswered_calls: dict[int, EngineCall] = {}
        self.known_end_reason: ProcessEndReason | None = None
        # Set if the supervisor killed the process because it did not answer. The signal then does not tell the cause,
        # and all running queries become suspects.
        self.is_unresponsive = False
        self.opened_at = self.last_received_at = time.monotonic()
        self._record_observation = note
        self._explain_process_end = explain_end
        self._reader_thread: threading.Thread | None = None

    def open_engine(self, settings: object, streams: Sequence[Stream]) -> dict[str, StreamState]:
        """Let the process open the engine and prepare the streams; raise the error if this fails."""
        self.frame_connection.send(FrameKind.OPEN, pack_object(settings))
        problem = self._wait_for_frame(FrameKind.OPENED)
        if problem:
            raise unpack_exception(memoryview(problem))
        if not streams:
            return {}
        self.frame_connection.send(
            FrameKind.CALL_METHOD,
            prefix_request_number(_OPENING_CALL_NUMBER, pack_object(("create_stream_tables", (list(streams),)))),
        )
        _, states = split_request_number(self._wait_for_frame(FrameKind.DONE))
        self.opened_at = self.last_received_at = time.monotonic()
        return unpack_object(states)  # type: ignore[return-value] # what `prepare` returns

    def start_reader(
        self,
        handle_frame: Callable[["EngineLink", int, bytes], None],
        handle_disconnect: Callable[["EngineLink"], None],
    ) -> None:
        """Start a thread that passes each arriving frame to `handle_frame` until the connection ends."""

        def read_frames() -> None:
            while (frame := self.frame_connection.receive()) is not None:
                self.last_received_at = time.monotonic()
                handle_frame(self, *frame)
            handle_disconnect(self)

        self._reader_thread = threading.Thread(target=read_frames, name="engine-reader", daemon=True)
        self._reader_thread.start()

    def kill(self, reason: ProcessEndReason | None = None) -> None:
        self.known_end_reason = self.known_end_reason or reason
        self.child_process.kill()

    def determine_end_reason(self, calls: Sequence[EngineCall]) -> ProcessEndReason:
        """Return why the process ended while these calls were running; to be called after the connection has closed."""
        if self.known_end_reason is not None:
            return self.known_end_reason
        signal_number = 0 if self.is_unresponsive else self.child_process.wait_for_exit()
        reason = self._explain_process_end(signal_number, calls) or _unexpected_end_reason(calls)
        if signal_number == MEMORY_LIMIT_SIGNAL:
            self.known_end_reason = reason
        return reason

    def close(self) -> None:
        """Kill the process if it has not ended, and close the connection; no thread must send frames meanwhile."""
        self.child_process.kill()
        self.frame_connection.shut_down()
        if self._reader_thread is not None and self._reader_thread is not threading.current_thread():
            self._reader_thread.join()
        self.frame_connection.close()

    def _wait_for_frame(self, expected: FrameKind) -> bytes:
        while (frame := self.frame_connection.receive()) is not None:
            kind, payload = frame
            if kind == expected:
                return payload
            if kind == FrameKind.OBSERVATION:
                self._record_observation(unpack_object(payload))
            elif kind == FrameKind.FAILED:
                raise unpack_exception(split_request_number(payload)[1])
        raise EngineFailed("The engine's process ended while it opened the events.")


def _unexpected_end_reason(calls: Sequence[EngineCall]) -> ProcessEndReason:
    """Return the reason for the end of a process if neither the supervisor nor the signal explains it.

    A call with `is_suspect_rerun` was already running when an earlier process ended. If exactly one such call was
    running now, it is the cause. Otherwise, the cause is unknown.
    """
    alone_calls = [call for call in calls if call.is_suspect_rerun]
    if len(alone_calls) > 1:
        alone_calls = []
    return ProcessEndReason(
        "died", "the process ended both times that it ran" if alone_calls else "it ended by itself", alone_calls
    )
