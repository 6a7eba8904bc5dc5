"""Runs of queries on the engine: single flight, admission, time limits, lists of runs, and the query quarantine.

A query is *killed* if the engine's process had to be killed because of it. The quarantine refuses killed queries. It
also refuses all ad hoc and sandbox queries of a key with two killed queries. The key that sent a killed query may not
send it again, even with other literals. For other keys, the query is refused only with the same literals and parameter
values. Otherwise a caller could block a query that others use, by running it with a literal that makes the engine slow.

If several queries ran when the process had to be killed, each of them is only *suspected*. A query that is suspected
again counts as killed. If a key sends different suspected queries, every second one counts as a killed query of the
key.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from typing import Final, Generic, TypeVar

import msgspec

from cordwood.engines.engine import CancelToken, Engine, QueryProgress, ReadProgress
from cordwood.engines.local_run import OutdatedStatementError
from cordwood.errors import (
    EngineKilledDuringQuery,
    EngineUnreachable,
    Fault,
    QuarantinedQuery,
    QueryKilled,
    QueryOutOfTime,
    ServiceBusy,
)
from cordwood.model.key import Caller
from cordwood.observe.observation import EngineQueried, Observer, QuarantinedQueryRefused, QueryQuarantined
from cordwood.serve.admission import AdmissionController, AdmissionLane, AdmissionSlot, WaitingAccounts
from cordwood.serve.cached_answers import bound_statement_digest
from cordwood.serve.jobs import (
    CompleteAnswer,
    QueryJob,
    ResponseStream,
    StreamedAnswer,
    complete_or_stream_answer,
    run_job,
)
from cordwood.serve.query_request import QueryRequest, SandboxQuery

T = TypeVar("T")


class _SharedRun(msgspec.Struct, Generic[T]):
    task: asyncio.Task[T]
    cancel_token: CancelToken
    waiting_accounts: WaitingAccounts
    caller_count: int = 0


class SingleFlight(Generic[T]):
    """Shares each run between all callers that request the same key.

    A run is cancelled when the last caller that waits for it leaves.
    """

    def __init__(self) -> None:
        self._runs_by_key: dict[Hashable, _SharedRun[T]] = {}

    def is_running(self, key: Hashable) -> bool:
        return key in self._runs_by_key

    def progress(self, key: Hashable) -> QueryProgress | None:
        """Return the progress of the run with this key, or None if there is no such run or its progress is unknown."""
        shared = self._runs_by_key.get(key)
        return None if shared is None else shared.cancel_token.query_progress()

    async def join_or_start_run(
        self, key: Hashable, account: str, start_run: Callable[[CancelToken, WaitingAccounts], Awaitable[T]]
    ) -> T:
        """Return the result of the run with this key; start the run unless it is already running.

        For a refresh, `account` is `BACKGROUND_ACCOUNT`.
        """
        shared = self._runs_by_key.get(key)
        if shared is None:
            shared = self._start_shared_run(key, account, start_run)
        else:
            shared.waiting_accounts.join(account)
        shared.caller_count += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.caller_count -= 1
            shared.waiting_accounts.leave(account)
            if shared.caller_count == 0 and not shared.task.done():
                self._cancel_run(key, shared)

    def _start_shared_run(
        self, key: Hashable, account: str, start_run: Callable[[CancelToken, WaitingAccounts], Awaitable[T]]
    ) -> _SharedRun[T]:
        cancel_token, accounts = CancelToken(), WaitingAccounts(account)
        shared = _SharedRun(asyncio.ensure_future(start_run(cancel_token, accounts)), cancel_token, accounts)
        self._runs_by_key[key] = shared
        shared.task.add_done_callback(lambda _: self._forget_run(key, shared))
        return shared

    def _forget_run(self, key: Hashable, shared: _SharedRun[T]) -> None:
        if self._runs_by_key.get(key) is shared:
            del self._runs_by_key[key]
        if not shared.task.cancelled():
            # Read the exception. If all callers have left, nobody else reads it, and asyncio would log it as unhandled.
            shared.task.exception()

    def _cancel_run(self, key: Hashable, shared: _SharedRun[T]) -> None:
        del self._runs_by_key[key]
        shared.cancel_token.cancel()
        shared.task.cancel()


class RunningQuery(msgspec.Struct, eq=False):
    """A request whose query is queued or runs on the engine.

    Requests with the same question share one run, and therefore have the same progress. `streamed_answer` is None
    unless the answer is streamed.
    """

    request_id: str
    endpoint_name: str
    caller: Caller
    started_at: float
    read_progress: ReadProgress = lambda: None
    streamed_answer: StreamedAnswer | None = None

    @property
    def progress(self) -> QueryProgress:
        return self.read_progress() or QueryProgress()

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.started_at


class RunningQueries:
    """The list of requests that wait for an answer. Not thread-safe: use it on the event loop."""

    def __init__(self) -> None:
        self._queries_by_object_id: dict[int, RunningQuery] = {}

    def queries_of_caller(self, caller: Caller | None) -> list[RunningQuery]:
        """Return the requests of one caller, or of all callers if `caller` is None, the longest-running first.

        Callers are equal only if their pins and scopes are equal, because different signed keys may have the same id.
        """
        return [query for query in self._queries_by_object_id.values() if caller is None or query.caller == caller]

    @contextmanager
    def track(self, request: QueryRequest, request_id: str) -> Iterator[RunningQuery]:
        """List a request as running during the `with` block.

        If its answer is streamed, the request stays in the list until the answer ends.
        """
        query = RunningQuery(request_id, request.endpoint.name, request.caller, time.monotonic())
        self._queries_by_object_id[id(query)] = query
        try:
            yield query
        finally:
            remove = self._create_remover(query)
            if query.streamed_answer is None:
                remove()
            else:
                query.streamed_answer.add_end_callback(remove)

    def _create_remover(self, query: RunningQuery) -> Callable[[], None]:
        def remove_query() -> None:
            self._queries_by_object_id.pop(id(query), None)

        return remove_query


# At most MAX_LISTED_SLOW_RUNS runs are listed as the slowest of the last SLOW_RUNS_PERIOD_SECONDS.
SLOW_RUNS_PERIOD_SECONDS = 3600.0
MAX_LISTED_SLOW_RUNS = 20
_MAX_LISTED_QUERY_CHARACTERS = 2000


class EngineRun(msgspec.Struct):
    """One run of a query, as the lists of running and slowest queries show it.

    `duration_seconds` includes the time in the queue. `outcome` is empty until the run ends.
    """

    endpoint_name: str
    key_id: str
    language: str
    query_text: str
    started_at: float
    duration_seconds: float = 0.0
    outcome: str = ""


class ServiceLoad(msgspec.Struct, frozen=True):
    """The load of the service: slots, queued queries, current and slowest runs, and size of the answer cache."""

    slot_count: int
    queued_count: int
    current_runs: list[EngineRun]
    slowest_runs: list[EngineRun]
    cache_bytes: int
    cache_budget_bytes: int


class EngineRunTracker:
    """Lists of the queries that run on the engine now, and of the slowest queries of the last hour.

    Not thread-safe: use it on the event loop.
    """

    def __init__(self) -> None:
        self._current_runs_by_object_id: dict[int, EngineRun] = {}
        self._slow_runs: list[EngineRun] = []

    def current_runs(self) -> list[EngineRun]:
        """Return the current runs, the longest first, each with its duration until now."""
        now = time.time()
        for run in self._current_runs_by_object_id.values():
            run.duration_seconds = now - run.started_at
        return sorted(self._current_runs_by_object_id.values(), key=lambda run: run.started_at)

    def slowest_runs(self) -> list[EngineRun]:
        self._drop_old_slow_runs()
        return sorted(self._slow_runs, key=lambda run: -run.duration_seconds)

    @contextmanager
    def track(self, request: QueryRequest) -> Iterator[None]:
        """List a run during the `with` block. Its duration includes the time in the queue."""
        run = _new_run(request)
        started_at = time.monotonic()
        self._current_runs_by_object_id[id(run)] = run
        try:
            yield
            run.outcome = "ok"
        except Fault as fault:
            run.outcome = fault.code
            raise
        except asyncio.CancelledError:
            run.outcome = "abandoned"
            raise
        finally:
            del self._current_runs_by_object_id[id(run)]
            run.duration_seconds = time.monotonic() - started_at
            self._record_if_slow(run)

    def _record_if_slow(self, run: EngineRun) -> None:
        if len(self._slow_runs) >= MAX_LISTED_SLOW_RUNS:
            self._drop_old_slow_runs()
        if len(self._slow_runs) < MAX_LISTED_SLOW_RUNS:
            self._slow_runs.append(run)
            return
        quickest = min(range(MAX_LISTED_SLOW_RUNS), key=lambda index: self._slow_runs[index].duration_seconds)
        if self._slow_runs[quickest].duration_seconds < run.duration_seconds:
            self._slow_runs[quickest] = run

    def _drop_old_slow_runs(self) -> None:
        since = time.time() - SLOW_RUNS_PERIOD_SECONDS
        self._slow_runs = [run for run in self._slow_runs if run.started_at >= since]


def _new_run(request: QueryRequest) -> EngineRun:
    language, text = (request.sandbox.language.value, request.sandbox.written_text) if request.sandbox else ("", "")
    return EngineRun(
        request.endpoint.name, request.caller.key_id, language, text[:_MAX_LISTED_QUERY_CHARACTERS], time.time()
    )


QUERY_QUARANTINE_SECONDS: Final = 600.0
# After this many killed queries within QUERY_QUARANTINE_SECONDS, all ad hoc and sandbox queries of a key are refused.
MAX_ENGINE_KILLS_PER_KEY: Final = 2
# The maximum number of queries, and of keys, whose kills are remembered. Each takes about 200 bytes; the oldest are
# forgotten first.
_MAX_REMEMBERED_KILLS: Final = 2_000

# Matches the literals that are replaced by a placeholder: strings and numbers. It also matches names in double quotes,
# as group 1, because text and numbers inside such a name must stay unchanged.
_LITERAL_OR_QUOTED_NAME_REGEX: Final = re.compile(
    r"""("(?:[^"]|"")*")|'(?:[^']|'')*'|\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b"""
)
_PLACEHOLDER_LIST_REGEX: Final = re.compile(r"\?(?:\s*,\s*\?)+")

