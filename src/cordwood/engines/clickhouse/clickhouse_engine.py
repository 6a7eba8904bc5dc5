"""The ClickHouse engine: implements the `Engine` interface, and redacts the columns of fetched rows."""

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from cordwood.bounded_cache import compile_pattern
from cordwood.engines.clickhouse.buffered_appender import (
    UNAVAILABLE_FAULTS,
    BufferedAppender,
    PendingBatchQueue,
    RetryIntervals,
)
from cordwood.engines.clickhouse.datatypes import (
    CellRenderer,
    cell_renderer,
    datatype_of_engine_type,
    has_bytes,
    rendered_type,
    to_bindable_value,
)
from cordwood.engines.clickhouse.faults import REGEX_ERROR_PREFIX, is_unavailability_fault
from cordwood.engines.clickhouse.redaction_functions import (
    JSON_TEXT_SEPARATOR,
    REDACTION_KEY_PARAMETER,
    redact_texts_sql,
)
from cordwood.engines.clickhouse.session import BoundQuery, NamedValues, QueryProgressReader, SelectResult, Session
from cordwood.engines.clickhouse.statement_check import StatementChecker
from cordwood.engines.clickhouse.storage import Storage
from cordwood.engines.clickhouse.tables import TableStatementBuilder, select_events_sql, text_literal
from cordwood.engines.clickhouse.target import ClickHouseTarget, add_settings_clause
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
from cordwood.engines.late_redaction import OptimisticRedactionRunner, TextRedactor
from cordwood.engines.local_run import remove_paging_columns, run_query_locally
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import BadQueryValue, EngineFailed, NothingToBackUp
from cordwood.model.datatype import Column, Datatype, Kind, Row, Rows
from cordwood.model.definitions import Stream
from cordwood.model.event import EventShape, ReceivedEventBatch
from cordwood.model.redaction import REDACTION_CONFIG_WITHOUT_KEY, RedactionConfig, RedactMode
from cordwood.observe.observation import RecordObservation, ReportOperatorMessage, ignore_message, ignore_observation
from cordwood.sql.plan import EventRange, print_segments
from cordwood.sql.stages import BoundStatement, Statement, Target


class ClickHouseOptions(msgspec.Struct, frozen=True):
    """Settings of the engine. If `pending_folder` is None, no events are buffered while the server is unavailable.

    `retry_interval_seconds` is the interval between attempts to connect to an unavailable server. `report_message` is
    called when the server becomes unavailable, and when it is available again. `response_timeout_seconds` is the time
    to wait for the server's response to a request. It must exceed the time limit of queries, so that a slow query does
    not look like a dead server. With `has_ttl`, the server also deletes old events by itself, according to its own
    clock.
    """

    cluster: str = ""
    async_inserts: bool = False
    max_query_memory_bytes: int = 1 << 30
    pending_folder: Path | None = None
    max_pending_bytes: int = 1 << 30
    has_ttl: bool = True
    response_timeout_seconds: float = 60.0
    redaction: RedactionConfig = REDACTION_CONFIG_WITHOUT_KEY
    retry_interval_seconds: float = 1.0
    report_message: ReportOperatorMessage = ignore_message
    record_observation: RecordObservation = ignore_observation


# With this value of the setting `readonly`, a query may change other settings, but cannot write.
_READONLY_SETTING_VALUE: Final = 2

# The maximum number of tables that the setting `additional_table_filters` makes empty for a query. The number is small
# because the server parses the setting for each query, which takes 0.3 ms for 20 tables and 1.1 ms for 100.
# `_NO_ROWS_FILTER_SQL` is a filter that rejects every row.
_MAX_FILTERED_OUT_TABLES: Final = 30
_NO_ROWS_FILTER_SQL: Final = "'0'"

# The maximum length of a query's SQL, which is set on the server for each query. The server's default is smaller than
# the compiler's own limit, so that the server would refuse long queries that the compiler accepts.
_MAX_QUERY_BYTES: Final = 4 << 20


