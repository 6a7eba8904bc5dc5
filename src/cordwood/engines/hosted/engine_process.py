"""The engine's process: open an engine and answer the requests of one connection until it closes."""

import gc
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import Any, Protocol, cast

from cordwood.engines.engine import Appended, Asked, Engine
from cordwood.engines.halt import Halt
from cordwood.engines.hosted.messages import (
    PIECE_BYTES,
    WINDOW_BYTES,
    Acknowledged,
    Kind,
    StreamNews,
    StreamState,
    numbered,
    packed,
    packed_problem,
    read_credit,
    split,
    unpacked,
    unpacked_append,
)
from cordwood.engines.hosted.mirror import learnt_of
from cordwood.engines.run import run_here
from cordwood.errors import Cancelled
from cordwood.model.event import Batch
from cordwood.model.stream import Stream
from cordwood.observe.observer import Note
from cordwood.processes.frames import Frames

# Far more than the number of queries that the serving process admits.
_THREADS = 256


class Restartable(Engine, Protocol):
    """The methods that an engine needs beyond `Engine` if its process may be killed at any moment."""

    def tails(self) -> Mapping[str, int]:
        """Return the sequence number of each stream's next event, which survives a reopening."""

    def append_again(self, batches: Sequence[Batch], acknowledged: Mapping[str, int]) -> list[Appended]:
        """Append batches that an unacknowledged append may have stored already.

        Their stored events with numbers from `acknowledged` on count as accepted.
        """


# Opens the engine from the settings; the second argument receives its log notes.
Open = Callable[[Any, Note], Restartable]


def run_engine(link: socket.socket, open_engine: Open) -> None:
    """Open the engine as the first frame says and serve until the connection closes; then end the process at once.

    The engine is crash-only: what it acknowledged is durable, whatever it does at that moment.
    """
    frames = Frames(link)
    first = frames.receive()
    if first is None or first[0] != Kind.OPEN:
        return

    def note(observation: object) -> None:
        frames.send(Kind.NOTE, packed(observation))

    try:
        engine = open_engine(unpacked(first[1]), note)
    except Exception as problem:  # noqa: BLE001 - the other process raises it
        frames.send(Kind.OPENED, packed_problem(problem))
        return
    # Exempt the objects made so far from garbage collection.
    gc.freeze()
    frames.send(Kind.OPENED)
    _Serving(engine, frames).run()
    os._exit(0)


class _Outgoing:
    """The flow control of one answer: pieces wait while its reader is behind."""

    def __init__(self, number: int, frames: Frames) -> None:
        self.halt = Halt()
        self._number = number
        self._frames = frames
        self._moved = threading.Condition()
        self._ahead_bytes = 0
        self.halt.on_pull(self._wake)

    def send(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            for part in _parts(piece):
                self._send(part)

    def send_whole(self, pieces: Iterable[bytes]) -> bytes:
        """Send an answer that is bounded as a whole, without flow control; return its last piece."""
        held = b""
        for piece in pieces:
            if len(held) + len(piece) <= PIECE_BYTES:
                held += piece
                continue
            # Send large pieces in parts, without copying them as a whole.
            for part in chain([held], _parts(piece)):
                self._frames.send(Kind.PIECE, numbered(self._number, part))
            held = b""
        return held

    def taken(self, taken_bytes: int) -> None:
        with self._moved:
            self._ahead_bytes -= taken_bytes
            self._moved.notify_all()

    def _send(self, piece: bytes) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._ahead_bytes < WINDOW_BYTES or self.halt.pulled)
            if self.halt.pulled:
                raise Cancelled("The query was stopped: nobody waits for its answer.")
            self._ahead_bytes += len(piece)
        self._frames.send(Kind.PIECE, numbered(self._number, piece))

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()


def _parts(piece: bytes) -> Iterator[bytes]:
    return (piece[start : start + PIECE_BYTES] for start in range(0, len(piece), PIECE_BYTES))