K = TypeVar("K")


def sql_fingerprint(sql: str) -> str:
    """Return a digest that is equal for queries which differ only in literals."""
    without_literals = _LITERAL_OR_QUOTED_NAME_REGEX.sub(lambda match: match[1] or "?", sql)
    return blake2b(
        _PLACEHOLDER_LIST_REGEX.sub("?", without_literals).encode("utf-8", "surrogatepass"), digest_size=8
    ).hexdigest()


class QueryQuarantine:
    """Refuses queries that recently caused the engine's process to be killed, and keys that sent several of them.

    Use it on the event loop only. `clock` returns monotonic seconds.
    """

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._kills_by_account_and_fingerprint: _RecentKillTimes[tuple[str, str]] = _RecentKillTimes()
        self._kills_by_bound_statement: _RecentKillTimes[bytes] = _RecentKillTimes()
        self._kills_by_account: _RecentKillTimes[str] = _RecentKillTimes()
        self._suspicions_by_account_and_fingerprint: _RecentKillTimes[tuple[str, str]] = _RecentKillTimes()
        self._suspicions_by_account: _RecentKillTimes[str] = _RecentKillTimes()

    def require_not_quarantined(self, job: QueryJob) -> None:
        """Raise QuarantinedQuery if the job's query or its key is quarantined. Saved queries are never refused."""
        account, since = job.request.account, self._quarantine_window_start()
        has_kills = self._kills_by_bound_statement.has_kill_since(since) or self._kills_by_account.has_kill_since(since)
        if not job.request.is_caller_written or not has_kills:
            return
        kills = self._kills_by_account.recent_times(account, since)
        if len(kills) >= MAX_ENGINE_KILLS_PER_KEY:
            self._raise_quarantined(job, "key", kills[-MAX_ENGINE_KILLS_PER_KEY])
        form = (account, sql_fingerprint(job.bound_statement.statement.sql))
        kills = self._kills_by_account_and_fingerprint.recent_times(
            form, since
        ) or self._kills_by_bound_statement.recent_times(bound_statement_digest(job.bound_statement), since)
        if kills:
            self._raise_quarantined(job, "query", kills[-1])

    def record_engine_kill(self, job: QueryJob) -> None:
        """Record that the engine's process was killed because of this job, unless the job runs a saved query."""
        if not job.request.is_caller_written:
            return
        now, form = self._clock(), sql_fingerprint(job.bound_statement.statement.sql)
        self._kills_by_bound_statement.add(bound_statement_digest(job.bound_statement), now)
        self._kills_by_account_and_fingerprint.add((job.request.account, form), now)
        self._kills_by_account.add(job.request.account, now)
        self._observer.record(
            QueryQuarantined(endpoint=job.request.endpoint.name, key=job.request.caller.key_id, fingerprint=form)
        )

    def record_possible_engine_kill(self, job: QueryJob) -> None:
        """Record that the engine's process was killed because of this job or another job that ran at the same time.

        A job that runs a saved query is ignored.
        """
        if not job.request.is_caller_written:
            return
        now, account = self._clock(), job.request.account
        is_repeated = self._suspicions_by_account_and_fingerprint.remove_times_and_check_recency(
            (account, sql_fingerprint(job.bound_statement.statement.sql)), self._quarantine_window_start()
        )
        key_was_suspected = self._suspicions_by_account.remove_times_and_check_recency(
            account, self._quarantine_window_start()
        )
        if is_repeated:
            self.record_engine_kill(job)
            return
        self._suspicions_by_account_and_fingerprint.add(
            (account, sql_fingerprint(job.bound_statement.statement.sql)), now
        )
        if key_was_suspected:
            self._kills_by_account.add(account, now)
        else:
            self._suspicions_by_account.add(account, now)

    def quarantined_query_count(self) -> int:
        """Return the number of queries that are quarantined now."""
        return self._kills_by_bound_statement.count_recent_keys(self._quarantine_window_start())

    def _quarantine_window_start(self) -> float:
        return self._clock() - QUERY_QUARANTINE_SECONDS

    def _raise_quarantined(self, job: QueryJob, by: str, killed_at: float) -> None:
        self._observer.record(
            QuarantinedQueryRefused(endpoint=job.request.endpoint.name, key=job.request.caller.key_id, by=by)
        )
        remaining = max(1.0, killed_at - self._quarantine_window_start())
        messages = {
            "query": "The query is refused: the engine's process had to be killed when it last ran.",
            "key": "Queries of this key's own are refused: the engine's process had to be killed with several of them.",
        }
        hint = "Change what the query does, not only its literals; saved queries are not refused."
        raise QuarantinedQuery(messages[by], hint=hint, retry_after=remaining)