class ClickHouseEngine:
    """The `Engine` interface implemented with ClickHouse. Several processes may use the same database."""

    def __init__(self, address: str, options: ClickHouseOptions) -> None:
        self.compile_target: Target = ClickHouseTarget(options.redaction.rules)
        self._options = options
        self._session = Session(address, response_timeout_seconds=options.response_timeout_seconds)
        self._statement_checker = StatementChecker(
            self._session, IsolationCheck(self.compile_target.name, options.record_observation)
        )
        self._progress_reader = QueryProgressReader(self._session)
        self._optimistic_runner = OptimisticRedactionRunner()
        self._answer_redactor = AnswerRedactor(self._session, options.redaction)
        self._storage = Storage(
            self._session, TableStatementBuilder(options.cluster, options.has_ttl), wait_for_async=options.async_inserts
        )
        pending = (
            PendingBatchQueue(options.pending_folder, options.max_pending_bytes) if options.pending_folder else None
        )
        intervals = RetryIntervals(options.retry_interval_seconds, options.response_timeout_seconds)
        self._buffered_appender = BufferedAppender(self._storage, pending, intervals, options.report_message)

    def create_stream_tables(self, streams: Sequence[Stream]) -> None:
        """Create the tables of the streams.

        If the server is unavailable and events can be buffered, a background thread creates the tables later.
        """
        self._storage.register_streams(streams)
        try:
            self._storage.create_tables()
            self._buffered_appender.send_pending_batches()
        except UNAVAILABLE_FAULTS as fault:
            if self._options.pending_folder is None or not is_unavailability_fault(fault):
                raise
            self._buffered_appender.record_server_unavailable(fault)
        if self._options.pending_folder is not None:
            self._buffered_appender.start_retry_thread()

    def check_streams(self, streams: Sequence[Stream]) -> None:
        """Do nothing: table names are case-sensitive, so streams whose names differ only in case do not conflict."""

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        return self._buffered_appender.append(batches)

    def answer(self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation) -> Rows:
        self._storage.create_tables()
        self._storage.memory_reclaimer.record_activity()
        rows = self._optimistic_runner.run_statement(
            question.statement,
            lambda optimistic: self._answer_with_plan_variant(question, limits, cancel, optimistic=optimistic),
        )
        return remove_paging_columns(rows, question.statement)

    def _answer_with_plan_variant(
        self, question: BoundStatement, limits: AnswerLimits, cancel: Cancellation, *, optimistic: bool
    ) -> Rows:
        variant = question.statement.plan.find_variant_or_fallback(EventRange.ALL, optimistic=optimistic)
        if variant is None:
            raise ValueError("a plan without that variant")
        sql = print_segments(variant.segments)
        self._statement_checker.check(sql, question.statement.streams)
        mark, finished = uuid.uuid4().hex, threading.Event()
        cancel.on_cancel(lambda: self._session.cancel_query(mark, finished))
        cancel.set_progress_reader(lambda: None if finished.is_set() else self._progress_reader.progress_of(mark))
        started_at = time.monotonic()
        query = self._build_query(sql, question, limits, mark)
        with ExitStack() as resources:
            resources.callback(finished.set)
            selected = resources.enter_context(self._session.select(query))
            columns, renderers = _columns_and_renderers(selected, question)
            rows = Rows(columns, ())
            redact = partial(
                self._answer_redactor.redact_rows,
                question.statement,
                query=query,
                until=started_at + limits.timeout_seconds,
            )
            rows.batches = _read_row_batches(
                resources.pop_all(), selected, _BlockRenderer(redact, renderers, limits.max_rows, started_at), rows
            )
        return rows

    def run_query(self, request: QueryRunRequest, cancel: Cancellation) -> QueryRun:
        return run_query_locally(self, request, cancel)

    def stored_events_sql(self, stream: str) -> str:
        return add_settings_clause(select_events_sql(stream))

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        return self._storage.shapes_by_stream()

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return self._storage.project_shapes_by_stream()

    def stream_stats(self) -> Mapping[str, StreamStats]:
        """Return the number of events and the time range of each stream.

        While the server is unavailable, return the values that were read last.
        """
        try:
            return self._storage.stream_stats(refresh=not self._buffered_appender.is_server_unavailable)
        except UNAVAILABLE_FAULTS as fault:
            self._buffered_appender.record_server_unavailable(fault)
            return self._storage.stream_stats(refresh=False)

    def newest_receipt_us(self) -> int | None:
        """Return None, because another process may still insert events with earlier receive times."""

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        return self._storage.stored_bytes_by_stream()

    def delete_expired_events(self, now_us: int) -> int:
        self._buffered_appender.send_pending_batches()
        return self._storage.delete_expired_events(now_us)

    def open_backup_snapshot(self) -> AbstractContextManager[Sequence[BackupFile]]:
        raise NothingToBackUp(
            "The events lie in ClickHouse, which makes its own backups.",
            hint="Use its BACKUP DATABASE … TO …, or `cordwood export` stream by stream; copy keys.db beside them.",
        )

    def regex_error(self, pattern: str) -> str | None:
        try:
            self._session.fetch_rows("SELECT match('', {pattern:String})", {"pattern": pattern})
        except BadQueryValue as problem:
            return problem.message.removeprefix(REGEX_ERROR_PREFIX)
        except UNAVAILABLE_FAULTS:
            return _python_regex_error(pattern)
        return None

    @property
    def has_pending_events(self) -> bool:
        """Return whether events that were accepted have not been sent to the server yet."""
        return self._buffered_appender.has_pending_batches

    def close(self) -> None:
        self._buffered_appender.close()
        self._session.close()

    def _build_query(self, sql: str, question: BoundStatement, limits: AnswerLimits, mark: str) -> BoundQuery:
        statement = question.statement
        settings = {
            "readonly": _READONLY_SETTING_VALUE,
            "max_execution_time": limits.timeout_seconds,
            "timeout_before_checking_execution_speed": 0,
            "max_memory_usage": self._options.max_query_memory_bytes,
            "max_result_rows": limits.max_rows + 1,
            "result_overflow_mode": "break",
            "max_query_size": _MAX_QUERY_BYTES,
            **self._other_tables_filter_setting(statement.streams),
        }
        columns = zip(statement.column_names, statement.column_types, strict=False)
        bytes_columns = tuple(name for name, datatype in columns if has_bytes(datatype))
        values = {name: to_bindable_value(value) for name, value in question.values.items()}
        # Bind the redaction key only if the statement uses it. If the client received a value for SQL without
        # placeholders, it would treat percent signs in the SQL as places for values.
        if statement.redact_mode is RedactMode.HASH and REDACTION_KEY_PARAMETER in sql:
            values[REDACTION_KEY_PARAMETER] = self._options.redaction.hash_key
        return BoundQuery(sql, values, settings, mark, bytes_columns)

    def _other_tables_filter_setting(self, read: Sequence[str]) -> Mapping[str, str]:
        """Return the setting that makes all tables of streams appear empty to the query, except those in `read`.

        This protects the other streams if a statement reads them in spite of the check. On a cluster, return no
        setting, because its servers read tables with other names. If there are more than `_MAX_FILTERED_OUT_TABLES`
        other tables, return no setting, because it would be slow.
        """
        # Use full names, because a name without the database would also match another table's alias.
        others = self._storage.tables_of_other_streams(read)
        if self._options.cluster or not 0 < len(others) <= _MAX_FILTERED_OUT_TABLES:
            return {}
        return {
            "additional_table_filters": f"{{{', '.join(f'{text_literal(name)}: {_NO_ROWS_FILTER_SQL}' for name in others)}}}"
        }


