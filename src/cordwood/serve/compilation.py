"""Compilation of queries: compile threads, the cache of statements, and the shapes that a caller may see.

Accounts share the compile threads fairly. A cached statement is found by its endpoint's revision, its sandbox query,
its redaction mode, its page, and the shapes on which it depends.
"""

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import ParamSpec, TypeVar

import msgspec

from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.dialects import (
    compile_logql_query,
    compile_lql_query,
    compile_saved_query,
    compile_sql_query,
    explain_lql_query,
    list_sub_queries,
    read_endpoint,
)
from cordwood.engines.engine import Engine
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import CompilerFailed
from cordwood.logql.compile import check_logql_patterns
from cordwood.lql.compile import FindRegexError, check_lql_patterns
from cordwood.model.definitions import Endpoint
from cordwood.model.event import EventShape
from cordwood.model.key import Caller
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.observe.observation import BugFound, Observer
from cordwood.serve.admission import AdmissionController, AdmissionLane, CompileSlotPolicy, ServeLimits, WaitingAccounts
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.sql.budget import (
    CompilationPreempted,
    allow_compilation_preemption,
    allow_saved_query_cpu_time,
    thread_cpu_seconds,
)
from cordwood.sql.paging import FIRST_PAGE, Page
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import are_lookups_valid
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement, Target
from cordwood.sql.sub_query_schema import SubQuerySchema

# The maximum number of different compiler errors (exception type and source line) that are logged.
MAX_LOGGED_ERRORS = 1000