class _RecentKillTimes(Generic[K]):
    """The latest times at which queries were killed or suspected, by form of query, question or account.

    The entry with the most recent time comes last.
    """

    def __init__(self) -> None:
        self._kill_times_by_key: dict[K, list[float]] = {}

    def add(self, key: K, now: float) -> None:
        self._kill_times_by_key[key] = [*self._kill_times_by_key.pop(key, []), now][-MAX_ENGINE_KILLS_PER_KEY:]
        if len(self._kill_times_by_key) > _MAX_REMEMBERED_KILLS:
            del self._kill_times_by_key[next(iter(self._kill_times_by_key))]

    def recent_times(self, key: K, since: float) -> list[float]:
        return [time for time in self._kill_times_by_key.get(key, ()) if time > since]

    def remove_times_and_check_recency(self, key: K, since: float) -> bool:
        """Remove the times of one entry; return whether any of them was after `since`."""
        return any(time > since for time in self._kill_times_by_key.pop(key, ()))

    def has_kill_since(self, since: float) -> bool:
        """Return whether any time of any entry is after `since`. If none is, remove all entries."""
        if self._kill_times_by_key and next(reversed(self._kill_times_by_key.values()))[-1] <= since:
            self._kill_times_by_key.clear()
        return bool(self._kill_times_by_key)

    def count_recent_keys(self, since: float) -> int:
        return sum(times[-1] > since for times in self._kill_times_by_key.values())


