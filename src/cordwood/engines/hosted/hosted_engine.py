"""The engine's interface in the serving process: each method is a request to the engine's process."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import cast

import msgspec

from cordwood.engines.engine import (
    AnswerLimits,
    Appended,
    Asked,
    Cancel,
    HeldFile,
    Made,
    Run,
    StreamFacts,
)
from cordwood.engines.hosted import plain_rows
from cordwood.engines.hosted.call import Call
from cordwood.engines.hosted.host import Host
from cordwood.engines.hosted.keeper import Keeper, Plan
from cordwood.engines.hosted.messages import (
    Acknowledged,
    Kind,
    StreamNews,
    StreamState,
    packed,
    packed_append,
    unpacked,
)
from cordwood.engines.hosted.mirror import Mirror
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import EngineFailed
from cordwood.model.event import Batch
from cordwood.model.rows import Rows
from cordwood.model.shape import Shape
from cordwood.model.stream import Stream
from cordwood.observe.observer import Note
from cordwood.processes.fork_server import ForkServer
from cordwood.sql.stages import Question
from cordwood.sql.target import Target

_CLOSE_SECONDS = 30.0


class Dialect(msgspec.Struct, frozen=True):
    """The parts of an engine that are known without a request to its process."""

    target: Target
    stored: Callable[[str], str]


class HostedEngine:
    """An engine in a process of its own.

    A failure to open the first process is raised; calls wait for later ones.
    """

    def __init__(self, fork_server: ForkServer, plan: Plan, dialect: Dialect, note: Note) -> None:
        self.target = dialect.target
        self._stored = dialect.stored
        self._mirror = Mirror()
        self._host = Host(note)
        self._keeper = Keeper(self._host, fork_server, plan, self._mirror.take_states)
        self._end: threading.Timer | None = None
        try:
            self._keeper.start()
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        """Return the ids of the child processes, for measuring memory."""
        return self._keeper.pids()

    def prepare(self, streams: Sequence[Stream]) -> None:
        states = self._ask("prepare", list(streams))
        self._host.states_taken(streams)
        self._mirror.take_states(cast(Mapping[str, StreamState], states))

    def append(self, batches: Sequence[Batch]) -> list[Appended]:
        """Append; repeat an unacknowledged request, whose events count as accepted if they had been stored."""
        before = self._mirror.tails()
        call = Call(Kind.APPEND, lambda again: packed_append(batches, before if again else None))
        done = cast(Acknowledged, self._host.ask(call))
        self._mirror.take_append(batches, done.appended, done.news)
        return done.appended

    def answer(self, question: Question, limits: AnswerLimits, cancel: Cancel) -> Rows:
        return plain_rows.rows_of(self.run(Asked(question, limits, plain_rows.encode), cancel))

    def run(self, asked: Asked, cancel: Cancel) -> Run:
        # The facts that the statement was compiled from are not needed to run it.
        statement = msgspec.structs.replace(asked.question.statement, facts={})
        question = msgspec.structs.replace(asked.question, statement=statement)
        payload = packed(msgspec.structs.replace(asked, question=question))
        call = Call(Kind.RUN, lambda _: payload, seconds=asked.limits.seconds, is_whole=asked.most_bytes is not None)
        cancel.on_pull(lambda: self._host.cancel(call))
        self._host.start(call)
        return _HostedRun(self._host, call)

    def stored(self, stream: str) -> str:
        return self._stored(stream)

    def shapes(self) -> Mapping[str, Shape]:
        return self._mirror.shapes()

    def projects(self) -> Mapping[str, ProjectShapes]:
        return self._mirror.projects()

    def facts(self) -> Mapping[str, StreamFacts]:
        return self._mirror.facts()

    def sizes(self) -> Mapping[str, int]:
        return cast(Mapping[str, int], self._ask("sizes"))

    def sweep(self, now_us: int) -> int:
        gone, news = cast(tuple[int, Mapping[str, StreamNews]], self._ask("sweep", now_us))
        self._mirror.take_news(news)
        return gone

    @contextmanager
    def held(self) -> Iterator[Sequence[HeldFile]]:
        call = Call(Kind.HOLD, lambda _: b"", is_whole=False)
        self._host.start(call)
        with closing(_HostedRun(self._host, call).pieces()) as pieces:
            yield _Files(pieces).files

    def is_regex(self, pattern: str) -> str | None:
        return cast("str | None", self._ask("is_regex", pattern))

    def end_within(self, seconds: float) -> None:
        """Kill the process when the time is over; calls under way fail then."""
        self._end = threading.Timer(seconds, self._halt)
        self._end.daemon = True
        self._end.start()

    def close(self) -> None:
        link = self._host.link
        if link is not None and not self._host.is_closed:
            call = Call(Kind.CALL, lambda _: packed(("close", ())))
            self._host.start(call)
            call.wait(_CLOSE_SECONDS)
        self._halt()
        self._keeper.stop()
        if self._end is not None:
            self._end.cancel()

    def _halt(self) -> None:
        link = self._host.close()
        if link is not None:
            link.kill()

    def _ask(self, name: str, *arguments: object) -> object:
        return self._host.ask(Call(Kind.CALL, lambda _: packed((name, arguments))))


class _HostedRun:
    """An answer that arrives from the engine's process."""

    def __init__(self, host: Host, call: Call) -> None:
        self._host = host
        self._call = call
        self._made: Made | None = None

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the pieces; if closed early, wait until the engine stopped or was replaced, which frees the slot."""
        call = self._call
        try:
            self._host.wait_for(call)
            while (piece := call.next_piece()) is not None:
                if not call.is_whole:
                    self._host.taken(call, piece)
                yield piece
                self._host.wait_for(call)
            if call.is_query:
                self._made, last = cast(tuple[Made, bytes], call.answer())
                if last:
                    yield last
        finally:
            if not call.has_ended:
                self._host.cancel(call)
                while not call.has_ended:
                    self._host.wait_for(call)
                    _drop(call)

    def made(self) -> Made:
        if self._made is None:
            raise EngineFailed("The answer is not at its end.")
        return self._made


def _drop(call: Call) -> None:
    """Discard a piece, so that the process sends what follows."""
    if not call.has_ended:
        call.next_piece()


class _Files:
    """The files of a backup, whose bytes arrive one file after the other."""

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._next = 0
        listed = cast(list[tuple[str, int]], unpacked(next(pieces)))
        self.files = [HeldFile(name, size, self._reader(place, size)) for place, (name, size) in enumerate(listed)]

    def _reader(self, place: int, size: int) -> Callable[[], Iterator[bytes]]:
        def read() -> Iterator[bytes]:
            if place != self._next:
                raise EngineFailed("Files that are held are read once, in their order.")
            self._next += 1
            left = size
            while left:
                if not self._rest:
                    self._rest = memoryview(next(self._pieces))
                piece = self._rest[:left]
                self._rest = self._rest[len(piece) :]
                left -= len(piece)
                yield bytes(piece)

        return read
