"""Dispatch requests to the engine's process; repeat them on the next process if one ends before it has answered."""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from cordwood.engines.hosted.call import Call
from cordwood.engines.hosted.link import Killed, Link
from cordwood.engines.hosted.messages import Kind, StreamState, credit, split, unpacked
from cordwood.errors import Cancelled, Draining, EngineUnreachable, Fault, QueryKilled
from cordwood.model.stream import Stream
from cordwood.observe.observation import EngineEnded
from cordwood.observe.observer import Note

# How long a request waits for a process that can answer it.
PATIENCE_SECONDS = 20.0
_LOOK_SECONDS = 1.0
# A query is sent twice at most; other requests, which cannot have ended the process, three times.
_MOST_SENT_QUERY, _MOST_SENT = 2, 3


class Host:
    """The requests under way and waiting; safe from any thread. The keeper attaches links and is woken by `wake`."""

    def __init__(self, note: Note) -> None:
        self.note = note
        self.wake = threading.Event()
        self.streams: dict[str, Stream] = {}
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._waiting: list[Call] = []
        # Queries that were under way when a process ended unexpectedly: they run again one at a time.
        self._suspects: deque[Call] = deque()
        self._closed = False

    @property
    def link(self) -> Link | None:
        return self._link

    @property
    def is_closed(self) -> bool:
        return self._closed

    # Requests

    def ask(self, call: Call) -> object:
        """Return the result of a call that has no pieces."""
        self.start(call)
        self.wait_for(call)
        return call.answer()

    def start(self, call: Call) -> None:
        with self._lock:
            if self._closed:
                raise Draining("The service is stopping.")
            link = self._link
            if link is None:
                self._waiting.append(call)
            else:
                _register(link, call)
        if link is not None:
            _send(link, call)

    def wait_for(self, call: Call) -> None:
        """Wait until the call has ended or has a piece."""
        while not call.wait(_LOOK_SECONDS):
            if call.sent_at is None and time.monotonic() > call.waits_since + PATIENCE_SECONDS:
                self._give_up(call, _away())

    def taken(self, call: Call, piece: bytes) -> None:
        """Grant the engine's process credit for a piece that was taken, so that it sends more."""
        link = self._link
        if link is not None and call.number in link.calls:
            try:
                link.frames.send(Kind.CREDIT, credit(call.number, len(piece)))
            except OSError:
                link.kill()

    def cancel(self, call: Call) -> None:
        """Stop a call without waiting, so that it can be called on the event loop."""
        call.cancelled_at = call.cancelled_at or time.monotonic()
        if call.sent_at is None:
            self._give_up(call, _stopped(call))
        self.wake.set()

    def _give_up(self, call: Call, fault: Fault) -> None:
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
            elif call in self._suspects:
                self._suspects.remove(call)
            else:
                return
        call.fail(fault)

    # The process

    def attach(self, link: Link) -> None:
        """Use a newly opened link, first for the calls that wait."""
        with self._lock:
            if self._closed:
                link.kill()
            self._link = link
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                _register(link, call)
        link.read(self._take, self._lost)
        for call in waiting:
            _send(link, call)

    def under_way(self) -> Sequence[Call]:
        with self._lock:
            return [] if self._link is None else list(self._link.calls.values())

    def run_next_suspect(self) -> None:
        """Send the next query that may have ended a process, if no other such query is under way."""
        with self._lock:
            link = self._link
            if link is None or not self._suspects or any(call.is_alone for call in link.calls.values()):
                return
            call = self._suspects.popleft()
            call.is_alone = True
            _register(link, call)
        _send(link, call)

    def close(self) -> Link | None:
        """Refuse new calls; those that wait or are under way fail when the returned link is closed."""
        with self._lock:
            self._closed = True
            link, waiting = self._link, [*self._waiting, *self._suspects]
            self._waiting.clear()
            self._suspects.clear()
        for call in waiting:
            call.fail(Draining("The service is stopping."))
        self.wake.set()
        return link

    def _take(self, link: Link, kind: int, payload: bytes) -> None:
        if kind == Kind.NOTE:
            self.note(unpacked(payload))
            return
        if kind == Kind.PONG:
            return
        number, rest = split(payload)
        if kind == Kind.PIECE:
            call = link.calls.get(number)
            if call is not None:
                call.put(bytes(rest))
            return
        with self._lock:
            call = link.calls.pop(number, None)
        if call is None:
            return
        if kind == Kind.DONE:
            call.succeed(rest)
        elif call.cancelled_at is not None and call.times_sent > 1:
            call.fail(_stopped(call))
        else:
            call.fail_as_told(rest)
        if call.is_alone:
            self.wake.set()

    def _lost(self, link: Link) -> None:
        with self._lock:
            if self._link is link:
                self._link = None
            calls = list(link.calls.values())
            link.calls.clear()
            is_closed = self._closed
        killed = link.killed or _died(calls)
        if not is_closed:
            self.note(EngineEnded(cause=killed.cause, reason=killed.reason, queries=len(killed.calls)))
        for call in calls:
            fault = _draining() if is_closed else _fate(call, killed)
            if fault is not None:
                call.fail(fault)
            else:
                self._ask_again(call, is_suspect=link.killed is None or call in killed.suspects)
        self.wake.set()

    def _ask_again(self, call: Call, *, is_suspect: bool) -> None:
        call.begin_again()
        with self._lock:
            (self._suspects if is_suspect and call.is_query else self._waiting).append(call)

    def states_taken(self, streams: Sequence[Stream]) -> None:
        """Record the streams that every further process has to prepare."""
        self.streams |= {stream.name: stream for stream in streams}


States = Mapping[str, StreamState]


def _register(link: Link, call: Call) -> None:
    link.calls[call.number] = call
    call.sent_at = time.monotonic()


def _send(link: Link, call: Call) -> None:
    try:
        link.frames.send(call.kind, call.frame())
    except OSError:
        # The link's reader handles the call with all others that were under way.
        link.kill()


def _died(calls: Sequence[Call]) -> Killed:
    """Return the cause of an unexpected end: a query that ran for the second time with no other suspect beside it."""
    alone = [call for call in calls if call.is_alone]
    return Killed("died", "the process ended both times that it ran" if alone else "it ended by itself", alone)


def _fate(call: Call, killed: Killed) -> Fault | None:
    """Return the fault of a call that was under way, or None if it is repeated."""
    if call in killed.calls:
        return QueryKilled(
            f"The query was ended together with the engine's process, because {killed.reason}.",
            hint="Read a shorter time range or fewer events; a caller's own query that was ended is refused for ten minutes.",
        )
    if call.stopped_as is not None and call not in killed.suspects:
        return call.stopped_as
    if call.cancelled_at is not None:
        return _stopped(call)
    most = _MOST_SENT_QUERY if call.is_query else _MOST_SENT
    if call.kind == Kind.HOLD or (call.is_query and call.delivered) or call.times_sent >= most:
        return _away()
    return None


def _stopped(call: Call) -> Fault:
    """Return the fault of a cancelled call: a query that began more than once had no full time to run."""
    return _away() if call.times_sent > 1 else Cancelled("The query was stopped: nobody waits for its answer.")


def _away() -> EngineUnreachable:
    return EngineUnreachable("The engine's process ended and is being replaced.", hint="Ask again.", retry_after=1)


def _draining() -> Draining:
    return Draining("The service is stopping.")
