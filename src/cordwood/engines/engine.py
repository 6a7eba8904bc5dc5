"""The port of an engine: what stores events and answers questions. Plain threads; no async here or below."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.datatype import Datatype, Kind
from cordwood.model.event import Batch
from cordwood.model.rows import Column, Rows
from cordwood.model.shape import Shape
from cordwood.model.stream import Stream
from cordwood.sql.stages import Question
from cordwood.sql.target import Target

# What is stored of an event, in the order of `Engine.stored`.
STORED = (
    Column("id", Datatype(Kind.STRING)),
    Column("timestamp", Datatype(Kind.TIMESTAMP)),
    Column("event_message", Datatype(Kind.STRING)),
    Column("project", Datatype(Kind.STRING)),
    Column("metadata", Datatype(Kind.STRING)),
    Column("extras", Datatype(Kind.STRING)),
    Column("ingested_at", Datatype(Kind.TIMESTAMP)),
    Column("timestamp_inferred", Datatype(Kind.BOOL)),
)


class AnswerLimits(msgspec.Struct, frozen=True):
    """What one answer may cost. A row more than `max_rows` is never handed out; that one was there is told."""

    max_rows: int
    seconds: float


class Appended(msgspec.Struct, frozen=True):
    """What became of one batch: `duplicates` are ids already stored and left as they were."""

    accepted: int
    duplicates: int


class StreamFacts(msgspec.Struct, frozen=True):
    events: int
    newest_us: int | None
    oldest_us: int | None


class HeldFile(msgspec.Struct, frozen=True):
    """A file of the engine's as it is at one moment: its name below the engine's folder, its length, its bytes."""

    name: str
    size: int
    pieces: Callable[[], Iterator[bytes]]


class Asked(msgspec.Struct, frozen=True):
    """A question, and the form of its answer: `encode` is a function of a module, and yields pieces as rows come.

    An answer that is wanted whole, or not at all, has at most `most_bytes`; None lets pieces leave as they come.
    """

    question: Question
    limits: AnswerLimits
    encode: Callable[[Rows], Iterator[bytes]]
    most_bytes: int | None = None


class Made(msgspec.Struct, frozen=True):
    """What is to be said of an answer that was made."""

    rows: int
    truncated: bool
    engine_seconds: float


class Run(Protocol):
    """An answer on its way."""

    def pieces(self) -> Generator[bytes, None, None]:
        """The encoded answer; closing the iterator early stops the engine's work."""

    def made(self) -> Made:
        """To be called once all pieces are out."""


class Cancel(Protocol):
    """Handed to `answer`: the engine registers how to stop its work, the asker pulls it."""

    def on_pull(self, stop: Callable[[], None]) -> None: ...


class Engine(Protocol):
    """Methods may be called from any thread, several at once; each raises only our faults."""

    target: Target

    def prepare(self, streams: Sequence[Stream]) -> None:
        """Make what the streams need. Called at start and at reload, before the first event or question."""

    def append(self, batches: Sequence[Batch]) -> list[Appended]:
        """Store all or nothing, durably, before returning; ids already stored are left and counted."""

    def answer(self, question: Question, limits: AnswerLimits, cancel: Cancel) -> Rows:
        """Run the question and yield its rows in batches; work stops when pulled or out of time.

        IsolationBroken, and nothing is run, where the engine's own parser finds in the statement anything but one
        query over its streams.
        """

    def run(self, asked: Asked, cancel: Cancel) -> Run:
        """Run the question and yield its answer encoded, where the rows are: `run_here` for engines in this process."""

    def stored(self, stream: str) -> str:
        """The statement that reads a stream's events as they are stored: `STORED`, objects as JSON text.

        It binds `since` and `until` (microseconds, the latter left out) and `project`, null for all of them.
        """

    def shapes(self) -> Mapping[str, Shape]:
        """What has been seen in each stream by name, up to the last `append` that returned."""

    def projects(self) -> Mapping[str, ProjectShapes]:
        """What of it has been seen in single projects, by stream; each is the engine's own, and grows."""

    def facts(self) -> Mapping[str, StreamFacts]:
        """Counts for people and metrics; must be cheap."""

    def sizes(self) -> Mapping[str, int]:
        """About how many bytes each stream takes where it is stored; may take a moment."""

    def sweep(self, now_us: int) -> int:
        """Drop events older than their stream's retention; return how many went."""

    def held(self) -> AbstractContextManager[Sequence[HeldFile]]:
        """All that is stored at this moment, as files whose bytes stay while the block lasts; appends go on.

        NothingToBackUp where the events are another's.
        """

    def is_regex(self, pattern: str) -> str | None:
        """None when the pattern is a regular expression (RE2) here, else what is wrong with it."""

    def close(self) -> None:
        """Finish what is under way, make it durable, let go of the store."""
