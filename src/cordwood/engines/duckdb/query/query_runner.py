"""Run a query and return its rows in batches, up to the row limit; stop it at its deadline or when it is cancelled."""

import heapq
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import duckdb
import msgspec
from duckdb.sqltypes import DuckDBPyType

from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.engines.duckdb.datatypes import CellReader, cell_readers, datatype_of, render_cell_sql
from cordwood.engines.duckdb.faults import translate_duckdb_errors
from cordwood.engines.duckdb.query.deferred_columns import compute_deferred_columns
from cordwood.engines.duckdb.query.index_pruning import find_blocks_to_read
from cordwood.engines.duckdb.query.partial_answers import PartialAnswerCache, PartialAnswerPlanner
from cordwood.engines.duckdb.query.redaction_macros import AnswerRedactor
from cordwood.engines.duckdb.statement_check import StatementChecker
from cordwood.engines.duckdb.storage.blocks import NgramIndex
from cordwood.engines.duckdb.storage.storage import QueryView, Storage
from cordwood.engines.engine import AnswerLimits, Cancellation, QueryProgress
from cordwood.engines.late_redaction import OptimisticRedactionRunner
from cordwood.errors import Fault, OutOfDisk, OutOfMemory, QueryCancelled, QueryOutOfTime, QueryRefused, ServiceBusy
from cordwood.model.datatype import Column, Row, Rows
from cordwood.model.timestamps import EPOCH
from cordwood.sql.follow import FIRST_RECEIPT_TIME_PARAMETER
from cordwood.sql.plan import EventRange, PlanVariant, SqlSegments, print_segments
from cordwood.sql.stages import BoundStatement, ComputedColumn, IsoTimeColumn, Statement

_FETCH_BATCH_ROWS = 1000
# A statement that runs out of memory within this time is run once more, after a pause of the same length.
_OUT_OF_MEMORY_RETRY_SECONDS = 0.05
# The maximum number of items in each of the runner's collections `_recent_table_skipped_until` and
# `_quick_statement_digests`.
_MAX_REMEMBERED_STATEMENTS = 2000
# The interval at which a query that must stop is interrupted again, until it ends.
_INTERRUPT_INTERVAL_SECONDS = 0.05
# The maximum bytes of the cache of column types, which are cached by the digest of their statement.
_COLUMN_TYPE_CACHE_BYTES = 4 * 2**20
_BYTES_PER_CACHED_TYPE = 250
# The maximum bytes of the cache of parsed statements.
PARSED_STATEMENT_CACHE_BYTES = 16 * 2**20
# The maximum bytes, as measured, that DuckDB's parse tree takes for each word of a statement's text. This number serves
# to estimate the memory of a parsed statement. The estimate also counts the two copies of the text that DuckDB keeps.
_PARSE_TREE_BYTES_PER_WORD = 800
_WORD_PATTERN = re.compile(r"\w+", re.ASCII)
# If the recent table has too few rows for a question, the question is not run on this table for this many seconds. A
# failed attempt costs a third of the time that a successful one saves. The time is short, because a user who pages back
# to older events soon returns to the newest ones.
_SKIP_RECENT_TABLE_SECONDS = 10.0
# DuckDB tracks the progress of a query only if the connection has a progress bar, which is not printed here. To set
# this takes 150 µs, so it is omitted for a statement whose last run was quick.
_TRACK_PROGRESS_SQL = "SET enable_progress_bar_print = false; SET enable_progress_bar = true"
_MAX_QUICK_RUN_SECONDS = 0.05

T = TypeVar("T")

ColumnTypes = tuple[DuckDBPyType, ...]
# The key of a parsed statement in the cache: its text, and the streams for which it was checked.
_StatementKey = tuple[str, tuple[str, ...]]


class RunLimits(msgspec.Struct, frozen=True):
    """The limits of one answer. All runs of its statement must end by `expires_at`, a time of the monotonic clock."""

    max_rows: int
    timeout_seconds: float
    expires_at: float

    @classmethod
    def from_answer_limits(cls, limits: AnswerLimits) -> "RunLimits":
        return cls(limits.max_rows, limits.timeout_seconds, time.monotonic() + limits.timeout_seconds)