class CompilerErrorLog:
    """Logs compiler errors once for each exception type and source line, so that repeats do not flood the log."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._logged_locations: set[str] = set()

    def log(self, fault: CompilerFailed) -> None:
        """Log the exception that caused `fault`, and give `fault` a hint with the incident id.

        Neither the query nor the error message is logged, because the message may quote the query.
        """
        cause = fault.__cause__
        if cause is None:
            return
        location = _error_location(cause)
        incident = f"compiler-{sha256(location.encode()).hexdigest()[:12]}"
        fault.hint = f"Rewrite the query, and report the incident {incident}."
        if location not in self._logged_locations and len(self._logged_locations) < MAX_LOGGED_ERRORS:
            self._logged_locations.add(location)
            trace = "".join([*traceback.format_tb(cause.__traceback__), type(cause).__name__])
            self._observer.record(BugFound(incident=incident, trace=trace))


def _error_location(cause: BaseException) -> str:
    frames = traceback.extract_tb(cause.__traceback__)
    last = frames[-1] if frames else None
    return f"{type(cause).__name__} {last.filename}:{last.lineno}" if last else type(cause).__name__


# Compilation is pure Python, which holds the GIL. More threads would not compile faster, and would delay the event
# loop.
COMPILE_THREAD_COUNT = 2
# A compilation that takes more CPU time than this is slow. If other compilations are queued, a slow compilation is
# stopped and starts again in the lane `OWN_SLOW`, which never occupies all threads. For SLOW_ACCOUNT_PENALTY_SECONDS,
# further compilations for the account start in that lane. The CPU time is measured for each compilation alone, because
# many short compilations never delay others for long. For comparison, the slowest query of a known client program takes
# 0.06 s.
MAX_QUICK_COMPILATION_CPU_SECONDS = 0.25
SLOW_ACCOUNT_PENALTY_SECONDS = 60.0
_MAX_SLOW_ACCOUNTS_BYTES = 2**20
# The minimum length of the queue of compilations, even if the setting `queued_queries` is smaller. The queue may be
# long, because compilations are short.
MIN_COMPILE_QUEUE_LENGTH = 64

P = ParamSpec("P")
T = TypeVar("T")


class CompilePool:
    """The threads that compile queries; accounts share them fairly."""

    def __init__(self, limits: ServeLimits, observer: Observer) -> None:
        queue_length = max(MIN_COMPILE_QUEUE_LENGTH, limits.queued_queries)
        self._admission_controller = AdmissionController(
            CompileSlotPolicy(COMPILE_THREAD_COUNT), queue_length, limits.queue_seconds, observer
        )
        self._threads = ThreadPoolExecutor(COMPILE_THREAD_COUNT, thread_name_prefix="compile")
        # For each slow account, the time until which the account counts as slow.
        self._slow_until_by_account: BoundedCache[str, float] = BoundedCache(
            _MAX_SLOW_ACCOUNTS_BYTES, _account_memory_bytes
        )

    async def compile_caller_query(
        self, waiting: WaitingAccounts, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Run `work`, which compiles a caller's own query, in a compile thread.

        Raise ServiceBusy if no thread becomes free in time.
        """
        bound_work = partial(work, *arguments, **named)
        if not all(map(self._is_slow, waiting.accounts)):
            with suppress(CompilationPreempted):
                return await self._run_measuring_cpu_time(AdmissionLane.UNKNOWN, waiting, bound_work)
        return await self._run_measuring_cpu_time(AdmissionLane.OWN_SLOW, waiting, bound_work)

    async def compile_saved_query(
        self, waiting: WaitingAccounts, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Run `work`, which compiles a saved query, in a compile thread.

        Unlike a slow compilation of a caller's own query, `work` may occupy the last free thread.
        """

        def work_with_saved_query_limit() -> T:
            with allow_saved_query_cpu_time():
                return work(*arguments, **named)

        return await self._run_in_thread(AdmissionLane.QUICK, waiting, work_with_saved_query_limit)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def _run_measuring_cpu_time(self, lane: AdmissionLane, waiting: WaitingAccounts, work: Callable[[], T]) -> T:
        """Run a compilation and measure its CPU time; if it is slow, count the accounts that wait for it as slow.

        If other compilations are queued, a slow compilation is stopped. The exception is a compilation in `OWN_SLOW`,
        the lane for slow compilations and slow accounts.
        """
        used_seconds = 0.0

        def measured_work() -> T:
            nonlocal used_seconds
            began = thread_cpu_seconds()

            def must_stop() -> bool:
                is_slow = thread_cpu_seconds() - began > MAX_QUICK_COMPILATION_CPU_SECONDS
                return is_slow and lane is not AdmissionLane.OWN_SLOW and self._admission_controller.queued_count > 0

            try:
                with allow_compilation_preemption(must_stop):
                    return work()
            finally:
                used_seconds = thread_cpu_seconds() - began

        try:
            return await self._run_in_thread(lane, waiting, measured_work)
        finally:
            if used_seconds > MAX_QUICK_COMPILATION_CPU_SECONDS:
                self._mark_accounts_slow(waiting)

    async def _run_in_thread(self, lane: AdmissionLane, waiting: WaitingAccounts, work: Callable[[], T]) -> T:
        async with self._admission_controller.hold_slot(lane, waiting):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(running)
            finally:
                # If the caller has disconnected, the slot is still held until the compile thread is free.
                if not running.done():
                    await asyncio.wait({running})
                    running.exception()

    def _is_slow(self, account: str) -> bool:
        return (self._slow_until_by_account.get(account) or 0.0) > time.monotonic()

    def _mark_accounts_slow(self, waiting: WaitingAccounts) -> None:
        for account in waiting.accounts:
            self._slow_until_by_account.put(account, time.monotonic() + SLOW_ACCOUNT_PENALTY_SECONDS)


def _account_memory_bytes(account: str, _: float) -> int:
    return estimate_memory_bytes(account)


StatementKey = tuple[str, SandboxQuery | None, RedactMode | None, Page]

_COMPILERS_BY_LANGUAGE = {
    QueryLanguage.SQL: compile_sql_query,
    QueryLanguage.LQL: compile_lql_query,
    QueryLanguage.LOGQL: compile_logql_query,
}
# The regular expressions in LQL and LogQL are checked before compilation, so that errors have a position in the query.
# The engine's own errors have none.
_REGEX_CHECK_BY_LANGUAGE = {QueryLanguage.LQL: check_lql_patterns, QueryLanguage.LOGQL: check_logql_patterns}


# The maximum bytes of cached statements, including their SQL texts. The parsed trees of endpoints have a separate
# budget of the same size.
STATEMENT_CACHE_BYTES = 16 * 2**20
# The estimated bytes for each node of an endpoint's parsed query. Each node counts twice, because two trees are cached:
# the query as parsed, and a copy that is prepared for use in sandbox queries.
_BYTES_PER_QUERY_NODE = 1_000

# If the shapes differ in a way that matters to a query, the query compiles to different statements, its variants. These
# constants are the maximum number of variants of a query, and the maximum number of versions of the shapes that are
# remembered for a variant.
MAX_STATEMENT_VARIANTS = 16
MAX_SHAPE_VERSIONS_PER_VARIANT = 1_000
_BYTES_PER_SHAPE_VERSION = 320

ShapesByStream = Mapping[str, EventShape]
ShapeVersions = tuple[tuple[int, int], ...]


class _CachedStatement(msgspec.Struct, frozen=True):
    """A compiled statement.

    `valid_shape_versions` has the versions of the streams' shapes for which the statement is known to be valid.
    """

    statement: Statement
    valid_shape_versions: set[ShapeVersions]
    size_bytes: int


class StatementCache:
    """The cache of statements. Thread-safe, but two threads may compile the same query at the same time.

    A statement depends on some names and kinds in the shapes. It is valid for every caller whose shapes agree on these
    names and kinds, so keys that are pinned to different projects can share statements. A statement remains valid when
    the shapes get new paths that it does not read.
    """

    def __init__(
        self,
        target: Target,
        shapes: Callable[[], ShapesByStream],
        find_regex_error: FindRegexError | None = None,
        max_bytes: int = STATEMENT_CACHE_BYTES,
    ) -> None:
        self._compilation_target = target
        self._read_shapes_by_stream = shapes
        self._find_regex_error = find_regex_error
        self._lock = threading.Lock()
        self._programs: BoundedCache[str, EndpointProgram] = BoundedCache(max_bytes, _program_memory_bytes)
        self._statements: BoundedCache[StatementKey, tuple[_CachedStatement, ...]] = BoundedCache(
            max_bytes, _statement_variants_memory_bytes
        )

    def find(
        self,
        endpoint: Endpoint,
        sandbox: SandboxQuery | None,
        redaction: RedactionPolicy | None = None,
        shapes: ShapesByStream | None = None,
        page: Page = FIRST_PAGE,
    ) -> Statement | None:
        """Return a cached statement that is valid for `shapes`, or None if there is none.

        `shapes` are the shapes that the caller may see, or None for all shapes.
        """
        key = statement_key(endpoint, sandbox, redaction, page)
        variants = self._statements.get(key)
        if variants is None:
            return None
        shapes = self._read_shapes_by_stream() if shapes is None else shapes
        versions = _shape_versions(variants[0].statement, shapes)
        for cached in variants:
            if versions in cached.valid_shape_versions:
                return cached.statement
        valid = _find_valid_statement(variants, redaction.visible_shapes(shapes) if redaction else shapes)
        if valid is None:
            return None
        self._add_valid_shape_versions(key, valid, versions)
        return valid.statement

    def compile_and_cache(
        self,
        endpoint: Endpoint,
        sandbox: SandboxQuery | None,
        redaction: RedactionPolicy | None = None,
        shapes: ShapesByStream | None = None,
        page: Page = FIRST_PAGE,
    ) -> Statement:
        shapes = self._read_shapes_by_stream() if shapes is None else shapes
        program = msgspec.structs.replace(self.find_or_parse_program(endpoint), page=page)
        if sandbox is None:
            statement = compile_saved_query(program, self._compilation_target, shapes, redaction)
        else:
            check = _REGEX_CHECK_BY_LANGUAGE.get(sandbox.language)
            if check is not None and self._find_regex_error is not None:
                check(sandbox.text, self._find_regex_error)
            statement = _COMPILERS_BY_LANGUAGE[sandbox.language](
                program, sandbox.text, self._compilation_target, shapes, redaction
            )
        cached = _CachedStatement(statement, {_shape_versions(statement, shapes)}, estimate_memory_bytes(statement))
        if not page.has_single_use_statement:
            self._store(statement_key(endpoint, sandbox, redaction, page), cached)
        return statement

    def _store(self, key: StatementKey, cached: _CachedStatement) -> None:
        with self._lock:
            others = [
                variant
                for variant in self._statements.get(key) or ()
                if variant.statement.shape_lookups != cached.statement.shape_lookups
            ]
            self._statements.put(key, (cached, *others[: MAX_STATEMENT_VARIANTS - 1]))

    def _add_valid_shape_versions(self, key: StatementKey, cached: _CachedStatement, versions: ShapeVersions) -> None:
        with self._lock:
            if len(cached.valid_shape_versions) >= MAX_SHAPE_VERSIONS_PER_VARIANT:
                cached.valid_shape_versions.clear()
            cached.valid_shape_versions.add(versions)
        self._statements.update_size(key)

    def find_or_parse_program(self, endpoint: Endpoint) -> EndpointProgram:
        program = self._programs.get(endpoint.revision)
        if program is None:
            program = read_endpoint(endpoint)
            self._programs.put(endpoint.revision, program)
        return program


def statement_key(
    endpoint: Endpoint, sandbox: SandboxQuery | None, redaction: RedactionPolicy | None, page: Page
) -> StatementKey:
    """Return the cache key of a statement: everything from which it is compiled, except the shapes of the streams."""
    return endpoint.revision, sandbox, redaction.mode if redaction else None, page


def _program_memory_bytes(revision: str, program: EndpointProgram) -> int:
    return estimate_memory_bytes((revision, program.endpoint)) + _BYTES_PER_QUERY_NODE * sum(
        1 for _ in program.tree.walk()
    )


def _statement_variants_memory_bytes(key: StatementKey, variants: Sequence[_CachedStatement]) -> int:
    return estimate_memory_bytes(key) + sum(
        cached.size_bytes + _BYTES_PER_SHAPE_VERSION * len(cached.valid_shape_versions) for cached in variants
    )


def _find_valid_statement(variants: Sequence[_CachedStatement], shapes: ShapesByStream) -> _CachedStatement | None:
    return next((cached for cached in variants if are_lookups_valid(cached.statement.shape_lookups, shapes)), None)


def _shape_versions(statement: Statement, shapes: ShapesByStream) -> ShapeVersions:
    return tuple(_shape_version(shapes[stream]) if stream in shapes else (0, -1) for stream in statement.streams)


def _shape_version(shape: EventShape) -> tuple[int, int]:
    return shape.version, -1 if shape.whole_shape is None else shape.whole_shape.version


class ProjectShapesView(Mapping[str, EventShape]):
    """Maps each stream to the shape of those of its events that belong to `project`.

    If `project` is None, the shapes have no paths.
    """

    def __init__(
        self,
        shapes: Mapping[str, EventShape],
        project_shapes_by_stream: Mapping[str, ProjectShapes],
        project: str | None,
    ) -> None:
        self._shapes_by_stream = shapes
        self._project_shapes_by_stream = project_shapes_by_stream
        self._project = project

    def __getitem__(self, stream: str) -> EventShape:
        stream_shape = self._shapes_by_stream[stream]
        project_shapes = self._project_shapes_by_stream.get(stream)
        return (
            EventShape(whole_shape=stream_shape)
            if project_shapes is None
            else project_shapes.shape_of_project(self._project, stream_shape)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes_by_stream)

    def __len__(self) -> int:
        return len(self._shapes_by_stream)


def visible_shapes(caller: Caller, engine: Engine) -> Mapping[str, EventShape]:
    """Return the shapes of the streams, as far as the caller may see them.

    A key without pins sees the complete shapes. A key whose only pin is a project sees the paths in the events of this
    project. A key with other pins sees no paths.
    """
    if not caller.pins:
        return engine.shapes_by_stream()
    return ProjectShapesView(engine.shapes_by_stream(), engine.project_shapes_by_stream(), pinned_project(caller))


def shapes_without_paths(engine: Engine) -> Mapping[str, EventShape]:
    return ProjectShapesView(engine.shapes_by_stream(), {}, None)


def pinned_project(caller: Caller) -> str | None:
    """Return the project that is the key's only pin, or None if the key has other pins or no pins."""
    return caller.pins["project"] if caller.pins.keys() == {"project"} else None


class RedactionsByMode:
    """The `Redaction` objects, one for each redaction mode.

    Each object is created once and kept, because it caches the names that it has classified.
    """

    def __init__(self, rules: RedactionRules) -> None:
        self._by_mode = {mode: RedactionPolicy(mode, rules) for mode in RedactMode}

    def for_request(self, request: QueryRequest) -> RedactionPolicy | None:
        """Return the redaction for a request, or None if its answer is not redacted."""
        return self.for_mode(request.endpoint.redact_mode) if request.is_redacted else None

    def for_mode(self, mode: str) -> RedactionPolicy:
        return self._by_mode[RedactMode(mode)]


class SandboxSchemaService:
    """Describes the sub-queries of endpoints, and translates LQL to SQL.

    It compiles on the calling thread, so call it in a worker thread.
    """

    def __init__(self, engine: Engine, statements: StatementCache, redactions: RedactionsByMode) -> None:
        self._engine = engine
        self._statement_cache = statements
        self._redactions_by_mode = redactions

    def describe_sub_queries(self, endpoint: Endpoint, caller: Caller) -> tuple[SubQuerySchema, ...]:
        """Return the endpoint's sub-queries, with the columns and the paths that the caller may see."""
        program = self._statement_cache.find_or_parse_program(endpoint)
        return list_sub_queries(program, self._engine.compile_target, self._visible_shapes(endpoint, caller))

    def translate_lql(self, endpoint: Endpoint, caller: Caller, lql: str) -> str:
        """Translate a query in LQL to SQL in BigQuery's dialect."""
        program = self._statement_cache.find_or_parse_program(endpoint)
        visible = self._visible_shapes(endpoint, caller)
        # To be run, a query is compiled with the kinds of values in the events of all projects (`whole_shape`). For the
        # translation of LQL, these kinds are left out. The resulting SQL has the same meaning, and does not reveal
        # whether events of other projects contain arrays.
        projects_only = {stream: msgspec.structs.replace(shape, whole_shape=None) for stream, shape in visible.items()}
        return explain_lql_query(program, lql, self._engine.compile_target, projects_only)

    def _visible_shapes(self, endpoint: Endpoint, caller: Caller) -> Mapping[str, EventShape]:
        shapes = visible_shapes(caller, self._engine)
        if not (endpoint.redact_pii or caller.redact_always):
            return shapes
        return self._redactions_by_mode.for_mode(endpoint.redact_mode).visible_shapes(shapes)
