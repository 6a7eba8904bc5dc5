"""The interface of an engine, which stores events and runs queries. Its methods block, so call them in threads."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.datatype import Column, Datatype, Kind, LastRow, Rows
from cordwood.model.definitions import Stream
from cordwood.model.event import Batch, Shape
from cordwood.sql.stages import BoundStatement, Target

# The columns of a stored event, in the order of `Engine.stored_events_sql`.
STORED_COLUMNS = (
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
    """Limits of one answer.

    At most `max_rows` rows are returned; the answer's receipt says whether there were more.
    """

    max_rows: int
    timeout_seconds: float


class BatchAppendResult(msgspec.Struct, frozen=True):
    """The result of appending one batch.

    `duplicates` is the number of events that were skipped because their ids were stored already. `repeated_positions`
    has the positions of these events in the batch, in order.
    """

    accepted: int
    duplicates: int
    repeated_positions: Sequence[int] = ()


class StreamStats(msgspec.Struct, frozen=True):
    events: int
    newest_us: int | None
    oldest_us: int | None


class BackupFile(msgspec.Struct, frozen=True):
    """A file in a snapshot: its name relative to the engine's folder, its size, and a function that reads it."""

    name: str
    size: int
    chunks: Callable[[], Iterator[bytes]]


class RunRequest(msgspec.Struct, frozen=True):
    """A question, and how to encode its answer: `encode` is a module-level function that yields chunks as rows arrive.

    If `max_bytes` is set, the answer is sent only when it is complete, and a larger answer is an error. If it is None,
    each chunk is sent as soon as it is encoded.
    """

    question: BoundStatement
    limits: AnswerLimits
    encode: Callable[[Rows], Iterator[bytes]]
    max_bytes: int | None = None


class RunStats(msgspec.Struct, frozen=True):
    """The statistics of a finished answer; `last_row` is set for a statement that is paged by time."""

    rows: int
    truncated: bool
    engine_seconds: float
    last_row: LastRow | None = None


class Run(Protocol):
    """A running query whose answer is being encoded."""

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the encoded answer; closing the iterator early stops the engine's work."""

    def stats(self) -> RunStats:
        """Return the statistics; call it after the last chunk."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a running query: the part done (0 to 1), the rows read so far, and the rows that it will read.

    A value that the engine does not report is None.
    """

    fraction_done: float | None = None
    rows_read: int | None = None
    rows_total: int | None = None


# A function that returns the progress of a query. It returns None while the engine reports no progress, and after the
# query has ended.
ReadProgress = Callable[[], Progress | None]


class Cancellation(Protocol):
    """The interface for cancelling a running `Engine.answer`, and for reading its progress.

    The engine registers a function that stops its work and a function that reads the progress. Both return at once, may
    be called from any thread and at any time, and do not raise.
    """

    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def on_progress(self, read: ReadProgress) -> None:
        """Register a function that reads the progress.

        It replaces the function that was registered for an earlier statement of the same answer.
        """


class CancelToken:
    """A cancellation token that also reports progress; its methods may be called from any thread.

    The engine registers a function that stops its work and a function that reads the progress.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._read_progress: ReadProgress = _no_progress
        self.is_cancelled = False

    def on_cancel(self, stop: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_cancelled:
                self._stops.append(stop)
                return
        stop()

    def on_progress(self, read: ReadProgress) -> None:
        self._read_progress = read

    def progress(self) -> Progress | None:
        """Return the progress of the query; None while it is unknown."""
        return self._read_progress()

    def cancel(self) -> None:
        with self._lock:
            self.is_cancelled = True
            stops, self._stops = self._stops, []
        for stop in stops:
            stop()


def _no_progress() -> None:
    return None


class Engine(Protocol):
    """The interface of an engine; its methods may be called from several threads, and raise only cordwood's faults."""

    target: Target

    def prepare(self, streams: Sequence[Stream]) -> None:
        """Create the tables of the streams.

        The service calls this at start and at reload, before the first event or question of these streams.
        """

    def check_streams(self, streams: Sequence[Stream]) -> None:
        """Raise BadStreamFile if `prepare` would refuse the streams. This method creates no tables."""

    def append(self, batches: Sequence[Batch]) -> list[BatchAppendResult]:
        """Store all batches or none, durably, before returning; skip and count events whose ids are stored already."""

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        """Run the question and return its rows in batches; stop at cancellation or at the time limit.

        Raises IsolationCheckFailed, without running the statement, if the engine's own parser finds that the statement
        is not a single query that reads only `statement.streams`.
        """

    def run(self, request: RunRequest, cancel: Cancellation) -> Run:
        """Run the question and return its encoded answer. The rows are encoded in the process that reads them.

        An engine in the serving process implements this method with `run_locally`.
        """

    def stored_events_sql(self, stream: str) -> str:
        """Return the SQL that reads a stream's stored events. Its columns are `STORED_COLUMNS`; objects are JSON text.

        Its parameters are `since` (inclusive) and `until` (exclusive), in microseconds, and `project`, where NULL
        stands for all projects.
        """

    def shapes(self) -> Mapping[str, Shape]:
        """Return the shape of each stream by name, up to date with the last `append` that returned."""

    def project_shapes(self) -> Mapping[str, ProjectShapes]:
        """Return, for each stream, the shapes of its projects; the engine continues to update the returned objects."""

    def stream_stats(self) -> Mapping[str, StreamStats]:
        """Return event counts and time ranges, for metrics and status pages. This method must be fast."""

    def newest_receipt_us(self) -> int | None:
        """Return the receive time of the newest acknowledged event, or a later time.

        Return None if a later event may have an earlier receive time. In this case, queries cannot be followed on this
        engine.
        """

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        """Estimate the stored bytes of each stream. This method may be slow."""

    def delete_expired_events(self, now_us: int) -> int:
        """Delete events older than their stream's retention; return how many were deleted."""

    def snapshot(self) -> AbstractContextManager[Sequence[BackupFile]]:
        """Return everything that is stored at this moment, as files that do not change during the `with` block.

        Events can be appended meanwhile. Raises NothingToBackUp if another system stores the events.
        """

    def regex_error(self, pattern: str) -> str | None:
        """Return why the engine refuses a pattern as a regular expression (RE2), or None if the pattern is valid."""

    def close(self) -> None:
        """Finish work in progress, make it durable, and release the files of the store."""
