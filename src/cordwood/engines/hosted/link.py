"""A connection to an engine's process: the calls under way, and the reason for its end."""

import threading
import time
from collections.abc import Callable, Sequence

from cordwood.engines.hosted.call import Call
from cordwood.engines.hosted.messages import (
    Kind,
    StreamState,
    pack,
    split_number,
    unpack,
    unpack_exception,
    with_number,
)
from cordwood.errors import EngineFailed
from cordwood.model.stream import Stream
from cordwood.observe.observer import Note
from cordwood.processes.fork_server import Child
from cordwood.processes.frames import Frames

_OPENING_CALL = 0


class KillReason:
    """The reason why a process was killed, and the queries that caused it.

    If the cause is one of several queries, these are `suspects`, which run again one at a time.
    """

    def __init__(self, cause: str, reason: str, calls: Sequence[Call] = (), suspects: Sequence[Call] = ()) -> None:
        self.cause = cause
        self.reason = reason
        self.calls = calls
        self.suspects = suspects


class Link:
    """A connection to one engine process; `calls` were sent and not answered, and are guarded by the host's lock."""

    def __init__(self, child: Child, note: Note) -> None:
        self.child = child
        self.frames = Frames(child.link)
        self.calls: dict[int, Call] = {}
        self.kill_reason: KillReason | None = None
        self.opened_at = self.last_received_at = time.monotonic()
        self._note = note
        self._reader: threading.Thread | None = None

    def open(self, settings: object, streams: Sequence[Stream]) -> dict[str, StreamState]:
        """Have the process open the engine and prepare its streams; raise any failure."""
        self.frames.send(Kind.OPEN, pack(settings))
        problem = self._wait_for_frame(Kind.OPENED)
        if problem:
            raise unpack_exception(memoryview(problem))
        if not streams:
            return {}
        self.frames.send(Kind.CALL, with_number(_OPENING_CALL, pack(("prepare", (list(streams),)))))
        _, states = split_number(self._wait_for_frame(Kind.DONE))
        self.opened_at = self.last_received_at = time.monotonic()
        return unpack(states)  # type: ignore[return-value] # what `prepare` returns

    def read(
        self, handle_frame: Callable[["Link", int, bytes], None], handle_disconnect: Callable[["Link"], None]
    ) -> None:
        """Dispatch arriving frames, in a thread, until the connection ends."""

        def work() -> None:
            while (frame := self.frames.receive()) is not None:
                self.last_received_at = time.monotonic()
                handle_frame(self, *frame)
            handle_disconnect(self)

        self._reader = threading.Thread(target=work, name="engine-reader", daemon=True)
        self._reader.start()

    def kill(self, reason: KillReason | None = None) -> None:
        self.kill_reason = self.kill_reason or reason
        self.child.kill()

    def close(self) -> None:
        """Kill the process if it has not ended; call it when no thread sends any more."""
        self.child.kill()
        self.frames.shut_down()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()
        self.frames.close()

    def _wait_for_frame(self, expected: Kind) -> bytes:
        while (frame := self.frames.receive()) is not None:
            kind, payload = frame
            if kind == expected:
                return payload
            if kind == Kind.NOTE:
                self._note(unpack(payload))
            elif kind == Kind.FAILED:
                raise unpack_exception(split_number(payload)[1])
        raise EngineFailed("The engine's process ended while it opened the events.")
