"""The query service: compile a request, bind its values, and answer it from the cache or by a run on the engine."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TypeVar

import msgspec

from cordwood.bounded_cache import memoize_short_texts
from cordwood.catalog.catalog import Catalog
from cordwood.engines.engine import AnswerLimits, CancelToken, Engine, StreamStats
from cordwood.engines.local_run import OutdatedStatementError
from cordwood.errors import COMPILE_FAULTS, BadEndpointFile, CompilerFailed, EngineUnreachable, Fault, ServiceBusy
from cordwood.model.datatype import Datatype
from cordwood.model.definitions import Endpoint, TextParameterKind
from cordwood.model.event import EventShape
from cordwood.model.key import Caller
from cordwood.model.redaction import DEFAULT_REDACTION_RULES, RedactionRules, RedactMode
from cordwood.model.timestamps import datetime_from_micros
from cordwood.observe.observation import Observer
from cordwood.serve.admission import (
    BACKGROUND_ACCOUNT,
    AdmissionController,
    QuerySlotPolicy,
    RateLimiter,
    RequestAllowance,
    ServeLimits,
    WaitingAccounts,
)
from cordwood.serve.cached_answers import (
    MICROSECONDS_PER_SECOND,
    AnswerCache,
    AnswerRefresher,
    CachedAnswer,
    CacheKeyIndex,
    age_us,
    cache_key,
    is_expired,
    is_stale,
    request_digest,
)
from cordwood.serve.compilation import (
    CompilePool,
    CompilerErrorLog,
    RedactionsByMode,
    SandboxSchemaService,
    StatementCache,
    shapes_without_paths,
    statement_key,
    visible_shapes,
)
from cordwood.serve.explained_faults import explain_raised_faults
from cordwood.serve.jobs import (
    CompleteAnswer,
    ExportRange,
    QueryJob,
    StreamedAnswer,
    create_export_job,
    lacks_total_order,
)
from cordwood.serve.paging import CursorCodec, OrderedRunHistory
from cordwood.serve.query_executor import QueryExecutor, RunningQueries, RunningQuery, ServiceLoad, SingleFlight
from cordwood.serve.query_request import PagePosition, QueryRequest, SandboxQuery
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import create_ad_hoc_endpoint
from cordwood.sql.paging import FIRST_PAGE, Page
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import BoundStatement, Statement
from cordwood.sql.sub_query_schema import SubQuerySchema

# Limits on one page of a followed query. The size is limited, because each page is held in memory. The time is limited,
# because the runs for all followed queries share the few slots for refreshes.
MAX_FEED_PAGE_BYTES = 4 * 2**20
MAX_FEED_PAGE_SECONDS = 10.0

# The engine checks whether a text is a valid regular expression. The result is cached only for texts of at most this
# length.
_MAX_CACHED_REGEX_CHARACTERS = 256

T = TypeVar("T")

# The inputs of a compilation: endpoint, sandbox query, redaction, shapes of the streams, and page.
_CompilationInputs = tuple[Endpoint, SandboxQuery | None, RedactionPolicy | None, Mapping[str, EventShape], Page]


class CacheOutcome(StrEnum):
    """How the cache was used for an answer, as the response headers report it.

    - HIT: the answer comes from the cache.
    - STALE: the answer comes from the cache, and the attempt to refresh it has failed.
    - MISS: the query was run, and its answer is stored in the cache.
    - COLLAPSED: the answer comes from a run that equal requests share.
    - REQUESTED: the query was run because the caller bypassed the cache.
    - UNCACHED: the query was run, and its answer is not stored in the cache.
    """

    HIT = "hit"
    STALE = "stale"
    MISS = "miss"
    COLLAPSED = "collapsed"
    BYPASS_REQUESTED = "requested"
    UNCACHED = "uncached"


class Answer(msgspec.Struct, frozen=True):
    """The answer to one request, complete or streamed, with its age and how the cache was used for it."""

    body: CompleteAnswer | StreamedAnswer
    cache_outcome: CacheOutcome
    age_seconds: float = 0.0

    @property
    def complete_answer(self) -> CompleteAnswer:
        """The body as a complete answer. Raises TypeError for a streamed answer; cached answers are always complete."""
        if isinstance(self.body, StreamedAnswer):
            raise TypeError
        return self.body


class QueryServiceDependencies(msgspec.Struct, frozen=True):
    """The objects that `QueryService` works with."""

    catalog: Catalog
    engine: Engine
    cache: AnswerCache
    observer: Observer
    redaction: RedactionRules = DEFAULT_REDACTION_RULES
    cursor_codec: CursorCodec = msgspec.field(default_factory=lambda: CursorCodec(os.urandom(32)))


class QueryService:
    """The query service: answers each request from the cache or by a run on the engine.

    `clock_us` returns the wall-clock time in microseconds since 1970.
    """

    def __init__(
        self, dependencies: QueryServiceDependencies, limits: ServeLimits, clock_us: Callable[[], int]
    ) -> None:
        engine, observer = dependencies.engine, dependencies.observer
        self._engine = engine
        self._answer_cache = dependencies.cache
        self._serve_limits = limits
        self._clock_us = clock_us
        self.cursor_codec = dependencies.cursor_codec
        self._redactions_by_mode = RedactionsByMode(dependencies.redaction)
        self._statement_cache = StatementCache(
            engine.compile_target, engine.shapes_by_stream, engine.regex_error, limits.compile_cache_bytes
        )
        slots = QuerySlotPolicy(limits.slot_count())
        self._admission_controller = AdmissionController(slots, limits.queued_queries, limits.queue_seconds, observer)
        self._executor = QueryExecutor(engine, self._admission_controller, observer)
        self._sandbox_schema = SandboxSchemaService(engine, self._statement_cache, self._redactions_by_mode)
        self._shared_runs: SingleFlight[CompleteAnswer] = SingleFlight()
        self._running_queries = RunningQueries()
        self._answer_refresher = AnswerRefresher(
            dependencies.cache, dependencies.catalog, observer, clock_us, self._refresh_cached_answer
        )
        self._rate_limiter = RateLimiter(limits.key_requests_per_second, limits.key_concurrent_queries, time.monotonic)
        self._compiler_errors = CompilerErrorLog(observer)
        self._compile_pool = CompilePool(limits, observer)
        self._shared_compilations: SingleFlight[Statement] = SingleFlight()
        self._find_regex_error = memoize_short_texts(_MAX_CACHED_REGEX_CHARACTERS, max_entries=4096)(engine.regex_error)
        self._cache_key_index = CacheKeyIndex()
        self._ordered_run_history = OrderedRunHistory()

    def charge_request(self, caller: Caller, account: str = "") -> RequestAllowance | None:
        """Count a request against the rate limit of its account; raise RequestRateExceeded if the limit is reached.

        Without `account`, the request is counted against the limit of the caller's key.
        """
        return self._rate_limiter.charge_request(caller, account or caller.key_id)

    def cache_lookup_digest(self, request: QueryRequest) -> bytes | None:
        """Return the digest to pass to `cached_answer`, or None if the request must not be answered from the cache."""
        return self._request_digest(request) if _may_be_cached(request) and not request.bypasses_cache else None

    def cached_answer(self, digest: bytes) -> Answer | None:
        """Return the cached answer to the request with this digest, or None if the request must be compiled first."""
        now_us = self._clock_us()
        key = self._cache_key_index.find(digest, now_us)
        return None if key is None else self._find_cached_answer(key, now_us)

    async def create_ad_hoc_endpoint(self, text: str, streams: Collection[str], account: str) -> Endpoint:
        """Return a temporary endpoint for an SQL query over whole streams; raise QueryFault if the query is refused."""
        return await self._compile_pool.compile_caller_query(
            WaitingAccounts(account), create_ad_hoc_endpoint, text, streams
        )

    async def endpoint_columns(self, endpoint: Endpoint, caller: Caller | None) -> list[tuple[str, Datatype | None]]:
        """Return the columns of the endpoint's own query, with the types that the compiler can infer.

        Without a caller, only columns that the query names are returned, not the columns that `*` takes from events.
        Columns whose names redaction hides are never returned. The list is empty if the endpoint cannot be compiled
        with the current streams and shapes.
        """
        redaction = self._redactions_by_mode.for_mode(endpoint.redact_mode) if endpoint.redact_pii else None
        try:
            shapes = shapes_without_paths(self._engine) if caller is None else visible_shapes(caller, self._engine)
            account, pin_items = ("anonymous", None) if caller is None else (caller.key_id, caller.sorted_pins)
            statement = await self._find_or_compile_statement(
                (endpoint, None, redaction, shapes, FIRST_PAGE), account, pin_items, is_own=False
            )
        except (*COMPILE_FAULTS, BadEndpointFile):
            return []
        columns = list(zip(statement.column_names, statement.column_types, strict=True))
        return columns[: statement.answer_column_count]

    def shapes_visible_to_caller(self, caller: Caller) -> Mapping[str, EventShape]:
        """Return the shapes of the streams, as far as the caller may see them.

        For a key whose answers are always redacted, the shapes are redacted too.
        """
        shapes = visible_shapes(caller, self._engine)
        return (
            self._redactions_by_mode.for_mode(RedactMode.REPLACE).visible_shapes(shapes)
            if caller.redact_always
            else shapes
        )

    async def stream_stats(self) -> Mapping[str, StreamStats]:
        """Return the row count and the time range of each stream.

        The engine is called in a thread, because it may be remote.
        """
        return await asyncio.to_thread(self._engine.stream_stats)

    @property
    def engine_name(self) -> str:
        return self._engine.compile_target.name

    async def estimated_bytes_by_stream(self) -> Mapping[str, int]:
        """Return the approximate stored bytes by stream."""
        return await asyncio.to_thread(self._engine.stored_bytes_by_stream)

    @property
    def queue_stalled_seconds(self) -> float:
        """The number of seconds for which the queue has been stalled, or 0 if it is not stalled.

        The queue is stalled if a query was refused because it got no slot in time, and since then no slot has been
        granted or released.
        """
        return self._admission_controller.queue_stalled_seconds

    def quarantined_query_count(self) -> int:
        """Return the number of queries that are refused because the engine's process was killed when they ran."""
        return self._executor.quarantine.quarantined_query_count()

    def current_load(self) -> ServiceLoad:
        """Return the load: running and slowest queries, the length of the queue, and the size of the answer cache."""
        runs = self._executor.engine_runs
        cache = self._answer_cache
        return ServiceLoad(
            self._admission_controller.slot_count,
            self._admission_controller.queued_count,
            runs.current_runs(),
            runs.slowest_runs(),
            cache.size_bytes(),
            cache.budget_bytes(),
        )

    async def describe_sub_queries(
        self, endpoint: Endpoint, caller: Caller, account: str
    ) -> tuple[SubQuerySchema, ...]:
        """Return the sub-queries that a sandbox query of this caller may read, with their columns."""
        return await self._compile_pool.compile_saved_query(
            WaitingAccounts(account), self._sandbox_schema.describe_sub_queries, endpoint, caller
        )

    async def translate_lql(self, endpoint: Endpoint, caller: Caller, lql: str, account: str) -> str:
        """Translate a query in LQL to SQL."""
        return await self._compile_pool.compile_caller_query(
            WaitingAccounts(account), self._sandbox_schema.translate_lql, endpoint, caller, lql
        )

    def running_queries(self, caller: Caller | None) -> list[RunningQuery]:
        """Return the requests that wait for an answer: those of `caller`, or all requests if `caller` is None."""
        return self._running_queries.queries_of_caller(caller)

    async def answer(self, request: QueryRequest, request_id: str = "") -> Answer:
        """Return the answer from the cache or the engine. Cancel this coroutine when the caller disconnects."""
        with (
            self._rate_limiter.count_running_query(request.account),
            explain_raised_faults(request),
            self._running_queries.track(request, request_id) as running,
        ):
            return await self._answer_with_retries(request, running)

    async def _answer_with_retries(self, request: QueryRequest, running: RunningQuery) -> Answer:
        return await _retry_while_statement_outdated(partial(self._answer_once, request, running))

    async def _answer_once(self, request: QueryRequest, running: RunningQuery) -> Answer:
        """Answer the request; raise OutdatedStatementError if its statement became outdated during the run."""
        job = await self._create_job(request)
        self._executor.quarantine.require_not_quarantined(job)
        key = cache_key(request, job.bound_statement)
        self._index_cache_key(job, key)
        cached = None if request.bypasses_cache else self._find_cached_answer(key, job.requested_us)
        if cached is not None:
            return cached
        if request.format.is_streamable and not request.endpoint.cache_seconds and not request.is_paging_requested:
            return await self._run_streamed(job, running)
        running.read_progress = partial(self._shared_runs.progress, key)
        return await self._join_or_start_run(request, key, job)

    async def _join_or_start_run(self, request: QueryRequest, key: bytes, job: QueryJob) -> Answer:
        outcome = self._cache_outcome(request, key)
        start = partial(self._run_and_cache, key, job)
        finished = await self._shared_runs.join_or_start_run(key, request.account, start)
        return Answer(finished, outcome, self._age_seconds(finished))

    async def export_events(self, request: QueryRequest, export_range: ExportRange, request_id: str = "") -> Answer:
        """Stream the stored events of a time range. The answer is not cached."""
        job = create_export_job(request, export_range, self._engine, self._clock_us())
        with self._running_queries.track(request, request_id) as running:
            return await self._run_streamed(job, running)

    async def _run_streamed(self, job: QueryJob, running: RunningQuery) -> Answer:
        cancel_token = CancelToken()
        running.read_progress = cancel_token.query_progress
        body = await self._executor.run_streamed(job, cancel_token)
        if isinstance(body, CompleteAnswer):
            body = await self._rerun_in_order_if_truncated(
                job, body, cancel_token, WaitingAccounts(job.request.account)
            )
        running.streamed_answer = body if isinstance(body, StreamedAnswer) else None
        return Answer(body, CacheOutcome.UNCACHED)

    async def compile_followed_query(self, request: QueryRequest) -> Statement:
        """Compile a query whose rows are streamed as events arrive; raise a Fault if the query cannot be followed."""
        with explain_raised_faults(request):
            return await self._statement_for_request(request)

    async def run_feed_page(self, request: QueryRequest) -> CompleteAnswer:
        """Return one page of the rows of a followed query.

        The query runs with the priority of a refresh, because no caller waits for a complete answer.
        """
        with explain_raised_faults(request):
            return await _retry_while_statement_outdated(partial(self._run_feed_page_once, request))

    async def _run_feed_page_once(self, request: QueryRequest) -> CompleteAnswer:
        job = await self._create_job(request)
        self._executor.quarantine.require_not_quarantined(job)
        return await self._executor.run_buffered(job, CancelToken(), WaitingAccounts(request.account), refresh=True)

    async def answer_in_background(self, request: QueryRequest, as_of_us: int | None = None) -> CompleteAnswer:
        """Return an answer that the service itself needs, from the cache or from a run with the priority of a refresh.

        `as_of_us` replaces the current time in the query; such an answer is not cached.
        """
        with explain_raised_faults(request):
            return await _retry_while_statement_outdated(partial(self._answer_in_background_once, request, as_of_us))

    async def _answer_in_background_once(self, request: QueryRequest, as_of_us: int | None) -> CompleteAnswer:
        job = await self._create_job(request, as_of_us)
        self._executor.quarantine.require_not_quarantined(job)
        if as_of_us is not None:
            return await self._executor.run_buffered(
                job, CancelToken(), WaitingAccounts(BACKGROUND_ACCOUNT), refresh=True
            )
        key = cache_key(request, job.bound_statement)
        self._index_cache_key(job, key)
        cached = self._find_cached_answer(key, job.requested_us)
        if cached is not None:
            return cached.complete_answer
        return await self._shared_runs.join_or_start_run(
            key, BACKGROUND_ACCOUNT, partial(self._run_and_cache, key, job, refresh=True)
        )

    def newest_receipt_us(self) -> int | None:
        """Return the receive time of the newest event, or None if the engine cannot follow queries."""
        return self._engine.newest_receipt_us()

    def feed_digest(self, request: QueryRequest) -> bytes:
        """Return a digest of everything on which the rows of a followed query depend."""
        return self._request_digest(request)

    async def run_refreshes(self) -> None:
        """Refresh cached answers before they expire, until this coroutine is cancelled."""
        await self._answer_refresher.run()

    def start_due_refreshes(self) -> list["asyncio.Task[None]"]:
        """Start the refreshes that are due now, and return their tasks. `run_refreshes` does this repeatedly."""
        return self._answer_refresher.start_due_refreshes()

    async def close(self) -> None:
        """Stop refreshes and wait for running queries. Call it after the last request."""
        await self._answer_refresher.close()
        await asyncio.to_thread(self._executor.close)
        self._compile_pool.close()

    def _find_cached_answer(self, key: bytes, now_us: int) -> Answer | None:
        entry = self._answer_cache.get(key)
        if not isinstance(entry, CachedAnswer):
            return None
        if is_expired(entry, now_us):
            self._answer_cache.drop(key)
            return None
        entry.last_requested_us = now_us
        outcome = CacheOutcome.STALE if is_stale(entry, now_us) else CacheOutcome.HIT
        return Answer(entry.answer, outcome, age_us(entry, now_us) / MICROSECONDS_PER_SECOND)

    async def _create_job(self, request: QueryRequest, as_of_us: int | None = None) -> QueryJob:
        started_at = time.monotonic()
        statement = await self._statement_for_request(request)
        now_us = self._clock_us() if as_of_us is None else as_of_us
        question = await self._bind_statement(statement, request, now_us)
        seconds = request.endpoint.timeout_seconds or self._serve_limits.query_seconds
        if request.is_feed_page:
            seconds = min(seconds, MAX_FEED_PAGE_SECONDS)
        limits = AnswerLimits(request.max_rows, seconds)
        answer_bytes = MAX_FEED_PAGE_BYTES if request.is_feed_page else self._serve_limits.answer_bytes
        compile_seconds = time.monotonic() - started_at
        return QueryJob(request, question, limits, answer_bytes, now_us, compile_seconds)

    async def _statement_for_request(self, request: QueryRequest) -> Statement:
        redaction = self._redactions_by_mode.for_request(request)
        shapes = visible_shapes(request.caller, self._engine)
        inputs = request.endpoint, request.sandbox, redaction, shapes, request.page
        return await self._find_or_compile_statement(
            inputs, request.account, request.sorted_pins, is_own=request.is_caller_written
        )

    async def _bind_statement(self, statement: Statement, request: QueryRequest, now_us: int) -> BoundStatement:
        """Bind the values of a request to the slots of its statement.

        If a parameter is a regular expression, the values are bound in a thread, because the engine is called to
        validate the expression.
        """
        values = request.parameters
        if request.position is not None:
            now_us = request.position.as_of_us
            values = {**values, **_page_boundary_values(statement, request.position)}
        if any(
            slot.parameter is not None and slot.parameter.kind is TextParameterKind.REGEX for slot in statement.slots
        ):
            return await asyncio.to_thread(bind_parameters, statement, values, now_us, self._find_regex_error)
        return bind_parameters(statement, values, now_us, self._find_regex_error)

    async def _find_or_compile_statement(
        self, inputs: _CompilationInputs, account: str, pin_items: Hashable, *, is_own: bool
    ) -> Statement:
        """Return the statement that is compiled from `inputs`.

        Concurrent requests for the same statement share one compilation.
        """
        endpoint, sandbox, redaction, _, page = inputs
        key = statement_key(endpoint, sandbox, redaction, page), pin_items
        statement = self._statement_cache.find(*inputs)
        if statement is None and self._shared_compilations.is_running(key):
            await self._join_or_start_compilation(key, inputs, account, is_own=is_own)
            # This request has waited for the compilation of another request, which may have begun before the newest
            # events arrived. The caller may use paths in these events. Therefore find the statement again, which checks
            # that it is valid for the current shapes.
            statement = self._statement_cache.find(*inputs)
        return statement or await self._join_or_start_compilation(key, inputs, account, is_own=is_own)

    async def _join_or_start_compilation(
        self, key: Hashable, inputs: _CompilationInputs, account: str, *, is_own: bool
    ) -> Statement:
        run_in_pool = self._compile_pool.compile_caller_query if is_own else self._compile_pool.compile_saved_query
        try:
            return await self._shared_compilations.join_or_start_run(
                key, account, lambda _, waiting: run_in_pool(waiting, self._statement_cache.compile_and_cache, *inputs)
            )
        except CompilerFailed as fault:
            self._compiler_errors.log(fault)
            raise

    async def _run_and_cache(
        self, key: bytes, job: QueryJob, cancel_token: CancelToken, waiting: WaitingAccounts, *, refresh: bool = False
    ) -> CompleteAnswer:
        finished = await self._run_buffered(job, cancel_token, waiting, refresh=refresh)
        if _may_be_cached(job.request):
            self._cache_answer(CachedAnswer(key, job.request, finished, last_requested_us=job.requested_us))
        return finished

    async def _run_buffered(
        self, job: QueryJob, cancel_token: CancelToken, waiting: WaitingAccounts, *, refresh: bool
    ) -> CompleteAnswer:
        """Run the job and return the complete answer.

        If the answer is cut off at the row limit, its rows are put in a total order if possible, so that a next page
        can be requested.
        """
        seconds = self._ordered_run_history.ordered_first_run_timeout_seconds(job) if lacks_total_order(job) else None
        if seconds is not None:
            ordered = await self._try_totally_ordered_run(job, seconds, cancel_token, waiting, refresh=refresh)
            if ordered is not None:
                return ordered
        finished = await self._executor.run_buffered(job, cancel_token, waiting, refresh=refresh)
        return await self._rerun_in_order_if_truncated(job, finished, cancel_token, waiting, refresh=refresh)

    async def _rerun_in_order_if_truncated(
        self,
        job: QueryJob,
        finished: CompleteAnswer,
        cancel_token: CancelToken,
        waiting: WaitingAccounts,
        *,
        refresh: bool = False,
    ) -> CompleteAnswer:
        """Run the query again in a total order if its answer was cut off and its rows have no total order.

        The ordered answer has a cursor for a next page. If the second run fails, return the first answer, whose receipt
        has a notice that the rows are in no total order.
        """
        receipt = finished.receipt
        if receipt.truncated_by is None or not lacks_total_order(job):
            return finished
        seconds = self._ordered_run_history.ordered_rerun_timeout_seconds(job, receipt.engine_seconds)
        ordered = (
            None
            if seconds is None
            else await self._try_totally_ordered_run(job, seconds, cancel_token, waiting, refresh=refresh)
        )
        if ordered is None:
            return finished
        ordered.receipt = msgspec.structs.replace(
            ordered.receipt,
            compile_seconds=receipt.compile_seconds + ordered.receipt.compile_seconds,
            engine_seconds=receipt.engine_seconds + ordered.receipt.engine_seconds,
        )
        return ordered

    async def _try_totally_ordered_run(
        self, job: QueryJob, seconds: float, cancel_token: CancelToken, waiting: WaitingAccounts, *, refresh: bool
    ) -> CompleteAnswer | None:
        """Run the job with its rows in a total order, for at most `seconds`; return None if the run fails."""
        try:
            ordered = await self._create_job(
                msgspec.structs.replace(job.request, is_paging_requested=True), job.requested_us
            )
            ordered = msgspec.structs.replace(ordered, limits=AnswerLimits(job.limits.max_rows, seconds))
            self._executor.quarantine.require_not_quarantined(ordered)
            finished = await self._executor.run_buffered(ordered, cancel_token, waiting, refresh=refresh)
        except (ServiceBusy, EngineUnreachable):
            return None
        except Fault:
            self._ordered_run_history.record_run(job, None)
            return None
        if finished.receipt.truncated_by is None:
            self._ordered_run_history.forget_run(job)
        else:
            self._ordered_run_history.record_run(job, finished.receipt.engine_seconds)
        return finished

    async def _refresh_cached_answer(self, request: QueryRequest, entry: CachedAnswer) -> None:
        await _retry_while_statement_outdated(partial(self._refresh_cached_answer_once, request, entry))

    async def _refresh_cached_answer_once(self, request: QueryRequest, entry: CachedAnswer) -> None:
        job = await self._create_job(request)
        key = cache_key(request, job.bound_statement)
        await self._shared_runs.join_or_start_run(
            key, BACKGROUND_ACCOUNT, partial(self._run_and_cache, key, job, refresh=True)
        )
        self._index_cache_key(job, key)
        if key != entry.key:
            # The request now has another cache key, because it compiles to another statement. Drop the entry with the
            # old key, so that it is not found any more.
            self._answer_cache.drop(entry.key)
        refreshed = self._answer_cache.peek(key)
        if isinstance(refreshed, CachedAnswer):
            refreshed.last_requested_us = entry.last_requested_us

    def _cache_answer(self, entry: CachedAnswer) -> None:
        self._answer_cache.put(entry.key, entry)
        self._answer_refresher.schedule_refresh(entry)

    def _request_digest(self, request: QueryRequest) -> bytes:
        redaction = self._redactions_by_mode.for_request(request)
        return request_digest(request, statement_key(request.endpoint, request.sandbox, redaction, request.page))

    def _index_cache_key(self, job: QueryJob, key: bytes) -> None:
        lifetime_seconds = job.request.endpoint.cache_seconds
        if _may_be_cached(job.request):
            until_us = job.requested_us + int(lifetime_seconds * MICROSECONDS_PER_SECOND)
            self._cache_key_index.add(self._request_digest(job.request), key, until_us)

    def _cache_outcome(self, request: QueryRequest, key: bytes) -> CacheOutcome:
        if self._shared_runs.is_running(key):
            return CacheOutcome.COLLAPSED
        if not _may_be_cached(request):
            return CacheOutcome.UNCACHED
        return CacheOutcome.BYPASS_REQUESTED if request.bypasses_cache else CacheOutcome.MISS

    def _age_seconds(self, finished: CompleteAnswer) -> float:
        return max(0, self._clock_us() - finished.receipt.created_us) / MICROSECONDS_PER_SECOND


def _may_be_cached(request: QueryRequest) -> bool:
    """Return whether the answer to the request may be stored in the cache.

    A page after the first is not cached, because callers usually request it only once.
    """
    return bool(request.endpoint.cache_seconds) and request.position is None


def _page_boundary_values(statement: Statement, position: PagePosition) -> Mapping[str, str]:
    """Return the time and id of the last row of the previous page, as values of the statement's page parameters."""
    if statement.paging is None or position.last_row is None:
        return {}
    time, id_ = statement.paging.boundary_parameters
    return {time: datetime_from_micros(position.last_row.time_us).isoformat(), id_: position.last_row.id}


async def _retry_while_statement_outdated(attempt: Callable[[], Awaitable[T]]) -> T:
    """Call `attempt` again each time it raises OutdatedStatementError; return the result of the call that succeeds."""
    while True:
        with suppress(OutdatedStatementError):
            return await attempt()