def _python_regex_error(pattern: str) -> str | None:
    """Return the error that Python's `re` module finds in the pattern; return None if the pattern is valid.

    This check is used instead of the server's own check while the server is unavailable.
    """
    try:
        compile_pattern(pattern)
    except re.error as problem:
        return str(problem)
    return None


def _columns_and_renderers(
    selected: SelectResult, question: BoundStatement
) -> tuple[tuple[Column, ...], list[CellRenderer]]:
    if not selected.column_types:
        return _columns_of_empty_answer(question), []
    declared_types = question.statement.column_types or (None,) * len(selected.column_names)
    names = question.statement.column_names or selected.column_names
    datatypes = [
        rendered_type(datatype_of_engine_type(kind), declared_type)
        for kind, declared_type in zip(selected.column_types, declared_types, strict=True)
    ]
    columns = tuple(Column(name, datatype) for name, datatype in zip(names, datatypes, strict=True))
    return columns, [cell_renderer(datatype) for datatype in datatypes]


def _columns_of_empty_answer(question: BoundStatement) -> tuple[Column, ...]:
    """Return the columns that the statement declares, for an answer without rows.

    This is needed because the in-process engine does not report the columns of such an answer.
    """
    statement = question.statement
    columns = zip(statement.column_names, statement.column_types, strict=False)
    return tuple(Column(name, datatype or Datatype(Kind.STRING)) for name, datatype in columns)