CancellableWork = Callable[[CancelToken], T]

# A run that takes longer than this counts as slow. If other runs are queued, a slow run yields its slot, and is
# restarted later in the lane of slow runs.
MAX_QUICK_RUN_SECONDS = 1.0
RUN_POLL_SECONDS = 0.25
# If a cancelled run does not stop within this time, its slot is released anyway.
MAX_STOP_WAIT_SECONDS = 0.3
# The engine itself stops a run at the run's time limit. If a run continues for this many seconds after its time limit,
# the executor cancels the run.
TIME_LIMIT_GRACE_SECONDS = 0.1


# Two queries have the same form if they differ only in literals. Only this many characters at the beginning of each
# query are compared.
_MAX_FINGERPRINTED_CHARACTERS: Final = 4_096


class RunYieldedError(Exception):
    """The error of a run that has yielded its slot and must be restarted."""


class QueryExecutor:
    """Runs jobs in a thread pool that it owns, under admission control."""

    def __init__(self, engine: Engine, admission: AdmissionController, observer: Observer) -> None:
        self._engine = engine
        self._admission_controller = admission
        self._observer = observer
        # Three threads for each slot: one for the run that holds the slot, one for a run that continues although its
        # slot was lent to another run, and one for a cancelled run that the engine has not stopped yet.
        self._threads = ThreadPoolExecutor(admission.slot_count * 3, thread_name_prefix="answer")
        self._durations = QueryDurations()
        self.engine_runs = EngineRunTracker()
        self.quarantine = QueryQuarantine(observer)

    async def run_buffered(
        self, job: QueryJob, cancel_token: CancelToken, waiting: WaitingAccounts, *, refresh: bool = False
    ) -> CompleteAnswer:
        return await self._run_restarting_if_yielded(
            job, cancel_token, waiting, lambda stop: run_job(job, self._engine, stop), refresh=refresh
        )

    async def run_streamed(self, job: QueryJob, cancel_token: CancelToken) -> CompleteAnswer | StreamedAnswer:
        """Start a job; return a complete answer if it is short and ready soon, otherwise a streamed answer."""
        stream = ResponseStream(asyncio.get_running_loop())
        waiting = WaitingAccounts(job.request.account)
        running = self._run_restarting_if_yielded(
            job, cancel_token, waiting, lambda stop: stream.run_job(job, self._engine, stop), has_begun=stream.has_begun
        )
        return await complete_or_stream_answer(
            stream, asyncio.ensure_future(stream.put_end_marker_after_run(running)), cancel_token
        )

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _run_restarting_if_yielded(
        self,
        job: QueryJob,
        cancel_token: CancelToken,
        waiting: WaitingAccounts,
        work: CancellableWork[T],
        *,
        refresh: bool = False,
        has_begun: Callable[[], bool] = lambda: False,
    ) -> T:
        lane = AdmissionLane.REFRESH if refresh else self._lane_of_job(job)
        with self.engine_runs.track(job.request):
            with suppress(RunYieldedError):
                return await self._run_in_slot(job, cancel_token, waiting, work, lane, has_begun)
            if self._durations.was_last_run_quick(job):
                # The last run of this query was quick, so other runs have probably delayed this run. Therefore try the
                # same lane again, before the run must wait for the few slots of slow runs.
                with suppress(RunYieldedError):
                    return await self._run_in_slot(job, cancel_token, waiting, work, lane, has_begun)
            slow = AdmissionLane.OWN_SLOW if job.request.is_caller_written else AdmissionLane.SLOW
            return await self._run_in_slot(job, cancel_token, waiting, work, slow, has_begun)

    async def _run_in_slot(
        self,
        job: QueryJob,
        cancel_token: CancelToken,
        waiting: WaitingAccounts,
        work: CancellableWork[T],
        lane: AdmissionLane,
        has_begun: Callable[[], bool],
    ) -> T:
        async with self._admission_controller.hold_slot(lane, waiting, joined_lane=self._lane_of_job(job)) as slot:
            started_at = time.monotonic()
            outcome = "ok"
            try:
                return await self._run_with_limits(job, cancel_token, work, slot, has_begun)
            except Fault as fault:
                outcome = fault.code
                raise
            except RunYieldedError:
                outcome = "demoted"
                raise
            except OutdatedStatementError:
                outcome = "outdated"
                raise
            except asyncio.CancelledError:
                outcome = "abandoned"
                raise
            finally:
                self._record_run(job, outcome, time.monotonic() - started_at)

    async def _run_with_limits(
        self,
        job: QueryJob,
        cancel_token: CancelToken,
        work: CancellableWork[T],
        slot: AdmissionSlot,
        has_begun: Callable[[], bool],
    ) -> T:
        run_token = CancelToken()
        cancel_token.on_cancel(run_token.cancel)
        cancel_token.set_progress_reader(run_token.query_progress)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work, run_token)
        # Report a kill in a callback, because the quarantine must record it even if no caller waits for the answer any
        # more.
        running.add_done_callback(partial(self._report_engine_kill, job))
        try:
            await self._wait_until_done_or_yielding(job, running, slot, has_begun)
            if running.done():
                return running.result()
        except Fault:
            await _stop_run(running, run_token, slot)
            _raise_if_failed_with(running, (ServiceBusy, QueryKilled, EngineUnreachable))
            raise
        finally:
            await _stop_run(running, run_token, slot)
        _raise_if_failed_with(running, (QueryKilled,))
        raise RunYieldedError

    def _report_engine_kill(self, job: QueryJob, ended: "asyncio.Future[T]") -> None:
        """If the engine's process was killed because of this run, or possibly because of it, tell the quarantine.

        `ended` is the run after its end. Reading its exception also prevents asyncio from logging the exception as
        unhandled if the run was cancelled.
        """
        problem = None if ended.cancelled() else ended.exception()
        if isinstance(problem, QueryKilled):
            self.quarantine.record_engine_kill(job)
        elif isinstance(problem, EngineKilledDuringQuery):
            self.quarantine.record_possible_engine_kill(job)

    async def _wait_until_done_or_yielding(
        self, job: QueryJob, running: "asyncio.Future[T]", slot: AdmissionSlot, has_begun: Callable[[], bool]
    ) -> None:
        """Return when the run is done or must yield its slot; raise QueryOutOfTime at the run's time limit.

        A run that has sent output cannot be restarted. Therefore it does not yield its slot, but lends the slot to
        another run and continues.
        """
        deadline = time.monotonic() + job.limits.timeout_seconds + TIME_LIMIT_GRACE_SECONDS
        pause = min(MAX_QUICK_RUN_SECONDS, job.limits.timeout_seconds + TIME_LIMIT_GRACE_SECONDS)
        while not (await asyncio.wait({running}, timeout=pause))[0]:
            if time.monotonic() >= deadline:
                raise QueryOutOfTime(
                    f"The query took longer than {job.limits.timeout_seconds:g} s and was stopped.",
                    hint="Ask for a shorter time range, or for less of it.",
                )
            if slot.is_withdrawn:
                raise ServiceBusy("The answer was cancelled: others wait for its slot.", retry_after=10)
            if slot.lane < AdmissionLane.SLOW and slot.must_yield():
                if not has_begun():
                    return
                slot.lend_to_queued_request()
            pause = min(RUN_POLL_SECONDS, max(0.0, deadline - time.monotonic()))

    def _lane_of_job(self, job: QueryJob) -> AdmissionLane:
        seconds = self._durations.last_seconds(job)
        if job.request.is_caller_written:
            if seconds is None:
                return AdmissionLane.UNKNOWN
            return AdmissionLane.OWN_QUICK if seconds < MAX_QUICK_RUN_SECONDS else AdmissionLane.OWN_SLOW
        return AdmissionLane.QUICK if seconds is None or seconds < MAX_QUICK_RUN_SECONDS else AdmissionLane.SLOW

    def _record_run(self, job: QueryJob, outcome: str, seconds: float) -> None:
        if outcome != "demoted" or not self._durations.was_last_run_quick(job):
            self._durations.record_duration(job, seconds)
        engine = self._engine.compile_target.name
        self._observer.record(
            EngineQueried(endpoint=job.request.endpoint.name, engine=engine, outcome=outcome, seconds=round(seconds, 6))
        )


