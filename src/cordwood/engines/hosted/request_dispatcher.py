"""Dispatch requests to the engine's process; repeat them on the next process if the process ends before it answers."""

import threading
import time
from bisect import insort
from collections.abc import Mapping, Sequence
from typing import cast

from cordwood.engines.engine import QueryProgress
from cordwood.engines.hosted.link import EngineCall, EngineLink, ProcessEndReason
from cordwood.engines.hosted.messages import FrameKind, StreamState, pack_credit, split_request_number, unpack_object
from cordwood.errors import (
    EngineKilledDuringQuery,
    EngineUnreachable,
    Fault,
    QueryCancelled,
    QueryKilled,
    ServiceDraining,
)
from cordwood.model.definitions import Stream
from cordwood.observe.observation import EngineEnded, RecordObservation

# How long a request may wait until there is a process to which it can be sent.
PROCESS_WAIT_TIMEOUT_SECONDS = 20.0
_CALL_POLL_SECONDS = 1.0
# If a suspect query (one that may have ended a process) has run again for this long and the process still runs, the
# next suspect may begin.
_SUSPECT_CALL_INTERVAL_SECONDS = 1.0
# How often a query may be sent in total, and how often any other request may be sent. Other requests may be sent more
# often, because they cannot be the cause of a process's end.
_MAX_QUERY_SENDS, _MAX_OTHER_REQUEST_SENDS = 2, 3


class RequestDispatcher:
    """Sends requests to the engine's process, and keeps those that are running or waiting; safe from any thread.

    The supervisor attaches each new link. Setting `supervisor_wake_event` makes the supervisor look at the requests at
    once.
    """

    def __init__(self, note: RecordObservation) -> None:
        self.record_observation = note
        self.supervisor_wake_event = threading.Event()
        self.streams: dict[str, Stream] = {}
        self._lock = threading.Lock()
        self._link: EngineLink | None = None
        self._queued_calls: list[EngineCall] = []
        # Queries that were running when a process ended unexpectedly. They run again one at a time. Queries that had
        # run for a shorter time run first, so that short queries do not wait for long ones.
        self._suspect_calls: list[EngineCall] = []
        self._is_closed = False

    @property
    def link(self) -> EngineLink | None:
        return self._link

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # The following methods send calls, wait for them, and cancel them.

    def run_call(self, call: EngineCall) -> object:
        """Send a call whose answer has no chunks, wait for the answer, and return it."""
        self.start_call(call)
        self.wait_for_call(call)
        return call.result()

    def start_call(self, call: EngineCall) -> None:
        with self._lock:
            if self._is_closed:
                raise ServiceDraining("The service is stopping.")
            link = self._link
            if link is None:
                self._queued_calls.append(call)
            else:
                _register_call(link, call)
        if link is not None:
            _send_call(link, call)

    def wait_for_call(self, call: EngineCall) -> None:
        """Wait until the call has ended or has a chunk; if it waits too long for a process, it fails."""
        while not call.wait(_CALL_POLL_SECONDS):
            if call.sent_at is None and time.monotonic() > call.waiting_since + PROCESS_WAIT_TIMEOUT_SECONDS:
                self._fail_waiting_call(call, _unreachable_fault())

    def grant_credit(self, call: EngineCall, chunk: bytes) -> None:
        """Tell the engine's process that the caller has taken a chunk, so that the process may send more chunks."""
        link = self._link
        if link is not None and call.number in link.unanswered_calls:
            try:
                link.frame_connection.send(FrameKind.CREDIT, pack_credit(call.number, len(chunk)))
            except OSError:
                link.kill()

    def cancel_call(self, call: EngineCall) -> None:
        """Start to stop a call, but do not wait for its end, because this method may be called on the event loop."""
        call.cancelled_at = call.cancelled_at or time.monotonic()
        if call.sent_at is None:
            self._fail_waiting_call(call, _cancelled_fault(call))
        self.supervisor_wake_event.set()

    def _fail_waiting_call(self, call: EngineCall, fault: Fault) -> None:
        with self._lock:
            if call in self._queued_calls:
                self._queued_calls.remove(call)
            elif call in self._suspect_calls:
                self._suspect_calls.remove(call)
            else:
                return
        call.fail(fault)

    # The following methods attach a link to the engine's process, and handle what arrives on the link.

    def attach_link(self, link: EngineLink) -> None:
        """Use a newly opened link from now on, and send it the waiting calls."""
        with self._lock:
            if self._is_closed:
                link.kill()
            self._link = link
            queued_calls, self._queued_calls = self._queued_calls, []
            for call in queued_calls:
                _register_call(link, call)
        link.start_reader(self._handle_frame, self._handle_disconnect)
        for call in queued_calls:
            _send_call(link, call)

    def calls_in_progress(self) -> Sequence[EngineCall]:
        with self._lock:
            return [] if self._link is None else list(self._link.unanswered_calls.values())

    def run_next_suspect_call(self) -> None:
        """Send the next suspect (a query that may have ended a process), unless another suspect has just begun."""
        began_before = time.monotonic() - _SUSPECT_CALL_INTERVAL_SECONDS
        with self._lock:
            link = self._link
            if link is None or not self._suspect_calls:
                return
            if any(
                call.is_suspect_rerun and (call.sent_at or 0.0) > began_before
                for call in link.unanswered_calls.values()
            ):
                return
            call = self._suspect_calls.pop(0)
            call.is_suspect_rerun = True
            _register_call(link, call)
        _send_call(link, call)

    def close(self) -> EngineLink | None:
        """Refuse new calls, fail waiting calls, and return the link; running calls fail when the caller closes it."""
        with self._lock:
            self._is_closed = True
            link, queued_calls = self._link, [*self._queued_calls, *self._suspect_calls]
            self._queued_calls.clear()
            self._suspect_calls.clear()
        for call in queued_calls:
            call.fail(ServiceDraining("The service is stopping."))
        self.supervisor_wake_event.set()
        return link

    def _handle_frame(self, link: EngineLink, kind: int, payload: bytes) -> None:
        if kind == FrameKind.OBSERVATION:
            self.record_observation(unpack_object(payload))
            return
        if kind == FrameKind.PONG:
            return
        if kind == FrameKind.PROGRESS:
            _record_progress(link, cast(Mapping[int, QueryProgress], unpack_object(payload)))
            return
        number, body = split_request_number(payload)
        if kind == FrameKind.ANSWER_CHUNK:
            call = link.unanswered_calls.get(number)
            if call is not None:
                call.add_chunk(bytes(body))
            return
        with self._lock:
            call = link.unanswered_calls.pop(number, None)
        if call is None:
            return
        if kind == FrameKind.DONE:
            call.succeed(body)
        elif call.cancelled_at is not None and call.was_delayed:
            call.fail(_cancelled_fault(call))
        else:
            call.fail_with_payload(body)
        if call.is_suspect_rerun:
            self.supervisor_wake_event.set()

    def _handle_disconnect(self, link: EngineLink) -> None:
        with self._lock:
            if self._link is link:
                self._link = None
            calls = list(link.unanswered_calls.values())
            link.unanswered_calls.clear()
            is_closed = self._is_closed
        kill_reason = link.determine_end_reason(calls)
        if not is_closed:
            self.record_observation(
                EngineEnded(cause=kill_reason.cause, reason=kill_reason.message, queries=len(kill_reason.causing_calls))
            )
        for call in calls:
            fault = _draining_fault() if is_closed else _fault_of_lost_call(call, kill_reason)
            if fault is not None:
                call.fail(fault)
            else:
                self._repeat_call(call, is_suspect=link.known_end_reason is None or call in kill_reason.suspect_calls)
        self.supervisor_wake_event.set()

    def _repeat_call(self, call: EngineCall, *, is_suspect: bool) -> None:
        call.reset_for_resend()
        with self._lock:
            if is_suspect and call.is_query:
                insort(self._suspect_calls, call, key=lambda suspect: suspect.run_seconds_at_process_end)
            else:
                self._queued_calls.append(call)

    def add_streams(self, streams: Sequence[Stream]) -> None:
        """Record streams that every later process has to prepare when it opens the engine."""
        self.streams |= {stream.name: stream for stream in streams}


