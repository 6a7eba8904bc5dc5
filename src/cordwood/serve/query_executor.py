"""Run queries on the engine within admission, time limits and cancellation, and refuse for a while those that were killed.

The quarantine refuses killed queries, and all ad hoc queries of keys with two killed ones. For the key that sent it, a
killed query is refused with any literals. For other keys it is refused only with the same literals and values:
otherwise a caller could block a common query of all others by running it with a literal that makes the engine slow.

A query that is only suspected, because others ran beside it, counts as killed when it is suspected again. Of different
suspected queries of one key, each second one counts as a kill for the key.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from cordwood.engines.engine import CancelToken, Engine
from cordwood.engines.run import OutdatedError
from cordwood.errors import Busy, EngineUnreachable, Fault, OutOfTime, QuarantinedQuery, QueryKilled, QuerySuspected
from cordwood.observe.observation import EngineQueried, Observer, QuarantineRefused, QueryQuarantined
from cordwood.serve.active_queries import ActiveQueries
from cordwood.serve.admission import Admission, AdmissionSlot, Lane, WaitingAccounts
from cordwood.serve.cached_answers import question_digest
from cordwood.serve.jobs import Finished, Job, ResponseStream, StreamedAnswer, begin_answer, finish
from cordwood.serve.query_request import SandboxText

QUARANTINE_SECONDS: Final = 600.0
# After this many kills within the quarantine time, the ad hoc and sandbox queries of the key are refused.
MAX_KILLS_PER_KEY: Final = 2
# The maximum number of remembered queries and keys, of about 200 bytes each; the oldest are forgotten first.
_MAX_REMEMBERED_KILLS: Final = 2_000

# Matches strings and numbers, which become one placeholder each; names in double quotes do not match.
_LITERALS: Final = re.compile(r"""("(?:[^"]|"")*")|'(?:[^']|'')*'|\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b""")
_LISTS: Final = re.compile(r"\?(?:\s*,\s*\?)+")

K = TypeVar("K")