class QueryDurations:
    """The last duration of each query and, for the queries that callers wrote, of each form of query.

    Queries of one form differ only in literals. At most `capacity` durations are kept. A hash collision is harmless: it
    only puts a query into the wrong lane.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._last_seconds_by_key: OrderedDict[tuple[str, int], float] = OrderedDict()

    def last_seconds(self, job: QueryJob) -> float | None:
        return self._last_seconds_by_key.get(_query_key(job))

    def was_last_run_quick(self, job: QueryJob) -> bool:
        """Return whether the last run of the query was quick.

        If the query has not run before, use the last query of the same form and account instead.
        """
        seconds = self.last_seconds(job)
        if seconds is None and job.request.sandbox is not None:
            seconds = self._last_seconds_by_key.get(_fingerprint_key(job, job.request.sandbox))
        return seconds is not None and seconds < MAX_QUICK_RUN_SECONDS

    def record_duration(self, job: QueryJob, seconds: float) -> None:
        keys = [_query_key(job)]
        if job.request.sandbox is not None:
            keys.append(_fingerprint_key(job, job.request.sandbox))
        for key in keys:
            self._last_seconds_by_key[key] = seconds
            self._last_seconds_by_key.move_to_end(key)
        while len(self._last_seconds_by_key) > self._capacity:
            self._last_seconds_by_key.popitem(last=False)


def _query_key(job: QueryJob) -> tuple[str, int]:
    return job.request.endpoint.revision, hash(job.request.sandbox)


def _fingerprint_key(job: QueryJob, sandbox: SandboxQuery) -> tuple[str, int]:
    form = sql_fingerprint(sandbox.written_text[:_MAX_FINGERPRINTED_CHARACTERS])
    return job.request.account, hash((job.request.endpoint.revision, form))


async def _stop_run(running: "asyncio.Future[T]", run_token: CancelToken, slot: AdmissionSlot) -> None:
    """Cancel a run and wait until it has stopped.

    If it has not stopped after `MAX_STOP_WAIT_SECONDS`, release its slot, and continue to wait.
    """
    if running.done():
        return
    run_token.cancel()
    if not (await asyncio.wait({running}, timeout=MAX_STOP_WAIT_SECONDS))[0]:
        slot.release_early()
        await asyncio.wait({running})


def _raise_if_failed_with(running: "asyncio.Future[T]", faults: tuple[type[Fault], ...]) -> None:
    """Raise the error of the run if the run has ended with an error of one of the types in `faults`.

    Such an error takes precedence over a time limit or a restart of the run.
    """
    if running.done() and not running.cancelled() and isinstance(running.exception(), faults):
        running.result()