class _Serving:
    """Read requests one after the other and process each in a thread."""

    def __init__(self, engine: Restartable, frames: Frames) -> None:
        self._engine = engine
        self._frames = frames
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine")
        self._outgoing: dict[int, _Outgoing] = {}
        self._telling = threading.Lock()
        self._news_numbers = itertools.count(1)

    def run(self) -> None:
        while (frame := self._frames.receive()) is not None:
            kind, payload = frame
            if kind == Kind.PING:
                self._frames.send(Kind.PONG)
            elif kind == Kind.CREDIT:
                number, taken_bytes = read_credit(payload)
                if outgoing := self._outgoing.get(number):
                    outgoing.taken(taken_bytes)
            else:
                self._begin(kind, *split(payload))

    def _begin(self, kind: int, number: int, payload: memoryview) -> None:
        if kind == Kind.CANCEL:
            # An interrupt may block until the query reacts.
            if outgoing := self._outgoing.get(number):
                self._threads.submit(outgoing.halt.pull)
            return
        if kind in (Kind.RUN, Kind.HOLD):
            self._outgoing[number] = _Outgoing(number, self._frames)
        work = {Kind.CALL: self._call, Kind.APPEND: self._append, Kind.RUN: self._run, Kind.HOLD: self._hold}[
            Kind(kind)
        ]
        self._threads.submit(self._done, number, work, payload)

    def _done(self, number: int, work: Callable[[int, memoryview], object], payload: memoryview) -> None:
        try:
            answer = numbered(number, packed(work(number, payload)))
            kind = Kind.DONE
        except BaseException as problem:  # noqa: BLE001 - the other process raises it
            answer = numbered(number, packed_problem(problem))
            kind = Kind.FAILED
        finally:
            self._outgoing.pop(number, None)
        try:
            self._frames.send(kind, answer)
        except OSError:
            os._exit(0)

    def _call(self, _: int, payload: memoryview) -> object:
        name, arguments = cast(tuple[str, tuple[Any, ...]], unpacked(payload))
        if name == "prepare":
            return self._prepare(*arguments)
        if name == "sweep":
            gone = self._engine.sweep(*arguments)
            return gone, self._news(self._engine.facts())
        return getattr(self._engine, name)(*arguments)

    def _prepare(self, streams: Sequence[Stream]) -> Mapping[str, StreamState]:
        self._engine.prepare(streams)
        names = {stream.name for stream in streams}
        shapes, projects = self._engine.shapes(), self._engine.projects()
        return {
            name: StreamState(
                learnt_of(shapes[name]),
                [(path, str(kind)) for path, kind in projects[name].pairs],
                projects[name].sets(),
                news,
            )
            for name, news in self._news(names).items()
        }

    def _append(self, _: int, payload: memoryview) -> Acknowledged:
        batches, acknowledged = unpacked_append(payload)
        if acknowledged is None:
            appended = self._engine.append(batches)
        else:
            appended = self._engine.append_again(batches, acknowledged)
        return Acknowledged(appended, self._news({batch.stream for batch in batches}))

    def _run(self, number: int, payload: memoryview) -> object:
        outgoing = self._outgoing[number]
        asked = cast(Asked, unpacked(payload))
        run = run_here(self._engine, asked, outgoing.halt)
        last = b""
        with closing(run.pieces()) as pieces:
            if asked.most_bytes is None:
                outgoing.send(pieces)
            else:
                last = outgoing.send_whole(pieces)
        return run.made(), last

    def _hold(self, number: int, _: memoryview) -> None:
        """Send the names and sizes of the files, then their bytes one after the other."""
        outgoing = self._outgoing[number]
        with self._engine.held() as files:
            outgoing.send([packed([(file.name, file.size) for file in files])])
            for file in files:
                outgoing.send(file.pieces())

    def _news(self, names: Iterable[str]) -> Mapping[str, StreamNews]:
        with self._telling:
            number, facts, tails = next(self._news_numbers), self._engine.facts(), self._engine.tails()
            return {name: StreamNews(number, facts[name], tails[name]) for name in names if name in facts}