class QueryRunner:
    """Runs questions (statements with values) on DuckDB; caches column types and parse trees of repeated statements."""

    def __init__(
        self,
        storage: Storage,
        redaction: AnswerRedactor,
        check: StatementChecker,
        partial_answers: PartialAnswerCache,
        parsed_bytes: int = PARSED_STATEMENT_CACHE_BYTES,
    ) -> None:
        self._storage = storage
        self._partial_answer_cache = partial_answers
        self._answer_redactor = redaction
        self._statement_checker = check
        self._deadline_timer = DeadlineTimer()
        self._ngram_index = NgramIndex()
        self._column_types_cache: BoundedCache[bytes, ColumnTypes] = BoundedCache(
            _COLUMN_TYPE_CACHE_BYTES, _cached_types_bytes
        )
        self._parsed_statement_cache: BoundedCache[_StatementKey, duckdb.Statement] = BoundedCache(
            parsed_bytes, _parsed_statement_bytes
        )
        # The questions, by hash, for which the recent table had too few events. Each has the time until which the
        # question is not run on that table again.
        self._recent_table_skipped_until: dict[int, float] = {}
        # The digests of statements whose last run was quick.
        self._quick_statement_digests: set[bytes] = set()
        with storage.open_query_view(()) as view:
            self._progress_tracking_statements = view.cursor.extract_statements(_TRACK_PROGRESS_SQL)
        self._optimistic_runner = OptimisticRedactionRunner()

    def answer(self, question: BoundStatement, answer_limits: AnswerLimits, cancel: Cancellation) -> Rows:
        limits = RunLimits.from_answer_limits(answer_limits)
        statement = question.statement
        if statement.redact_mode is not None:
            self._answer_redactor.create_macros(statement.redact_mode)
        if (arrived := statement.plan.find_variant(EventRange.NEWLY_ARRIVED)) is not None:
            rows = self._answer_from_arrived_tables(question, arrived, limits, cancel)
            return rows or self._answer_from_all_events(question, limits, cancel)
        if statement.plan.find_variant_or_fallback(EventRange.ALL, optimistic=True) is None:
            rows = self._answer_from_recent_table(question, limits, cancel)
            if rows is not None:
                return rows
        return self._optimistic_runner.run_statement(
            statement, lambda optimistic: self._answer_from_all_events(question, limits, cancel, optimistic=optimistic)
        )

    def _answer_from_recent_table(
        self, question: BoundStatement, limits: RunLimits, cancel: Cancellation
    ) -> Rows | None:
        """Answer the question from the recent table; return None if the table has too few rows.

        The table has the newest events. So if it provides as many rows as the question requests, these rows are the
        answer.
        """
        started_at = time.perf_counter()
        statement = question.statement
        variant = statement.plan.find_variant_or_fallback(EventRange.RECENTLY_CACHED)
        if variant is None:
            return None
        question_hash = _hash_question_without_times(question)
        if time.monotonic() < self._recent_table_skipped_until.get(question_hash, 0.0):
            return None
        with ExitStack() as stack:
            run = self._create_running_query(statement, limits, cancel, stack)
            view = run.enter_view(self._storage.open_recent_view(statement.streams[0], run), stack)
            if view is None:
                return None
            rows = self._start_query(
                question, variant, QueryView(view.cursor, reads_only_flushed_events=True), run, stack
            )
            if not view.is_still_valid():
                return None
        (batch,) = rows.batches
        if rows.is_truncated or len(batch) == statement.row_limit:
            rows.engine_seconds = time.perf_counter() - started_at
            return rows
        if len(self._recent_table_skipped_until) >= _MAX_REMEMBERED_STATEMENTS:
            self._recent_table_skipped_until.clear()
        self._recent_table_skipped_until[question_hash] = time.monotonic() + _SKIP_RECENT_TABLE_SECONDS
        return None

    def _answer_from_arrived_tables(
        self, question: BoundStatement, variant: PlanVariant, limits: RunLimits, cancel: Cancellation
    ) -> Rows | None:
        """Answer a query that a client follows from the tables of arrived events, which hold events that just arrived.

        Return None if the tables lack some events of the query's time range.
        """
        started_at = time.perf_counter()
        first = question.values[FIRST_RECEIPT_TIME_PARAMETER]
        first_us = (first - EPOCH) // timedelta(microseconds=1) if isinstance(first, datetime) else 0
        with ExitStack() as stack:
            run = self._create_running_query(question.statement, limits, cancel, stack)
            view = run.enter_view(self._storage.open_arrived_view(question.statement.streams, first_us, run), stack)
            if view is None:
                return None
            rows = self._start_query(
                question, variant, QueryView(view.cursor, reads_only_flushed_events=True), run, stack
            )
            rows.batches = list(rows.batches)
            if not view.is_still_valid():
                return None
        rows.engine_seconds = time.perf_counter() - started_at
        return rows

    def _answer_from_all_events(
        self, question: BoundStatement, limits: RunLimits, cancel: Cancellation, *, optimistic: bool = False
    ) -> Rows:
        """Answer from all events; if the statement fails quickly for lack of memory or disk space, run it once more."""
        started_at = time.perf_counter()
        try:
            rows = self._run_statement(question, limits, cancel, optimistic=optimistic)
        except (OutOfMemory, OutOfDisk):
            if time.perf_counter() - started_at > _OUT_OF_MEMORY_RETRY_SECONDS:
                raise
            # The query failed too early to have allocated much memory itself. Another query uses the memory, and
            # probably soon fails too, which frees the memory.
            time.sleep(_OUT_OF_MEMORY_RETRY_SECONDS)
            rows = self._run_statement(question, limits, cancel, optimistic=optimistic)
        finally:
            seconds = time.perf_counter() - started_at
            self._record_duration(question.statement.digest, seconds)
        rows.engine_seconds = seconds
        return rows

    def _record_duration(self, digest: bytes, seconds: float) -> None:
        if seconds > _MAX_QUICK_RUN_SECONDS:
            self._quick_statement_digests.discard(digest)
            return
        if len(self._quick_statement_digests) >= _MAX_REMEMBERED_STATEMENTS:
            self._quick_statement_digests.clear()
        self._quick_statement_digests.add(digest)

    def _run_statement(
        self, question: BoundStatement, limits: RunLimits, cancel: Cancellation, *, optimistic: bool
    ) -> Rows:
        """Run the statement on partial answers; if that is impossible or fails, run it on all events."""
        plan = question.statement.plan.partial_plan
        if plan is None or optimistic or not self._partial_answer_cache.is_enabled:
            return self._run_in_view(question, limits, cancel, optimistic=optimistic)
        reuse = PartialAnswerPlanner(self._partial_answer_cache, self, question, plan)
        try:
            return self._run_in_view(question, limits, cancel, reuse=reuse)
        except (ServiceBusy, QueryCancelled, QueryOutOfTime):
            raise
        except Fault:
            # The run on partial answers may fail although a run on all events succeeds. For example, a partial sum may
            # overflow, or the lists of rows may need too much memory.
            reuse.pause_failed_question()
            return self._run_in_view(question, limits, cancel)

    def _run_in_view(
        self,
        question: BoundStatement,
        limits: RunLimits,
        cancel: Cancellation,
        *,
        optimistic: bool = False,
        reuse: PartialAnswerPlanner | None = None,
    ) -> Rows:
        with ExitStack() as stack:
            run = self._create_running_query(question.statement, limits, cancel, stack)
            view = run.enter_view(self._storage.open_query_view(question.statement.streams, run), stack)
            stack.callback(run.stop_progress_reading)
            if question.statement.digest not in self._quick_statement_digests:
                with run.translate_errors_of_stopped_query():
                    for setting in self._progress_tracking_statements:
                        view.cursor.execute(setting)
                cancel.set_progress_reader(partial(run.read_progress, view.cursor))
            reads = EventRange.FLUSHED if view.reads_only_flushed_events else EventRange.ALL
            variant = question.statement.plan.find_variant_or_fallback(reads, optimistic=optimistic)
            if variant is None:
                raise ValueError("a plan without that variant")
            if reuse is not None:
                with run.translate_errors_of_stopped_query():
                    reused = reuse.prepare_variant(view.cursor, reads)
                if reused is not None:
                    variant = reused.variant
                    question = msgspec.structs.replace(
                        question, values={**question.values, **reused.added_parameter_values}
                    )
            return self._start_query(question, variant, view, run, stack)

    def _create_running_query(
        self, statement: Statement, limits: RunLimits, cancel: Cancellation, stack: ExitStack
    ) -> "_RunningQuery":
        """Return a new running query, which is stopped at its deadline or when it is cancelled.

        The deadline does not apply any more after `stack` is closed.
        """
        run = _RunningQuery(limits, statement, self._answer_redactor)
        alarm = stack.enter_context(self._deadline_timer.call_at(limits.expires_at, run.expire))

        def stop_query() -> None:
            run.cancel()
            self._deadline_timer.fire_now(alarm)

        cancel.on_cancel(stop_query)
        return run

    def _start_query(
        self, question: BoundStatement, variant: PlanVariant, view: QueryView, run: "_RunningQuery", stack: ExitStack
    ) -> Rows:
        """Start the query and return its rows.

        If more rows may follow after the first fetch, the `Rows` object takes over the resources on `stack`.
        """
        statement, cursor = question.statement, view.cursor
        with run.translate_errors_of_stopped_query():
            types = self._column_types(cursor, question)
            limit = _limit_clause(statement, run.limits.max_rows + 1)
            segments = _render_cells_sql(variant.segments, types, limit, statement.computed_columns)
            sql = print_segments(segments, question.values)
            filters = variant.block_filters()
            if filters:
                # The text that is checked reads all blocks. The text that runs differs from it only by a list of block
                # numbers, so it is not checked again.
                self._statement_checker.check(cursor, sql, statement.streams)
                if view.reads_only_flushed_events:
                    cursor.execute("BEGIN")
                blocks = {
                    block_filter: find_blocks_to_read(block_filter, question.values, cursor, self._ngram_index)
                    for block_filter in filters
                }
                parsed = _parse_select(cursor, print_segments(segments, question.values, blocks))
            else:
                parsed = self.parse_checked(cursor, sql, statement.streams)
            # Bind only the parameters that are in the text, because DuckDB refuses values for others. The parameters of
            # omitted optional predicates are not in the text.
            cursor.execute(parsed, {name: question.values[name] for name in parsed.named_parameters})
        rows = Rows(_answer_columns(statement, types), ())
        batches = run.fetch_batches(cursor, types, rows)
        first = next(batches, [])
        if len(first) < _FETCH_BATCH_ROWS:
            rows.batches = [first]
        else:
            rows.batches = _yield_batches(first, batches, stack.pop_all())
        return rows

    def close(self) -> None:
        self._deadline_timer.close()

    def _column_types(self, cursor: duckdb.DuckDBPyConnection, question: BoundStatement) -> ColumnTypes:
        statement = question.statement
        types = self._column_types_cache.get(statement.digest)
        if types is None:
            segments = statement.plan.variants[0].segments
            sql = print_segments(("FROM (", *segments, ") LIMIT 0"))
            self._statement_checker.check(cursor, sql, statement.streams)
            parsed = _parse_select(cursor, sql)
            cursor.execute(parsed, {name: question.values[name] for name in parsed.named_parameters})
            types = tuple(column[1] for column in cursor.description or [])
            self._column_types_cache.put(statement.digest, types)
        return types

    def parse_checked(self, cursor: duckdb.DuckDBPyConnection, sql: str, streams: tuple[str, ...]) -> duckdb.Statement:
        """Check and parse the statement, or take it from the cache of statements that passed the isolation check."""
        key = (sql, streams)
        parsed = self._parsed_statement_cache.get(key)
        if parsed is None:
            self._statement_checker.check(cursor, sql, streams)
            parsed = _parse_select(cursor, sql)
            self._parsed_statement_cache.put(key, parsed)
        return parsed

    def parse_unchecked(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
        """Parse a statement without the isolation check.

        The caller must ensure that the same statement with other block numbers or casts has passed the check.
        """
        return _parse_select(cursor, sql)


class _RunningQuery:
    """A running query, with its limits, and whether it was cancelled or its deadline has passed."""

    def __init__(self, limits: RunLimits, statement: Statement, redaction: AnswerRedactor) -> None:
        self.limits = limits
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._redacted_columns = redaction.columns_to_redact(statement)
        # Keep only these attributes of the statement, because a run may stay in memory for a while until the garbage
        # collector frees it. The whole statement contains long texts.
        self._deferred_columns = statement.computed_columns
        self._column_count = len(statement.column_names)
        self._declared_types = statement.column_types
        self._redaction_cursor: duckdb.DuckDBPyConnection | None = None
        self._is_cancelled = False
        self._is_expired = False
        # Whether the run still waits for a view of the events. If the deadline passes meanwhile, the run fails with
        # ServiceBusy. A retry that begins after the deadline counts as not waiting, so that it fails with
        # QueryOutOfTime.
        self._is_waiting_for_view = time.monotonic() < limits.expires_at
        # Held while the progress is read, so that the cursor is not closed meanwhile.
        self._progress_lock = threading.Lock()
        self._has_progress = self._has_ended = False

    def set_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Set the cursor that is interrupted if the query must stop; raise an error if it must stop already."""
        self._cursor = cursor
        self.raise_if_stopped()

    def enter_view(self, view: AbstractContextManager[T], stack: ExitStack) -> T:
        """Enter the context manager `view`, and let `stack` close it.

        Entering may wait for other queries, and for events to become readable.
        """
        with self.translate_errors_of_stopped_query():
            entered = stack.enter_context(view)
        self._is_waiting_for_view = False
        return entered

    def cancel(self) -> None:
        self._is_cancelled = True
        self._interrupt_cursors()

    def expire(self) -> None:
        self._is_expired = True
        self._interrupt_cursors()

    def read_progress(self, cursor: duckdb.DuckDBPyConnection) -> QueryProgress | None:
        """Return the fraction of the query that DuckDB has processed, or None while it is unknown and after the end.

        DuckDB reports 0 if the progress is unknown. Until the query is planned, it reports the progress of the previous
        statement.
        """
        with self._progress_lock:
            percentage = -1.0 if self._has_ended else cursor.query_progress()
        self._has_progress = self._has_progress or 0 < percentage < 100
        return (
            QueryProgress(fraction_done=min(percentage, 100.0) / 100) if self._has_progress and percentage > 0 else None
        )

    def stop_progress_reading(self) -> None:
        """Stop reading the progress from the cursor; the caller does this before it closes the cursor."""
        with self._progress_lock:
            self._has_ended = True

    @contextmanager
    def translate_errors_of_stopped_query(self) -> Iterator[None]:
        self.raise_if_stopped()
        try:
            with translate_duckdb_errors():
                yield
        except Exception:
            self.raise_if_stopped()
            raise

    def fetch_batches(self, cursor: duckdb.DuckDBPyConnection, types: ColumnTypes, rows: Rows) -> Iterator[list[Row]]:
        """Yield the rows in batches, up to the row limit; set `rows.truncated` if the query has more rows."""
        remaining = self.limits.max_rows
        while remaining > 0:
            with self.translate_errors_of_stopped_query():
                fetched = cursor.fetchmany(min(remaining, _FETCH_BATCH_ROWS))
            if not fetched:
                return
            remaining -= len(fetched)
            if remaining == 0:
                with self.translate_errors_of_stopped_query():
                    rows.is_truncated = cursor.fetchone() is not None
            readers = cell_readers(types[: self._column_count], self._declared_types)
            yield _rows_to_cells(self._redact_batch(fetched, types), readers, self._deferred_columns)

    def _redact_batch(self, fetched: list[Row], types: ColumnTypes) -> list[Row]:
        if not self._redacted_columns.column_positions:
            return fetched
        with self.translate_errors_of_stopped_query():
            return self._redacted_columns.redact(fetched, types, self._set_redaction_cursor)

    def _set_redaction_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._redaction_cursor = cursor
        self.raise_if_stopped()

    def _interrupt_cursors(self) -> None:
        for cursor in (self._cursor, self._redaction_cursor):
            if cursor is not None:
                with suppress(duckdb.ConnectionException):
                    cursor.interrupt()

    def raise_if_stopped(self) -> None:
        """Raise an error if the query was cancelled or its deadline has passed."""
        if self._is_cancelled:
            raise QueryCancelled("The query was stopped: no client waits for its answer.")
        if not self._is_expired and time.monotonic() < self.limits.expires_at:
            return
        if self._is_waiting_for_view:
            raise ServiceBusy(
                f"The query had to wait longer than its {self.limits.timeout_seconds:g} s until it could read the newest events.",
                retry_after=1,
            )
        raise QueryOutOfTime(
            f"The query took longer than its {self.limits.timeout_seconds:g} s.",
            hint="Read a shorter time range, or filter by project.",
        )


def _cached_types_bytes(digest: bytes, types: ColumnTypes) -> int:
    return estimate_memory_bytes(digest) + _BYTES_PER_CACHED_TYPE * len(types)


def _parsed_statement_bytes(key: _StatementKey, _: duckdb.Statement) -> int:
    """Estimate the memory of a parsed statement: the text in the key, DuckDB's two copies of it, and the parse tree."""
    return 3 * estimate_memory_bytes(key) + _PARSE_TREE_BYTES_PER_WORD * sum(1 for _ in _WORD_PATTERN.finditer(key[0]))


def _hash_question_without_times(question: BoundStatement) -> int:
    """Return a hash of the question without its times, which differ whenever the question is asked again."""
    values = [str(value) for value in question.values.values() if not isinstance(value, datetime)]
    return hash((question.statement.digest, *values))


def _yield_batches(first: list[Row], batches: Iterator[list[Row]], stack: ExitStack) -> Iterator[list[Row]]:
    with stack:
        yield first
        yield from batches


def _answer_columns(statement: Statement, types: ColumnTypes) -> tuple[Column, ...]:
    names = statement.column_names
    declared_types = statement.column_types or (None,) * len(names)
    return tuple(
        Column(name, declared_type or datatype_of(duckdb_type))
        for name, declared_type, duckdb_type in zip(names, declared_types, types, strict=False)
    )


def _parse_select(cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """Parse SQL that must be a single SELECT; raise QueryRefused for other SQL, which could change settings or data."""
    statement, *others = cursor.extract_statements(sql)
    if others or statement.type is not duckdb.StatementType.SELECT:
        raise QueryRefused("The text has more than one SELECT.")
    return statement


def _render_cells_sql(
    segments: SqlSegments, types: ColumnTypes, limit: str, completions: Sequence[ComputedColumn] = ()
) -> SqlSegments:
    """Return SQL that wraps the statement's `segments` in a SELECT that renders each value as a cell.

    If no value needs rendering and `limit` is empty, the segments are returned unchanged, so that DuckDB plans one
    SELECT less.
    """
    names = [f"c{index}" for index in range(len(types))]
    cells = [render_cell_sql(name, duckdb_type) for name, duckdb_type in zip(names, types, strict=True)]
    for completion in completions:
        if isinstance(completion, IsoTimeColumn):
            cells[completion.column_position] = f"epoch_us({names[completion.column_position]})"
    if cells == names and not limit:
        return segments
    head = f"SELECT {', '.join(cells)} FROM ("  # noqa: S608 - names of our own
    return (head, *segments, f") AS answer({', '.join(names)}){limit}")


def _limit_clause(statement: Statement, rows: int) -> str:
    """Return a LIMIT clause for `rows` rows, or an empty text if the statement's own limit is not higher.

    An unnecessary LIMIT is avoided, because each LIMIT makes DuckDB copy whole events.
    """
    return "" if statement.row_limit is not None and statement.row_limit <= rows else f" LIMIT {rows}"


def _rows_to_cells(
    fetched: Sequence[tuple[Any, ...]], readers: Sequence[CellReader | None], completions: Sequence[ComputedColumn]
) -> list[Row]:
    """Convert fetched values to cells.

    `readers` are for the answer's columns. The columns that were fetched after these are not in the answer, but serve
    to compute columns of the answer.
    """
    if not any(readers) and not completions:
        return fetched  # type: ignore[return-value]
    columns: list[Sequence[Any]] = list(zip(*fetched, strict=True))
    cells = [reader(column) if reader else column for reader, column in zip(readers, columns, strict=False)]
    for position, completed in compute_deferred_columns(completions, columns):
        cells[position] = completed
    return list(zip(*cells, strict=True))


class _Alarm:
    """A callback that the timer calls at its due time, and then repeatedly until `callback` is set to None."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback


class DeadlineTimer:
    """A thread that interrupts each run at its deadline, and then repeatedly until the run ends.

    One interrupt is not enough, because DuckDB ignores an interrupt between two statements of a run.
    """

    def __init__(self) -> None:
        # A heap of alarms, ordered by due time. Each entry has a unique number, so that `heapq` never compares alarms.
        self._alarm_heap: list[tuple[float, int, _Alarm]] = []
        self._schedule_changed = threading.Condition()
        self._alarm_sequence_numbers = itertools.count()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run_timer, name="watch", daemon=True)
        self._thread.start()

    @contextmanager
    def call_at(self, due_at: float, callback: Callable[[], None]) -> Iterator[_Alarm]:
        """Call `callback` at `due_at` on the monotonic clock, and then repeatedly, until the `with` block ends."""
        alarm = _Alarm(callback)
        with self._schedule_changed:
            self._schedule(alarm, due_at)
        try:
            yield alarm
        finally:
            with self._schedule_changed:
                alarm.callback = None

    def fire_now(self, alarm: _Alarm) -> None:
        """Make the timer call the alarm's callback immediately, and then repeatedly."""
        with self._schedule_changed:
            self._schedule(alarm, time.monotonic())

    def _schedule(self, alarm: _Alarm, due_at: float) -> None:
        heapq.heappush(self._alarm_heap, (due_at, next(self._alarm_sequence_numbers), alarm))
        if self._alarm_heap[0][2] is alarm:
            self._schedule_changed.notify()

    def close(self) -> None:
        with self._schedule_changed:
            self._is_closed = True
            self._schedule_changed.notify()
        self._thread.join()

    def _run_timer(self) -> None:
        with self._schedule_changed:
            while not self._is_closed:
                self._call_due_alarms()
                self._schedule_changed.wait(self._seconds_until_next_alarm())

    def _call_due_alarms(self) -> None:
        """Call due alarms while holding the lock, so that no alarm is called after the block of `call_at` has ended."""
        while self._alarm_heap:
            due_at, _, alarm = self._alarm_heap[0]
            if alarm.callback is not None and due_at > time.monotonic():
                return
            heapq.heappop(self._alarm_heap)
            if alarm.callback is not None:
                alarm.callback()
                self._schedule(alarm, time.monotonic() + _INTERRUPT_INTERVAL_SECONDS)

    def _seconds_until_next_alarm(self) -> float | None:
        return self._alarm_heap[0][0] - time.monotonic() if self._alarm_heap else None
