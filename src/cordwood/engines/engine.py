"""The interface of an engine, which stores events and runs queries. Its methods block: call them in a thread."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.datatype import Column, Datatype, Kind, LastRow, Rows
from cordwood.model.definitions import Stream
from cordwood.model.event import EventShape, ReceivedEventBatch
from cordwood.sql.stages import BoundStatement, Target

# The columns of a stored event, in the order in which the SQL of `Engine.stored_events_sql` returns them.
STORED_EVENT_COLUMNS = (
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
    """The limits of one answer.

    At most `max_rows` rows are returned. If the query has more, the receipt of the answer says so.
    """

    max_rows: int
    timeout_seconds: float


class BatchAppendResult(msgspec.Struct, frozen=True):
    """The result of appending one batch.

    `accepted` events were stored. `duplicates` events were skipped, because events with their ids were stored already;
    `repeated_positions` has the positions of the skipped events in the batch, in order.
    """

    accepted: int
    duplicates: int
    repeated_positions: Sequence[int] = ()


class StreamStats(msgspec.Struct, frozen=True):
    events: int
    newest_us: int | None
    oldest_us: int | None


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup: its name relative to the engine's folder, its size, and a function that yields its chunks."""

    name: str
    size: int
    read_chunks: Callable[[], Iterator[bytes]]


class QueryRunRequest(msgspec.Struct, frozen=True):
    """A compiled query to run, and the function `encode`, which encodes its answer in chunks while rows arrive.

    `encode` must be a function of a module, so that another process can import it. If `max_bytes` is set, the answer is
    sent only when it is complete, and a larger answer is an error. If it is None, each chunk is sent as soon as it is
    encoded.
    """

    bound_statement: BoundStatement
    limits: AnswerLimits
    encode: Callable[[Rows], Iterator[bytes]]
    max_bytes: int | None = None


class QueryRunStats(msgspec.Struct, frozen=True):
    """The statistics of a complete answer.

    `last_row` is set only for a statement that is paged by time: the next page begins after the time and id of this
    row.
    """

    row_count: int
    is_truncated: bool
    engine_seconds: float
    last_row: LastRow | None = None


class QueryRun(Protocol):
    """A query that the engine is running and whose answer is being encoded."""

    def answer_chunks(self) -> Generator[bytes, None, None]:
        """Yield the encoded answer in chunks. If the iterator is closed early, the engine stops the query."""

    def stats(self) -> QueryRunStats:
        """Return the statistics of the answer. Call this method only after the last chunk."""


class QueryProgress(msgspec.Struct, frozen=True):
    """The progress of a running query: the fraction done (0 to 1), the rows read so far, and the rows to read in all.

    A value that the engine does not report is None.
    """

    fraction_done: float | None = None
    rows_read: int | None = None
    rows_total: int | None = None


# A function that returns the progress of a query. It returns None while the engine has reported no progress, and after
# the query has ended.
ReadProgress = Callable[[], QueryProgress | None]


class Cancellation(Protocol):
    """The interface through which a caller cancels a running `Engine.answer` and reads its progress.

    The engine registers two functions: one stops the engine's work, the other reads the progress. Both return at once,
    may be called from any thread and at any time, and do not raise.
    """

    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None:
        """Register the engine's function that reads the progress.

        If an answer runs several statements, the function for the latest statement replaces the earlier ones.
        """


class CancelToken:
    """The implementation of `Cancellation`, with the methods that the caller of the engine uses.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop_callbacks: list[Callable[[], None]] = []
        self._read_progress: ReadProgress = _read_no_progress
        self.is_cancelled = False

    def on_cancel(self, stop: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_cancelled:
                self._stop_callbacks.append(stop)
                return
        stop()

    def set_progress_reader(self, read: ReadProgress) -> None:
        self._read_progress = read

    def query_progress(self) -> QueryProgress | None:
        """Return the progress of the query; None if it is unknown."""
        return self._read_progress()

    def cancel(self) -> None:
        with self._lock:
            self.is_cancelled = True
            stops, self._stop_callbacks = self._stop_callbacks, []
        for stop in stops:
            stop()


def _read_no_progress() -> None:
    return None


class Engine(Protocol):
    """The interface of an engine. Its methods may be called from several threads, and raise only cordwood's faults."""

    compile_target: Target

    def create_stream_tables(self, streams: Sequence[Stream]) -> None:
        """Create the tables in which events of these streams are stored.

        The service calls this method at start and at reload, before it sends the first event or question for the
        streams.
        """

    def check_streams(self, streams: Sequence[Stream]) -> None:
        """Raise BadStreamFile if `create_stream_tables` would refuse these streams; create no tables."""

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        """Store the events of all batches durably before returning, or store none.

        Events whose ids are stored already are skipped and counted.
        """

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        """Run a question and return its rows in batches. The query ends early on cancellation or at the time limit.

        Raise IsolationCheckFailed, without running the statement, if the engine's own parser finds that the statement
        is not a single query that reads only `statement.streams`.
        """

    def run_query(self, request: QueryRunRequest, cancel: Cancellation) -> QueryRun:
        """Run a question and return its encoded answer. The process that reads the rows also encodes them.

        An engine in the serving process implements this method with `run_query_locally`.
        """

    def stored_events_sql(self, stream: str) -> str:
        """Return the SQL that reads the stored events of a stream.

        It returns the columns `STORED_EVENT_COLUMNS`, in which objects are JSON text. Its parameters are `since`
        (inclusive) and `until` (exclusive), in microseconds, and `project`, where NULL stands for all projects.
        """

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        """Return the shapes of all streams by name. They include all events of `append` calls that have returned."""

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        """Return the shapes of the projects of each stream, by the stream's name.

        The engine continues to update the returned objects.
        """

    def stream_stats(self) -> Mapping[str, StreamStats]:
        """Return the number of events and their range of time for each stream, for metrics and status pages.

        This method must be fast.
        """

    def newest_receipt_us(self) -> int | None:
        """Return the latest time of receipt of all acknowledged events, or a later time.

        Return None if events that are acknowledged later may have earlier times of receipt. Queries cannot be followed
        on such an engine.
        """

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        """Return the approximate number of bytes that each stream's events take on disk. This method may take long."""

    def delete_expired_events(self, now_us: int) -> int:
        """Delete events that are older than their stream's retention, and return the number of deleted events."""

    def open_backup_snapshot(self) -> AbstractContextManager[Sequence[BackupFile]]:
        """Return everything that is stored at this moment as files, which do not change during the `with` block.

        Events can be appended meanwhile. Raise NothingToBackUp if another system stores the events.
        """

    def regex_error(self, pattern: str) -> str | None:
        """Return why the engine refuses a pattern as a regular expression (RE2); None if the pattern is valid."""

    def close(self) -> None:
        """Finish the work in progress, make all events durable, and release the engine's files."""