def fingerprint(sql: str) -> str:
    """Return a digest that is equal for compiled queries which differ only in literals."""
    without_literals = _LITERALS.sub(lambda match: match[1] or "?", sql)
    return blake2b(_LISTS.sub("?", without_literals).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class QueryQuarantine:
    """The quarantined queries and keys. Use it on the event loop only. `clock` returns seconds."""

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._kills_by_form: _KillTimes[tuple[str, str]] = _KillTimes()
        self._kills_by_question: _KillTimes[bytes] = _KillTimes()
        self._kills_by_key: _KillTimes[str] = _KillTimes()
        self._suspicions_by_form: _KillTimes[tuple[str, str]] = _KillTimes()
        self._suspicions_by_key: _KillTimes[str] = _KillTimes()

    def check(self, job: Job) -> None:
        """Raise QuarantinedQuery for a caller's own query if the query or its key is quarantined. Saved queries pass."""
        account, since = job.request.account, self._since()
        has_kills = self._kills_by_question.has_recent(since) or self._kills_by_key.has_recent(since)
        if not job.request.is_callers_own or not has_kills:
            return
        kills = self._kills_by_key.times(account, since)
        if len(kills) >= MAX_KILLS_PER_KEY:
            self._refuse(job, "key", kills[-MAX_KILLS_PER_KEY])
        form = (account, fingerprint(job.question.statement.sql))
        kills = self._kills_by_form.times(form, since) or self._kills_by_question.times(
            question_digest(job.question), since
        )
        if kills:
            self._refuse(job, "query", kills[-1])

    def note_kill(self, job: Job) -> None:
        """Record that the engine's process was killed because of this job."""
        if not job.request.is_callers_own:
            return
        now, form = self._clock(), fingerprint(job.question.statement.sql)
        self._kills_by_question.add(question_digest(job.question), now)
        self._kills_by_form.add((job.request.account, form), now)
        self._kills_by_key.add(job.request.account, now)
        self._observer.note(
            QueryQuarantined(endpoint=job.request.endpoint.name, key=job.request.caller.key_id, fingerprint=form)
        )

    def note_suspicion(self, job: Job) -> None:
        """Record that the engine's process was killed because of this job or one that ran beside it."""
        if not job.request.is_callers_own:
            return
        now, account = self._clock(), job.request.account
        is_repeated = self._suspicions_by_form.pop_recent(
            (account, fingerprint(job.question.statement.sql)), self._since()
        )
        key_was_suspected = self._suspicions_by_key.pop_recent(account, self._since())
        if is_repeated:
            self.note_kill(job)
            return
        self._suspicions_by_form.add((account, fingerprint(job.question.statement.sql)), now)
        if key_was_suspected:
            self._kills_by_key.add(account, now)
        else:
            self._suspicions_by_key.add(account, now)

    def count(self) -> int:
        """Return the number of queries that are quarantined now."""
        return self._kills_by_question.count(self._since())

    def _since(self) -> float:
        return self._clock() - QUARANTINE_SECONDS

    def _refuse(self, job: Job, by: str, killed_at: float) -> None:
        self._observer.note(QuarantineRefused(endpoint=job.request.endpoint.name, key=job.request.caller.key_id, by=by))
        remaining = max(1.0, killed_at - self._since())
        messages = {
            "query": "The query is refused: the engine's process had to be killed when it last ran.",
            "key": "Queries of this key's own are refused: the engine's process had to be killed with several of them.",
        }
        hint = "Change what the query does, not only its literals; saved queries are not refused."
        raise QuarantinedQuery(messages[by], hint=hint, retry_after=remaining)


class _KillTimes(Generic[K]):
    """The times of the latest kills by fingerprint or key, the last one at the end."""

    def __init__(self) -> None:
        self._times: dict[K, list[float]] = {}

    def add(self, key: K, now: float) -> None:
        self._times[key] = [*self._times.pop(key, []), now][-MAX_KILLS_PER_KEY:]
        if len(self._times) > _MAX_REMEMBERED_KILLS:
            del self._times[next(iter(self._times))]

    def times(self, key: K, since: float) -> list[float]:
        return [time for time in self._times.get(key, ()) if time > since]

    def pop_recent(self, key: K, since: float) -> bool:
        """Forget the kills of this fingerprint or key; return whether the last one is recent."""
        return any(time > since for time in self._times.pop(key, ()))

    def has_recent(self, since: float) -> bool:
        """Return whether anything was killed since a time; forget everything if not."""
        if self._times and next(reversed(self._times.values()))[-1] <= since:
            self._times.clear()
        return bool(self._times)

    def count(self, since: float) -> int:
        return sum(times[-1] > since for times in self._times.values())


T = TypeVar("T")
Work = Callable[[CancelToken], T]

# A run that takes longer counts as slow: it yields its slot if others are queued, and restarts in the slow lane.
QUICK_SECONDS = 1.0
POLL_SECONDS = 0.25
# If a cancelled run does not stop within this time, its slot is released anyway.
STOP_SECONDS = 0.3
# The engine enforces the time limit itself. If it has not stopped this much later, the run is cancelled from here.
GRACE_SECONDS = 0.1


class DemotedError(Exception):
    """The run has yielded its slot and must be restarted in the slow lane."""


class QueryExecutor:
    """Runs jobs in its own threads, under admission control."""

    def __init__(self, engine: Engine, admission: Admission, observer: Observer) -> None:
        self._engine = engine
        self._admission = admission
        self._observer = observer
        # One thread for each slot, for each lent slot, and for each cancelled run that the engine has not stopped yet.
        self._threads = ThreadPoolExecutor(admission.slots * 3, thread_name_prefix="answer")
        self._durations = Durations()
        self.active = ActiveQueries()
        self.quarantine = QueryQuarantine(observer)

    async def run_buffered(
        self, job: Job, cancel_token: CancelToken, waiting: WaitingAccounts, *, refresh: bool = False
    ) -> Finished:
        return await self._run(
            job, cancel_token, waiting, lambda stop: finish(job, self._engine, stop), refresh=refresh
        )

    async def run_streamed(self, job: Job, cancel_token: CancelToken) -> Finished | StreamedAnswer:
        """Start a job; return the complete answer if the job ends within a moment, otherwise a streamed one."""
        stream = ResponseStream(asyncio.get_running_loop())
        waiting = WaitingAccounts(job.request.account)
        running = self._run(
            job, cancel_token, waiting, lambda stop: stream.fill(job, self._engine, stop), has_begun=stream.has_begun
        )
        return await begin_answer(stream, asyncio.ensure_future(stream.mark_end(running)), cancel_token)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _run(
        self,
        job: Job,
        cancel_token: CancelToken,
        waiting: WaitingAccounts,
        work: Work[T],
        *,
        refresh: bool = False,
        has_begun: Callable[[], bool] = lambda: False,
    ) -> T:
        lane = Lane.REFRESH if refresh else self._lane(job)
        with self.active.run(job.request):
            try:
                return await self._run_in_slot(job, cancel_token, waiting, work, lane, has_begun)
            except DemotedError:
                slow = Lane.OWN_SLOW if job.request.is_callers_own else Lane.SLOW
                return await self._run_in_slot(job, cancel_token, waiting, work, slow, has_begun)

    async def _run_in_slot(
        self,
        job: Job,
        cancel_token: CancelToken,
        waiting: WaitingAccounts,
        work: Work[T],
        lane: Lane,
        has_begun: Callable[[], bool],
    ) -> T:
        async with self._admission.slot(lane, waiting, joined_lane=self._lane(job)) as slot:
            started_at = time.monotonic()
            outcome = "ok"
            try:
                return await self._run_watched(job, cancel_token, work, slot, has_begun)
            except Fault as fault:
                outcome = fault.code
                if isinstance(fault, QueryKilled):
                    self.quarantine.note_kill(job)
                elif isinstance(fault, QuerySuspected):
                    self.quarantine.note_suspicion(job)
                raise
            except DemotedError:
                outcome = "demoted"
                raise
            except OutdatedError:
                outcome = "outdated"
                raise
            except asyncio.CancelledError:
                outcome = "abandoned"
                raise
            finally:
                self._note(job, outcome, time.monotonic() - started_at)

    async def _run_watched(
        self, job: Job, cancel_token: CancelToken, work: Work[T], slot: AdmissionSlot, has_begun: Callable[[], bool]
    ) -> T:
        run_token = CancelToken()
        cancel_token.on_cancel(run_token.cancel)
        cancel_token.on_progress(run_token.progress)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work, run_token)
        try:
            await self._wait_until_done(job, running, slot, has_begun)
            if running.done():
                return running.result()
        except Fault:
            await _stop_run(running, run_token, slot)
            _raise_if_ended(running, (Busy, QueryKilled, EngineUnreachable))
            raise
        finally:
            await _stop_run(running, run_token, slot)
        _raise_if_ended(running, (QueryKilled,))
        raise DemotedError

    async def _wait_until_done(
        self, job: Job, running: "asyncio.Future[T]", slot: AdmissionSlot, has_begun: Callable[[], bool]
    ) -> None:
        """Return when the run is done or must yield its slot; raise OutOfTime at its time limit.

        A run that has sent output cannot be restarted, so it lends its slot instead of yielding it.
        """
        deadline = time.monotonic() + job.limits.seconds + GRACE_SECONDS
        pause = min(QUICK_SECONDS, job.limits.seconds + GRACE_SECONDS)
        while not (await asyncio.wait({running}, timeout=pause))[0]:
            if time.monotonic() >= deadline:
                raise OutOfTime(
                    f"The query took longer than {job.limits.seconds:g} s and was stopped.",
                    hint="Ask for a shorter time range, or for less of it.",
                )
            if slot.is_withdrawn:
                raise Busy("The answer was cancelled: others wait for its slot.", retry_after=10)
            if slot.lane < Lane.SLOW and slot.must_yield():
                if not has_begun():
                    return
                slot.lend()
            pause = min(POLL_SECONDS, max(0.0, deadline - time.monotonic()))

    def _lane(self, job: Job) -> Lane:
        seconds = self._durations.of(job.request.endpoint.revision, job.request.sandbox)
        if job.request.is_callers_own:
            if seconds is None:
                return Lane.UNKNOWN
            return Lane.OWN_QUICK if seconds < QUICK_SECONDS else Lane.OWN_SLOW
        return Lane.QUICK if seconds is None or seconds < QUICK_SECONDS else Lane.SLOW

    def _note(self, job: Job, outcome: str, seconds: float) -> None:
        self._durations.note(job.request.endpoint.revision, job.request.sandbox, seconds)
        engine = self._engine.target.name
        self._observer.note(
            EngineQueried(endpoint=job.request.endpoint.name, engine=engine, outcome=outcome, seconds=round(seconds, 6))
        )


