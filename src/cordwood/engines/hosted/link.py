"""A connection to an engine's process: the calls under way, and the reason for its end."""

import threading
import time
from collections.abc import Callable, Sequence

from cordwood.engines.hosted.call import Call
from cordwood.engines.hosted.messages import Kind, StreamState, numbered, packed, split, unpacked, unpacked_problem
from cordwood.errors import EngineFailed
from cordwood.model.stream import Stream
from cordwood.observe.observer import Note
from cordwood.processes.fork_server import Child
from cordwood.processes.frames import Frames

_OPENING_CALL = 0


class Killed:
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
        self.killed: Killed | None = None
        self.opened_at = self.heard_at = time.monotonic()
        self._note = note
        self._reader: threading.Thread | None = None

    def open(self, settings: object, streams: Sequence[Stream]) -> dict[str, StreamState]:
        """Have the process open the engine and prepare its streams; raise any failure."""
        self.frames.send(Kind.OPEN, packed(settings))
        opened = self._await(Kind.OPENED)
        if opened:
            raise unpacked_problem(memoryview(opened))
        if not streams:
            return {}
        self.frames.send(Kind.CALL, numbered(_OPENING_CALL, packed(("prepare", (list(streams),)))))
        _, states = split(self._await(Kind.DONE))
        self.opened_at = self.heard_at = time.monotonic()
        return unpacked(states)  # type: ignore[return-value] # what `prepare` returns

    def read(self, take: Callable[["Link", int, bytes], None], lost: Callable[["Link"], None]) -> None:
        """Dispatch arriving frames, in a thread, until the connection ends."""

        def work() -> None:
            while (frame := self.frames.receive()) is not None:
                self.heard_at = time.monotonic()
                take(self, *frame)
            lost(self)

        self._reader = threading.Thread(target=work, name="engine-reader", daemon=True)
        self._reader.start()

    def kill(self, killed: Killed | None = None) -> None:
        self.killed = self.killed or killed
        self.child.kill()

    def close(self) -> None:
        """Kill the process if it has not ended; call it when no thread sends any more."""
        self.child.kill()
        self.frames.shut_down()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()
        self.frames.close()

    def _await(self, wanted: Kind) -> bytes:
        while (frame := self.frames.receive()) is not None:
            kind, payload = frame
            if kind == wanted:
                return payload
            if kind == Kind.NOTE:
                self._note(unpacked(payload))
            elif kind == Kind.FAILED:
                raise unpacked_problem(split(payload)[1])
        raise EngineFailed("The engine's process ended while it opened the events.")