StatesByStream = Mapping[str, StreamState]


def _register_call(link: EngineLink, call: EngineCall) -> None:
    link.unanswered_calls[call.number] = call
    call.sent_at = time.monotonic()


def _record_progress(link: EngineLink, progress_by_number: Mapping[int, QueryProgress]) -> None:
    for number, progress in progress_by_number.items():
        # The call may have ended since the engine's process sent its progress.
        if (call := link.unanswered_calls.get(number)) is not None:
            call.progress = progress


def _send_call(link: EngineLink, call: EngineCall) -> None:
    try:
        link.frame_connection.send(call.frame_kind, call.build_request_payload())
    except OSError:
        # Do nothing else here: when the connection has ended, the link's reader handles all running calls, including
        # this one.
        link.kill()


def _fault_of_lost_call(call: EngineCall, kill_reason: ProcessEndReason) -> Fault | None:
    """Return the fault of a call that was running when its process ended; None if the call is to be sent again."""
    if call in kill_reason.causing_calls:
        return QueryKilled(
            f"The query was ended together with the engine's process, because {kill_reason.message}.",
            hint="Read a shorter time range or fewer events; a caller's own query that was ended is refused for ten minutes.",
        )
    if kill_reason.cause == "time" and call in kill_reason.suspect_calls:
        return EngineKilledDuringQuery(
            "The engine's process was replaced, because this query or one beside it did not stop in time.",
            hint="Ask again; if it fails again, read a shorter time range or fewer events.",
            retry_after=1,
        )
    if call.stop_fault is not None and call not in kill_reason.suspect_calls:
        return call.stop_fault
    if call.cancelled_at is not None:
        return _cancelled_fault(call)
    max_sends = _MAX_QUERY_SENDS if call.is_query else _MAX_OTHER_REQUEST_SENDS
    if (
        call.frame_kind == FrameKind.SNAPSHOT
        or (call.is_query and call.has_delivered_chunks)
        or call.times_sent >= max_sends
    ):
        return _unreachable_fault()
    return None


def _cancelled_fault(call: EngineCall) -> Fault:
    """Return the fault of a cancelled call: EngineUnreachable if the end of a process delayed it, else QueryCancelled.

    A delayed call was sent a second time, or had to wait for a new process. It had less than its full time to run.
    """
    return (
        _unreachable_fault()
        if call.was_delayed
        else QueryCancelled("The query was stopped: no client waits for its answer.")
    )


def _unreachable_fault() -> EngineUnreachable:
    return EngineUnreachable("The engine's process ended and is being replaced.", hint="Ask again.", retry_after=1)


def _draining_fault() -> ServiceDraining:
    return ServiceDraining("The service is stopping.")