class Durations:
    """The last duration of each query, for the last few thousand queries."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._seconds: OrderedDict[tuple[str, int], float] = OrderedDict()

    def of(self, revision: str, sandbox: SandboxText | None) -> float | None:
        return self._seconds.get((revision, hash(sandbox)))

    def note(self, revision: str, sandbox: SandboxText | None, seconds: float) -> None:
        # A hash collision is harmless: it only puts a query into the wrong lane.
        key = (revision, hash(sandbox))
        self._seconds[key] = seconds
        self._seconds.move_to_end(key)
        if len(self._seconds) > self._capacity:
            self._seconds.popitem(last=False)


async def _stop_run(running: "asyncio.Future[T]", run_token: CancelToken, slot: AdmissionSlot) -> None:
    """Cancel a run and wait until it has stopped; if that takes long, release its slot early."""
    if running.done():
        return
    running.add_done_callback(_retrieve_exception)
    run_token.cancel()
    if not (await asyncio.wait({running}, timeout=STOP_SECONDS))[0]:
        slot.release_early()
        await asyncio.wait({running})


def _raise_if_ended(running: "asyncio.Future[T]", faults: tuple[type[Fault], ...]) -> None:
    """Raise the error of a run that did not end by itself, which takes precedence over the time limit."""
    if running.done() and not running.cancelled() and isinstance(running.exception(), faults):
        running.result()


def _retrieve_exception(running: "asyncio.Future[T]") -> None:
    """Retrieve the exception of a cancelled run, so that asyncio does not log it as unhandled."""
    if running.done() and not running.cancelled():
        running.exception()
