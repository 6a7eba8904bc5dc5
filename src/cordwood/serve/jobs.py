"""Jobs for the engine, which are queries and exports, with their complete answers and receipts."""

import time
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from typing import Final

import msgspec

from cordwood.bounded_cache import bytes_of
from cordwood.engines.engine import STORED_COLUMNS, AnswerLimits, Cancel, Engine, Run, RunRequest, RunStats
from cordwood.model.datatype import Kind
from cordwood.model.endpoint import Parameter
from cordwood.serve.query_request import Position, QueryRequest
from cordwood.sql.bind import bind
from cordwood.sql.plan import fixed_plan
from cordwood.sql.stages import Question, Slot, Statement

_UNORDERED_NOTICE: Final = (
    "the answer is cut, and its rows are in no total order: add page_size= to page through all of them"
)


class Receipt(msgspec.Struct, frozen=True, dict=True):
    """The facts about an answer at the time when it was made.

    `truncated` names the limit that cut the answer, and `next` is the position where the next page begins.
    """

    rows: int
    truncated: str | None
    notices: tuple[str, ...]
    revision: str
    created_us: int
    compile_seconds: float
    engine_seconds: float
    next: Position | None = None

    @cached_property
    def timing(self) -> bytes:
        """The value of the header Server-Timing."""
        milliseconds = self.compile_seconds * 1000, self.engine_seconds * 1000
        return b"compile;dur=%.3f, engine;dur=%.3f" % milliseconds


class Finished(msgspec.Struct):
    """A complete answer.

    `body_by_coding` holds compressed bodies by content coding, each from its first request on. `headers_by_coding`
    holds the rendered HTTP headers by content coding; the empty coding is the uncompressed body.
    """

    body: bytes
    receipt: Receipt
    etag: str = ""
    size: int = 0
    body_by_coding: dict[str, bytes] = msgspec.field(default_factory=dict)
    headers_by_coding: dict[str, bytes] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.etag = blake2b(self.body, digest_size=16).hexdigest()
        self.size = len(self.body) + bytes_of(self.receipt.notices)

    def compressed(self, coding: str, compress: Callable[[bytes, str], bytes]) -> bytes:
        if coding not in self.body_by_coding:
            body = compress(self.body, coding)
            # Another thread may have compressed the body in the meantime.
            if coding not in self.body_by_coding:
                self.body_by_coding[coding] = body
                self.size += len(body)
        return self.body_by_coding[coding]


class Job(msgspec.Struct, frozen=True):
    """A question with the limits of its run. `requested_us` is the time of the request.

    `answer_bytes` is the maximum size of an answer that is held in memory.
    """

    request: QueryRequest
    question: Question
    limits: AnswerLimits
    answer_bytes: int
    requested_us: int
    compile_seconds: float


def start(job: Job, engine: Engine, cancel: Cancel) -> Run:
    """Start a run that yields chunks as soon as they are made, so that it buffers few bytes."""
    return engine.run(RunRequest(job.question, job.limits, job.request.format.encode), cancel)


def finish(job: Job, engine: Engine, cancel: Cancel) -> Finished:
    """Run the job and return the whole answer."""
    run = engine.run(RunRequest(job.question, job.limits, job.request.format.encode, job.answer_bytes), cancel)
    body = b"".join(run.chunks())
    return Finished(body, receipt(job, run.stats()))


def receipt(job: Job, stats: RunStats) -> Receipt:
    """Return the receipt of a job's answer."""
    statement = job.question.statement
    return Receipt(
        rows=stats.rows,
        truncated=f"{_limit_name(job)}={job.limits.max_rows}" if stats.truncated else None,
        notices=(*notices_of(statement), *([_UNORDERED_NOTICE] if stats.truncated and lacks_total_order(job) else [])),
        revision=job.request.endpoint.revision,
        created_us=job.requested_us,
        compile_seconds=round(job.compile_seconds, 6),
        engine_seconds=round(stats.engine_seconds, 6),
        next=_next_position(job, stats),
    )


def lacks_total_order(job: Job) -> bool:
    """Return whether the answer has no cursor for the next page because its rows are in no total order."""
    return job.request.tells_next and job.question.statement.pages_on_request


def _next_position(job: Job, stats: RunStats) -> Position | None:
    """Return the position where the next page begins, or None after the last page."""
    paging = job.question.statement.paging
    if not stats.truncated or paging is None:
        return None
    before = job.request.position
    limit = _rows_of(paging.limit, job.question) if before is None else before.remaining
    remaining = None if limit is None else limit - stats.rows
    now_us = job.requested_us if before is None else before.now_us
    last_row = stats.last_row
    if last_row is None:
        skipped = before.skip if before else _rows_of(paging.offset, job.question) or 0
        return Position(now_us, stats.rows + skipped, None, remaining)
    row_before = None if before is None else before.last_row
    if row_before is not None and (row_before.time_us, row_before.id) == (last_row.time_us, last_row.id):
        # All rows of the page have this time and id.
        last_row = msgspec.structs.replace(last_row, rows=last_row.rows + row_before.rows)
    return Position(now_us, 0, last_row, remaining)


def _rows_of(rows: int | str | None, question: Question) -> int | None:
    """Return the number of a LIMIT or an OFFSET, which may be a parameter."""
    value = question.values[rows] if isinstance(rows, str) else rows
    return value if isinstance(value, int) else None


def _limit_name(job: Job) -> str:
    return "max_rows" if job.request.page_rows is None else "page_size"


def notices_of(statement: Statement) -> tuple[str, ...]:
    """Return notices about a statement: paths that no event has, and likely mistakes."""
    return (*(f"path never seen: {path}" for path in statement.unseen_paths), *statement.notices)


# Only an upper bound: an export is cancelled when its client disconnects.
_EXPORT_SECONDS: Final = 24 * 3600.0
_ALL_ROWS: Final = 2**62

_SLOTS: Final = (
    Slot("since", Parameter("since", Kind.INT64, required=True)),
    Slot("until", Parameter("until", Kind.INT64, required=True)),
    Slot("project", Parameter("project")),
)


class Range(msgspec.Struct, frozen=True):
    """The events of a stream from `since_us` on and before `until_us`, of all projects or of one."""

    stream: str
    since_us: int
    until_us: int
    project: str | None = None


def export_job(request: QueryRequest, export_range: Range, engine: Engine, requested_us: int) -> Job:
    started_at = time.monotonic()
    statement = Statement(
        plan=fixed_plan(engine.stored_events_sql(export_range.stream)),
        slots=_SLOTS,
        sub_queries=(),
        streams=(export_range.stream,),
        column_names=tuple(column.name for column in STORED_COLUMNS),
        column_types=tuple(column.datatype for column in STORED_COLUMNS),
    )
    values = {"since": str(export_range.since_us), "until": str(export_range.until_us)}
    if export_range.project is not None:
        values["project"] = export_range.project
    question = bind(statement, values, requested_us, engine.is_regex)
    return Job(
        request,
        question,
        AnswerLimits(_ALL_ROWS, _EXPORT_SECONDS),
        _ALL_ROWS,
        requested_us,
        time.monotonic() - started_at,
    )
