"""A fake engine that gives scripted answers and records the questions that it was asked."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import (
    AnswerLimits,
    BackupFile,
    BatchAppendResult,
    Cancellation,
    QueryProgress,
    QueryRun,
    QueryRunRequest,
    StreamStats,
)
from cordwood.engines.local_run import run_query_locally
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import Fault, QueryCancelled
from cordwood.model.datatype import Column, Datatype, Kind, Row, Rows
from cordwood.model.definitions import Stream
from cordwood.model.event import EventShape, ReceivedEventBatch
from cordwood.sql.stages import BoundStatement, Target

COLUMNS = (Column("n", Datatype(Kind.INT64)),)


class ScriptedEngine:
    """An engine whose answer is the number of questions asked so far, unless a test sets other rows.

    After `hold`, answers wait until `release` is called or the query is cancelled.
    """

    def __init__(self) -> None:
        self.compile_target: Target = DuckDBTarget()
        self.questions: list[BoundStatement] = []
        self.stopped = 0
        self.fails_with: Fault | None = None
        self.rows: Callable[[int], Iterable[list[Row]]] = lambda number: [[(number,)]]
        self.truncated = False
        self.columns: tuple[Column, ...] = COLUMNS
        self.progress: QueryProgress | None = None
        self._released = threading.Event()
        self._released.set()
        self._lock = threading.Lock()

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    @property
    def question_count(self) -> int:
        return len(self.questions)

    def create_stream_tables(self, streams: Sequence[Stream]) -> None:
        """Accept all streams."""

    def check_streams(self, streams: Sequence[Stream]) -> None:
        """Accept all streams."""

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        return [BatchAppendResult(len(batch.events), 0) for batch in batches]

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        with self._lock:
            self.questions.append(question)
            number = len(self.questions)
        cancelled = threading.Event()
        cancel.on_cancel(cancelled.set)
        cancel.set_progress_reader(lambda: self.progress)
        while not self._released.wait(0.001):
            if cancelled.is_set():
                self.stopped += 1
                raise QueryCancelled("The question was stopped.")
        if self.fails_with is not None:
            raise self.fails_with
        return Rows(self.columns, self.rows(number), is_truncated=self.truncated, engine_seconds=0.001)

    def run_query(self, request: QueryRunRequest, cancel: Cancellation) -> QueryRun:
        return run_query_locally(self, request, cancel)

    def stored_events_sql(self, stream: str) -> str:
        return f"FROM {stream}"

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        return {}

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return {}

    def stream_stats(self) -> Mapping[str, StreamStats]:
        return {}

    def newest_receipt_us(self) -> int | None:
        return 0

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        return {}

    def delete_expired_events(self, now_us: int) -> int:
        return 0

    @contextmanager
    def open_backup_snapshot(self) -> Iterator[Sequence[BackupFile]]:
        yield []

    def regex_error(self, pattern: str) -> str | None:
        return None

    def close(self) -> None:
        """Do nothing."""
