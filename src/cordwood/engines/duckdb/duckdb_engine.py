"""The embedded engine: DuckDB on the files of one folder, in one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
import msgspec

from cordwood.engines.duckdb.faults import translate_append_errors, translate_duckdb_errors, translate_open_errors
from cordwood.engines.duckdb.query.partial_answers import (
    PARTIAL_ANSWERS_FOLDER,
    PartialAnswerCache,
    PartialAnswerLimits,
)
from cordwood.engines.duckdb.query.query_runner import PARSED_STATEMENT_CACHE_BYTES, QueryRunner
from cordwood.engines.duckdb.query.redaction_macros import AnswerRedactor
from cordwood.engines.duckdb.statement_check import StatementChecker
from cordwood.engines.duckdb.storage.flusher import FlushLimits
from cordwood.engines.duckdb.storage.session import DATABASE_FILE_NAME, ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.storage import Storage, StorageLimits
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.engine import (
    AnswerLimits,
    BackupFile,
    BatchAppendResult,
    Cancellation,
    QueryRun,
    QueryRunRequest,
    StreamStats,
)
from cordwood.engines.isolation import IsolationCheck
from cordwood.engines.local_run import remove_paging_columns, run_query_locally
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.datatype import Rows
from cordwood.model.definitions import Stream
from cordwood.model.event import EventShape, ReceivedEventBatch
from cordwood.model.redaction import REDACTION_CONFIG_WITHOUT_KEY, RedactionConfig
from cordwood.model.timestamps import now_us
from cordwood.observe.observation import RecordObservation, ReportOperatorMessage, ignore_message, ignore_observation
from cordwood.sql.stages import BoundStatement, Target

_MIN_TWO_WORKER_MEMORY_BYTES = 192 * 10**6
_MIN_HEAP_RETENTION_MEMORY_BYTES = 600 * 10**6
# The maximum bytes of pending events, which are not flushed yet, in an engine with less memory than
# `_MIN_TWO_WORKER_MEMORY_BYTES`. Such an engine flushes a fifth of a row group at a time, so that it never has to
# buffer a whole row group.
_SMALL_ENGINE_MAX_UNFLUSHED_BYTES = 16 * 10**6
# The maximum bytes of the cache of each stream's newest events. The cache holds about ten thousand events of an HTTP
# gateway.
_MAX_RECENT_TABLE_BYTES = 16 * 10**6

# The maximum bytes of memory for the cache of partial answers. As an example of their size: the partial answers of the
# endpoint `usage.api-counts` for a week with 2,000,000 events take 100 KB.
_MAX_PARTIAL_ANSWER_BYTES = 8 * 2**20


class DuckDBOptions(msgspec.Struct, frozen=True):
    """The resources, callbacks and redaction settings of a DuckDB engine."""

    memory_bytes: int = 256 * 1024 * 1024
    # The maximum bytes of pending events, which are not flushed yet. While there are more, `append` blocks.
    max_unflushed_bytes: int = 96 * 1024 * 1024
    threads: int = 2
    report_message: ReportOperatorMessage = ignore_message
    record_observation: RecordObservation = ignore_observation
    redaction: RedactionConfig = REDACTION_CONFIG_WITHOUT_KEY
    max_store_bytes: int | None = None
    # The maximum bytes of the cache of parsed statements.
    parsed_statement_cache_bytes: int = PARSED_STATEMENT_CACHE_BYTES
    # Whether the events that are flushed in the first minutes after the engine's start are stored as whole values. This
    # needs less memory than to shred them into columns, as is done later.
    starts_without_shredding: bool = False
    # The maximum bytes of memory and disk space for partial answers, which are stored when a question is repeated.
    partial_answer_limits: PartialAnswerLimits = PartialAnswerLimits(
        max_memory_bytes=_MAX_PARTIAL_ANSWER_BYTES, max_disk_bytes=64 * 2**20
    )


_DEFAULT_OPTIONS = DuckDBOptions()


def partial_answer_limits(disk_bytes: int, memory_bytes: int) -> PartialAnswerLimits:
    """Return the limits of the cache of partial answers for an engine that may use `memory_bytes` of memory.

    The cache gets at most a 32nd of the engine's memory. `disk_bytes=0` disables partial answers.
    """
    return PartialAnswerLimits(min(disk_bytes, _MAX_PARTIAL_ANSWER_BYTES, memory_bytes // 32), disk_bytes)


def _flush_limits(options: DuckDBOptions) -> FlushLimits:
    """Choose the flush limits by the engine's memory.

    Each flush worker needs 50 to 100 MB to write a row group. Memory that a flush has freed, about 200 MB, is kept
    longer for the next flush if the engine has enough memory.
    """
    if options.memory_bytes < _MIN_TWO_WORKER_MEMORY_BYTES:
        return FlushLimits(1, min(_SMALL_ENGINE_MAX_UNFLUSHED_BYTES, options.max_unflushed_bytes), ROW_GROUP_ROWS // 5)
    workers = 2 if options.threads > 1 else 1
    return FlushLimits(
        workers,
        options.max_unflushed_bytes,
        keep_freed_memory_seconds=10.0 if options.memory_bytes > _MIN_HEAP_RETENTION_MEMORY_BYTES else 1.0,
    )


def _storage_limits(options: DuckDBOptions) -> StorageLimits:
    return StorageLimits(
        _flush_limits(options), min(_MAX_RECENT_TABLE_BYTES, options.memory_bytes // 16), options.max_store_bytes
    )


class DuckDBEngine:
    """The embedded engine, which keeps all of its data in `folder`.

    The constructor opens the data in the folder, or creates an empty store; it raises DataFolderInUse or
    DataFolderUnusable if that fails.
    """

    def __init__(
        self,
        folder: Path,
        target: Target,
        options: DuckDBOptions = _DEFAULT_OPTIONS,
        *,
        clock_us: Callable[[], int] = now_us,
    ) -> None:
        self.compile_target = target
        folder.mkdir(parents=True, exist_ok=True)
        self._session = Session(folder, memory_bytes=options.memory_bytes, threads=options.threads)
        self._database_file = folder / DATABASE_FILE_NAME
        self._report_message = options.report_message
        with translate_open_errors(self._database_file), ExitStack() as cleanup:
            cleanup.callback(self._session.close)
            if options.starts_without_shredding:
                with self._session.cursor_with_shared_access() as cursor:
                    self._session.pause_shredding(cursor)
            self._storage = Storage(self._session, folder, _storage_limits(options), clock_us, options.report_message)
            cleanup.pop_all()
        self._storage.start()
        check = StatementChecker(IsolationCheck(target.name, options.record_observation))
        self._query_runner = QueryRunner(
            self._storage,
            AnswerRedactor(self._session.cursor, options.redaction),
            check,
            PartialAnswerCache(
                folder / PARTIAL_ANSWERS_FOLDER, options.partial_answer_limits, options.record_observation
            ),
            options.parsed_statement_cache_bytes,
        )

    def create_stream_tables(self, streams: Sequence[Stream]) -> None:
        with translate_open_errors(self._database_file):
            self._storage.create_stream_tables(streams)

    def check_streams(self, streams: Sequence[Stream]) -> None:
        self._storage.check_streams(streams)

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        with translate_append_errors(self._report_message):
            return self._storage.append(batches)

    def retry_append(
        self, batches: Sequence[ReceivedEventBatch], acknowledged: Mapping[str, int]
    ) -> list[BatchAppendResult]:
        """Append batches again that an earlier, unacknowledged append may have stored already.

        `acknowledged` maps each stream to the sequence number after its last acknowledged event. If an event of the
        batches is already stored with this or a higher number, the earlier append stored it. So the event counts as
        accepted, not as repeated.
        """
        with translate_append_errors(self._report_message):
            return self._storage.append(batches, acknowledged)

    def must_restart(self) -> bool:
        """Return whether the database file has become unreadable, so that the engine must be opened again."""
        return not self._session.is_usable()

    def next_event_numbers(self) -> Mapping[str, int]:
        """Return the sequence number of each stream's next event."""
        return self._storage.next_event_numbers()

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        return remove_paging_columns(self._query_runner.answer(question, limits, cancel), question.statement)

    def run_query(self, request: QueryRunRequest, cancel: Cancellation) -> QueryRun:
        return run_query_locally(self, request, cancel)

    def stored_events_sql(self, stream: str) -> str:
        return StreamTableStatements(stream).select_events()

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        return self._storage.shapes_by_stream()

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return self._storage.project_shapes_by_stream()

    def stream_stats(self) -> Mapping[str, StreamStats]:
        with translate_duckdb_errors():
            return self._storage.stream_stats()

    def count_events_of_unopened_streams(self) -> Mapping[str, int]:
        """Count the stored events of each stream for which `create_stream_tables` was not called."""
        with translate_duckdb_errors():
            return self._storage.count_events_of_unopened_streams()

    def newest_receipt_us(self) -> int | None:
        return self._storage.newest_receipt_us

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        with translate_duckdb_errors():
            return self._storage.stored_bytes_by_stream()

    def delete_expired_events(self, now_us: int) -> int:
        with translate_duckdb_errors():
            return self._storage.delete_expired_events(now_us)

    @contextmanager
    def open_backup_snapshot(self) -> Iterator[Sequence[BackupFile]]:
        with translate_duckdb_errors(), self._storage.open_backup_snapshot() as files:
            yield files

    def regex_error(self, pattern: str) -> str | None:
        cursor = self._session.cursor()
        try:
            cursor.execute("SELECT regexp_matches('', $pattern)", {"pattern": pattern}).fetchall()
        except duckdb.InvalidInputException as problem:
            return str(problem).removeprefix("Invalid Input Error: ").split("\n", 1)[0]
        finally:
            cursor.close()
        return None

    def close(self) -> None:
        self._query_runner.close()
        self._storage.close()
        self._session.close()