class _BlockRenderer(msgspec.Struct):
    """Redacts and renders the rows of an answer block by block, up to the row limit."""

    redact_rows: Callable[[Sequence[Sequence[object]]], Iterable[Sequence[object]]]
    cell_renderers: Sequence[CellRenderer]
    remaining_rows: int
    started_at: float

    def render_block(self, block: Sequence[Sequence[object]], rows: Rows) -> list[Row]:
        batch = [self._render_row(values) for values in self.redact_rows(block[: self.remaining_rows])]
        rows.is_truncated = len(block) > self.remaining_rows
        rows.engine_seconds = time.monotonic() - self.started_at
        self.remaining_rows -= len(batch)
        return batch

    def _render_row(self, values: Sequence[object]) -> Row:
        return tuple(render(value) for render, value in zip(self.cell_renderers, values, strict=True))


def _read_row_batches(
    resources: ExitStack, selected: SelectResult, row_limit: _BlockRenderer, rows: Rows
) -> Iterator[list[Row]]:
    """Yield the rendered rows block by block; close the query after the last block."""
    with resources:
        for block in selected.row_blocks:
            batch = row_limit.render_block(block, rows)
            if batch:
                yield batch
            if rows.is_truncated:
                return
    rows.engine_seconds = time.monotonic() - row_limit.started_at


# The maximum number of characters in one bound value. A server accepts 128 KiB, and a character may take four bytes.
_MAX_BOUND_TEXT_CHARACTERS: Final = 30_000
_MAX_ROWS_PER_REDACTION: Final = 1000


class AnswerRedactor:
    """Redacts rows that were fetched unredacted; safe from several threads."""

    def __init__(self, session: Session, redacting: RedactionConfig) -> None:
        self._session = session
        self._redaction_config = redacting
        self._text_redactor = TextRedactor()

    def redact_rows(
        self, statement: Statement, rows: Sequence[Sequence[object]], query: BoundQuery, until: float
    ) -> Iterator[Sequence[object]]:
        """Yield the rows of an answer after redaction; `query` is the query that returned the rows."""
        if statement.redact_mode is None or not statement.unredacted_column_indexes:
            yield from rows
            return
        mode = statement.redact_mode
        are_texts = {position: _is_text_column(statement, position) for position in statement.unredacted_column_indexes}
        for start in range(0, len(rows), _MAX_ROWS_PER_REDACTION):
            batch = rows[start : start + _MAX_ROWS_PER_REDACTION]
            yield from self._text_redactor.redact_rows(
                mode, batch, are_texts, lambda texts: self._redact_texts(mode, texts, query, until)
            )

    def _redact_texts(self, mode: RedactMode, texts: Sequence[str], query: BoundQuery, until: float) -> Sequence[str]:
        """Redact the texts by one statement on the server, which must end by the time `until`.

        The statement has the same mark as `query`, so that both are cancelled together.
        """
        joined = JSON_TEXT_SEPARATOR.join(texts)
        chunks = [
            joined[at : at + _MAX_BOUND_TEXT_CHARACTERS] for at in range(0, len(joined), _MAX_BOUND_TEXT_CHARACTERS)
        ]
        values = {
            REDACTION_KEY_PARAMETER: self._redaction_config.hash_key,
            **{f"piece{at}": chunk for at, chunk in enumerate(chunks)},
        }
        sql = add_settings_clause(redact_texts_sql(self._redaction_config.rules, mode, len(chunks)))
        with self._session.select(
            BoundQuery(sql, values, _settings_with_deadline(query.settings, until), query.query_tag)
        ) as selected:
            ((redacted,),) = [row for block in selected.row_blocks for row in block]
        if not isinstance(redacted, list) or len(redacted) != len(texts):
            raise EngineFailed("ClickHouse gave back other texts than it was sent to redact.")
        return redacted


def _settings_with_deadline(settings: NamedValues, until: float) -> NamedValues:
    return {**settings, "max_execution_time": max(0.1, until - time.monotonic())}


def _is_text_column(statement: Statement, position: int) -> bool:
    datatype = statement.column_types[position]
    return datatype is not None and datatype.kind is Kind.STRING
