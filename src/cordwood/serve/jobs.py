"""Jobs for the engine (queries and exports), with their receipts and their complete or streamed answers.

The chunks of a streamed answer pass through a bounded queue from the engine's thread to the HTTP response.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import closing
from functools import cached_property
from hashlib import blake2b
from typing import Final

import msgspec

from cordwood.bounded_cache import estimate_memory_bytes
from cordwood.engines.engine import (
    STORED_EVENT_COLUMNS,
    AnswerLimits,
    Cancellation,
    CancelToken,
    Engine,
    QueryRun,
    QueryRunRequest,
    QueryRunStats,
)
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter
from cordwood.serve.query_request import PagePosition, QueryRequest
from cordwood.sql.bind import bind_parameters
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import BoundStatement, ParameterSlot, Statement

_UNORDERED_NOTICE: Final = (
    "the answer is cut, and its rows are in no total order: add page_size= to page through all of them"
)


class AnswerReceipt(msgspec.Struct, frozen=True, dict=True):
    """Facts about an answer, recorded when the answer was made.

    `truncated_by` names the limit at which the answer was cut off, or is None. `next_position` is the position where
    the next page begins.
    """

    row_count: int
    truncated_by: str | None
    notices: tuple[str, ...]
    endpoint_revision: str
    created_us: int
    compile_seconds: float
    engine_seconds: float
    next_position: PagePosition | None = None

    @cached_property
    def server_timing(self) -> bytes:
        """The value of the header Server-Timing: the times that the compilation and the engine took."""
        milliseconds = self.compile_seconds * 1000, self.engine_seconds * 1000
        return b"compile;dur=%.3f, engine;dur=%.3f" % milliseconds


class CompleteAnswer(msgspec.Struct):
    """An answer whose whole body is in memory.

    `body_by_coding` has the compressed bodies by content coding (such as gzip). Each body is compressed when it is
    first requested. `headers_by_coding` has the rendered HTTP headers by content coding, with an empty name for the
    uncompressed body.
    """

    body: bytes
    receipt: AnswerReceipt
    etag: str = ""
    size_bytes: int = 0
    body_by_coding: dict[str, bytes] = msgspec.field(default_factory=dict)
    headers_by_coding: dict[str, bytes] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.etag = blake2b(self.body, digest_size=16).hexdigest()
        self.size_bytes = len(self.body) + estimate_memory_bytes(self.receipt.notices)

    def compressed_body(self, coding: str, compress: Callable[[bytes, str], bytes]) -> bytes:
        if coding not in self.body_by_coding:
            body = compress(self.body, coding)
            # Another thread may have compressed the body in the meantime.
            if coding not in self.body_by_coding:
                self.body_by_coding[coding] = body
                self.size_bytes += len(body)
        return self.body_by_coding[coding]


class QueryJob(msgspec.Struct, frozen=True):
    """A query to run on the engine: a statement with bound values, its request and its limits.

    `max_answer_bytes` is the maximum size of an answer that is held in memory. `requested_us` is the time of the
    request.
    """

    request: QueryRequest
    bound_statement: BoundStatement
    limits: AnswerLimits
    max_answer_bytes: int
    requested_us: int
    compile_seconds: float


def _start_streaming_run(job: QueryJob, engine: Engine, cancel: Cancellation) -> QueryRun:
    """Start a run that yields each chunk as soon as it is encoded, so that the engine buffers few bytes."""
    return engine.run_query(QueryRunRequest(job.bound_statement, job.limits, job.request.format.encode), cancel)


def run_job(job: QueryJob, engine: Engine, cancel: Cancellation) -> CompleteAnswer:
    """Run the job and return the whole answer."""
    run = engine.run_query(
        QueryRunRequest(job.bound_statement, job.limits, job.request.format.encode, job.max_answer_bytes), cancel
    )
    body = b"".join(run.answer_chunks())
    return CompleteAnswer(body, _create_receipt(job, run.stats()))


def _create_receipt(job: QueryJob, stats: QueryRunStats) -> AnswerReceipt:
    """Return the receipt for the answer to a job."""
    statement = job.bound_statement.statement
    return AnswerReceipt(
        row_count=stats.row_count,
        truncated_by=f"{_row_limit_name(job)}={job.limits.max_rows}" if stats.is_truncated else None,
        notices=(
            *statement_notices(statement),
            *([_UNORDERED_NOTICE] if stats.is_truncated and lacks_total_order(job) else []),
        ),
        endpoint_revision=job.request.endpoint.revision,
        created_us=job.requested_us,
        compile_seconds=round(job.compile_seconds, 6),
        engine_seconds=round(stats.engine_seconds, 6),
        next_position=_next_position(job, stats),
    )


def lacks_total_order(job: QueryJob) -> bool:
    """Return whether a cut-off answer to the job would have no cursor, because its rows are not in a total order."""
    return job.request.returns_next_cursor and job.bound_statement.statement.pages_on_request


def _next_position(job: QueryJob, stats: QueryRunStats) -> PagePosition | None:
    """Return the position where the next page begins, or None if there is no next page."""
    paging = job.bound_statement.statement.paging
    if not stats.is_truncated or paging is None:
        return None
    before = job.request.position
    limit = _limit_or_offset_value(paging.limit, job.bound_statement) if before is None else before.remaining_rows
    remaining = None if limit is None else limit - stats.row_count
    now_us = job.requested_us if before is None else before.as_of_us
    last_row = stats.last_row
    if last_row is None:
        skipped = before.skipped_rows if before else _limit_or_offset_value(paging.offset, job.bound_statement) or 0
        return PagePosition(now_us, stats.row_count + skipped, None, remaining)
    row_before = None if before is None else before.last_row
    if row_before is not None and (row_before.time_us, row_before.id) == (last_row.time_us, last_row.id):
        # All rows of this page have the same time and id as the last row of the previous page. A position counts the
        # rows that have the time and id of its last row. Therefore add the counts of both pages.
        last_row = msgspec.structs.replace(last_row, tied_row_count=last_row.tied_row_count + row_before.tied_row_count)
    return PagePosition(now_us, 0, last_row, remaining)


def _limit_or_offset_value(rows: int | str | None, question: BoundStatement) -> int | None:
    """Return the number of rows in a LIMIT or an OFFSET.

    `rows` is this number, the name of a parameter that contains it, or None.
    """
    value = question.values[rows] if isinstance(rows, str) else rows
    return value if isinstance(value, int) else None


def _row_limit_name(job: QueryJob) -> str:
    return "max_rows" if job.request.page_size is None else "page_size"


def statement_notices(statement: Statement) -> tuple[str, ...]:
    """Return the notices about a statement: paths that no event has, and likely mistakes in the query."""
    return (*(f"path never seen: {path}" for path in statement.unseen_paths), *statement.notices)


# The time limit of an export. It is only an upper bound, because an export is cancelled when its client disconnects.
_MAX_EXPORT_SECONDS: Final = 24 * 3600.0
_UNLIMITED_ROWS_OR_BYTES: Final = 2**62

_EXPORT_PARAMETER_SLOTS: Final = (
    ParameterSlot("since", Parameter("since", Kind.INT64, required=True)),
    ParameterSlot("until", Parameter("until", Kind.INT64, required=True)),
    ParameterSlot("project", Parameter("project")),
)


class ExportRange(msgspec.Struct, frozen=True):
    """The events to export: those of one stream in a range of time, of all projects or of one project.

    `since_us` is the first time of the range, and `until_us` is the time after its end.
    """

    stream: str
    since_us: int
    until_us: int
    project: str | None = None


def create_export_job(request: QueryRequest, export_range: ExportRange, engine: Engine, requested_us: int) -> QueryJob:
    started_at = time.monotonic()
    statement = Statement(
        plan=plan_without_placeholders(engine.stored_events_sql(export_range.stream)),
        slots=_EXPORT_PARAMETER_SLOTS,
        sub_queries=(),
        streams=(export_range.stream,),
        column_names=tuple(column.name for column in STORED_EVENT_COLUMNS),
        column_types=tuple(column.datatype for column in STORED_EVENT_COLUMNS),
    )
    values = {"since": str(export_range.since_us), "until": str(export_range.until_us)}
    if export_range.project is not None:
        values["project"] = export_range.project
    question = bind_parameters(statement, values, requested_us, engine.regex_error)
    return QueryJob(
        request,
        question,
        AnswerLimits(_UNLIMITED_ROWS_OR_BYTES, _MAX_EXPORT_SECONDS),
        _UNLIMITED_ROWS_OR_BYTES,
        requested_us,
        time.monotonic() - started_at,
    )


# If a whole answer arrives within these limits, it is sent as a complete answer, with its receipt in the headers.
# Otherwise the answer is streamed.
MAX_ANSWER_BUFFERING_SECONDS = 0.05
MAX_BUFFERED_ANSWER_BYTES = 256 * 1024
MAX_QUEUED_CHUNKS = 8


class RunAbandonedError(Exception):
    """The error that ends a run whose client has stopped reading the response."""


class ResponseStream:
    """A queue of chunks from the engine's thread to the event loop. A full queue blocks the engine's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED_CHUNKS)
        self._pending_put: Future[None] | None = None
        self._has_begun = False
        self._is_closed = False

    def has_begun(self) -> bool:
        return self._has_begun

    def run_job(self, job: QueryJob, engine: Engine, cancel: CancelToken) -> AnswerReceipt:
        """Run the job in the engine's thread, and put the chunks of its answer into the queue.

        If the run is cancelled, stop waiting for a client that does not read the queue.
        """
        cancel.on_cancel(self._cancel_pending_put)
        run = _start_streaming_run(job, engine, cancel)
        with closing(run.answer_chunks()) as chunks:
            for chunk in chunks:
                self._pending_put = asyncio.run_coroutine_threadsafe(self._put(chunk, cancel), self._loop)
                if cancel.is_cancelled:
                    self._pending_put.cancel()
                try:
                    self._pending_put.result()
                except CancelledError:
                    raise RunAbandonedError from None
        return _create_receipt(job, run.stats())

    def _cancel_pending_put(self) -> None:
        if self._pending_put is not None:
            self._pending_put.cancel()

    async def put_end_marker_after_run(self, run_task: Awaitable[AnswerReceipt]) -> AnswerReceipt:
        """Wait for the end of the run, and then put the end mark into the queue, even if the run has failed."""
        try:
            return await run_task
        finally:
            if not self._is_closed:
                await self._chunks.put(None)

    async def next_chunk(self) -> bytes | None:
        return await self._chunks.get()

    async def read_first_chunks(self) -> tuple[list[bytes], bool]:
        """Return the first chunks of the response, and whether they are the whole response.

        Stop reading at `MAX_BUFFERED_ANSWER_BYTES`, or `MAX_ANSWER_BUFFERING_SECONDS` after the first chunk.
        """
        chunks: list[bytes] = []
        first_chunk = await self._chunks.get()
        if first_chunk is None:
            return chunks, True
        chunks.append(first_chunk)
        try:
            async with asyncio.timeout(MAX_ANSWER_BUFFERING_SECONDS):
                return chunks, await self._collect_buffered_chunks(chunks)
        except TimeoutError:
            return chunks, False

    async def _collect_buffered_chunks(self, chunks: list[bytes]) -> bool:
        gathered_bytes = len(chunks[0])
        while gathered_bytes < MAX_BUFFERED_ANSWER_BYTES:
            chunk = await self._chunks.get()
            if chunk is None:
                return True
            chunks.append(chunk)
            gathered_bytes += len(chunk)
        return False

    def close(self) -> None:
        """Discard the queued chunks, and unblock the engine's thread."""
        self._is_closed = True
        while not self._chunks.empty():
            self._chunks.get_nowait()

    async def _put(self, chunk: bytes, cancel: CancelToken) -> None:
        """Put a chunk into the queue, or raise RunAbandonedError if the run was cancelled or the stream closed.

        The chunks of a cancelled run must be dropped, because the run may be restarted.
        """
        if self._is_closed or cancel.is_cancelled:
            raise RunAbandonedError
        self._has_begun = True
        await self._chunks.put(chunk)
        if self._is_closed:
            raise RunAbandonedError


class StreamedAnswer:
    """An answer that is sent while its run continues. `receipt` is set when the last chunk has been read."""

    def __init__(
        self,
        head: list[bytes],
        stream: ResponseStream,
        run_task: "asyncio.Task[AnswerReceipt]",
        cancel_token: CancelToken,
    ) -> None:
        self._first_chunks = head
        self._response_stream = stream
        self._run_task = run_task
        self._cancel_token = cancel_token
        self.receipt: AnswerReceipt | None = None

    def add_end_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the run has ended."""
        self._run_task.add_done_callback(lambda _: callback())

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks. Closing the generator early cancels the run."""
        try:
            for head_chunk in self._first_chunks:
                yield head_chunk
            while (chunk := await self._response_stream.next_chunk()) is not None:
                yield chunk
            self.receipt = await self._run_task
        finally:
            if not self._run_task.done():
                _abandon_run(self._response_stream, self._run_task, self._cancel_token)


async def complete_or_stream_answer(
    stream: ResponseStream, run_task: "asyncio.Task[AnswerReceipt]", cancel_token: CancelToken
) -> "CompleteAnswer | StreamedAnswer":
    """Return a complete answer if it is short and arrives soon, otherwise a streamed answer.

    The limits are `MAX_BUFFERED_ANSWER_BYTES` and `MAX_ANSWER_BUFFERING_SECONDS`.
    """
    try:
        chunks, is_complete = await stream.read_first_chunks()
        if is_complete:
            return CompleteAnswer(b"".join(chunks), await run_task)
    except asyncio.CancelledError:
        _abandon_run(stream, run_task, cancel_token)
        raise
    return StreamedAnswer(chunks, stream, run_task, cancel_token)


def _abandon_run(stream: ResponseStream, run_task: "asyncio.Task[AnswerReceipt]", cancel_token: CancelToken) -> None:
    stream.close()
    cancel_token.cancel()
    run_task.cancel()
