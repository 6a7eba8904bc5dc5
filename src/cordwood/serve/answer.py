"""An answer's journey: find, compile, bind, look up, run, keep."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TypeVar

import msgspec

from cordwood.bounded_cache import remember_short
from cordwood.cache.cache import AnswerCache
from cordwood.catalog.catalog import Catalog
from cordwood.engines.engine import AnswerLimits, Engine, StreamFacts
from cordwood.engines.halt import Halt
from cordwood.engines.run import OutdatedError
from cordwood.errors import NOT_COMPILED, CompilerBroke
from cordwood.lql.offered import SubQuery
from cordwood.model.caller import Caller
from cordwood.model.datatype import Datatype
from cordwood.model.endpoint import Endpoint
from cordwood.model.parameter import TextKind
from cordwood.model.redaction import SHIPPED_RULES, RedactionRules, RedactMode
from cordwood.model.shape import Shape
from cordwood.observe.observer import Observer
from cordwood.serve.ask import Ask, SandboxText
from cordwood.serve.compiling import Compiling
from cordwood.serve.conduct import Conductor
from cordwood.serve.doing import Load
from cordwood.serve.export import Range, export_job
from cordwood.serve.fair_queue import SERVICE, Askers
from cordwood.serve.finished import Finished
from cordwood.serve.flight import Flights
from cordwood.serve.freshness import SECOND_US, Entry, age_us, is_expired, is_stale
from cordwood.serve.gate import Gate, QueryPlaces
from cordwood.serve.identity import identity
from cordwood.serve.limits import ServeLimits
from cordwood.serve.offers import Offers
from cordwood.serve.prepared import Prepared, statement_key
from cordwood.serve.rates import Allowance, Rates
from cordwood.serve.redact import Redactions
from cordwood.serve.refresh import Refresher
from cordwood.serve.run import Job
from cordwood.serve.spelling import Spellings, spelling
from cordwood.serve.stream import Streamed
from cordwood.serve.stumbles import Stumbles
from cordwood.serve.visible import names_for, no_names
from cordwood.sql.ad_hoc import ad_hoc_endpoint
from cordwood.sql.bind import bind
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.stages import Question, Statement

# What an engine says of a longer regular expression is not remembered.
_SHORT_PATTERN = 256

T = TypeVar("T")

# What a statement is compiled from.
_Text = tuple[Endpoint, SandboxText | None, Redaction | None, Mapping[str, Shape]]


class Outcome(StrEnum):
    """What the cache did for an answer."""

    HIT = "hit"
    STALE = "stale"
    MISS = "miss"
    COLLAPSED = "collapsed"
    REQUESTED = "requested"
    UNCACHED = "uncached"


class Answer(msgspec.Struct, frozen=True):
    """An answer on its way to one caller."""

    body: Finished | Streamed
    outcome: Outcome
    age_seconds: float = 0.0

    @property
    def finished(self) -> Finished:
        """The body of an answer that is known to be whole: every kept one is."""
        if isinstance(self.body, Streamed):
            raise TypeError
        return self.body


class Parts(msgspec.Struct, frozen=True):
    """What the journey goes through."""

    catalog: Catalog
    engine: Engine
    cache: AnswerCache
    observer: Observer
    redaction: RedactionRules = SHIPPED_RULES


class Answers:
    """Answers asks; `clock_us` gives microseconds since 1970 and is the only calendar the journey reads."""

    def __init__(self, parts: Parts, limits: ServeLimits, clock_us: Callable[[], int]) -> None:
        engine, observer = parts.engine, parts.observer
        self._engine = engine
        self._cache = parts.cache
        self._limits = limits
        self._clock_us = clock_us
        self._redactions = Redactions(parts.redaction)
        self._prepared = Prepared(engine.target, engine.shapes, engine.is_regex, limits.compiled_bytes)
        places = QueryPlaces(limits.places())
        self._gate = Gate(places, limits.queued_queries, limits.queue_seconds, observer)
        self._conductor = Conductor(engine, self._gate, observer)
        self._offers = Offers(engine, self._prepared, self._redactions)
        self._flights: Flights[Finished] = Flights()
        self._refresher = Refresher(parts.cache, parts.catalog, observer, clock_us, self._ask_again)
        self._rates = Rates(limits.key_requests_per_second, limits.key_concurrent_queries, time.monotonic)
        self._stumbles = Stumbles(observer)
        self._compiling = Compiling(limits, observer)
        self._compilations: Flights[Statement] = Flights()
        self._is_regex = remember_short(_SHORT_PATTERN, most=4096)(engine.is_regex)
        self._spellings = Spellings()

    def admit(self, caller: Caller, account: str = "") -> Allowance | None:
        """Count a request of the caller's key, or account; RateExceeded when it has sent too many."""
        return self._rates.take(caller, account or caller.key_id)

    def spelling_of(self, ask: Ask) -> bytes | None:
        """A digest by which `kept` knows the ask; None for one whose answer is not to be taken from the cache."""
        return None if ask.fresh or not ask.endpoint.cache_seconds else self._spelling(ask)

    def kept(self, spelled: bytes) -> Answer | None:
        """The kept answer to an ask that was answered before; None when the engine is needed, or may be."""
        now_us = self._clock_us()
        key = self._spellings.find(spelled, now_us)
        return None if key is None else self._look_up(key, now_us)

    async def ad_hoc(self, text: str, streams: Collection[str], account: str) -> Endpoint:
        """An endpoint for one call, of SQL over these streams; QueryFault for what cannot be asked."""
        return await self._compiling.own(Askers(account), ad_hoc_endpoint, text, streams)

    async def columns(self, endpoint: Endpoint, caller: Caller | None) -> list[tuple[str, Datatype | None]]:
        """The columns that the endpoint's own query answers this caller with, as far as the compiler knows their types.

        Whoever presents no key is told the columns that the query names itself, and none that events brought.

        Events that came since its file was checked may have broken it: then there are none to tell of.
        Of one that hides, no hidden name is told.
        """
        redaction = self._redactions.by_mode(endpoint.redact_mode) if endpoint.redact_pii else None
        try:
            shapes = no_names(self._engine) if caller is None else names_for(caller, self._engine)
            account, knows = ("anonymous", None) if caller is None else (caller.key_id, caller.knows)
            statement = await self._compiled((endpoint, None, redaction, shapes), account, knows, is_own=False)
        except NOT_COMPILED:
            return []
        return list(zip(statement.column_names, statement.column_types, strict=True))

    def shapes_for(self, caller: Caller) -> Mapping[str, Shape]:
        """What the caller may know of each stream, without what is hidden from a key that is always redacted."""
        shapes = names_for(caller, self._engine)
        return self._redactions.by_mode(RedactMode.REPLACE).shown(shapes) if caller.redact_always else shapes

    async def facts(self) -> Mapping[str, StreamFacts]:
        """How much each stream holds; an engine may be far away."""
        return await asyncio.to_thread(self._engine.facts)

    @property
    def engine_name(self) -> str:
        return self._engine.target.name

    async def sizes(self) -> Mapping[str, int]:
        """About how many bytes each stream takes where it is stored."""
        return await asyncio.to_thread(self._engine.sizes)

    @property
    def starved_seconds(self) -> float:
        """For how long queries have waited in vain for a place at the engine; 0 while some get one."""
        return self._gate.starved_seconds

    def quarantined(self) -> int:
        """How many queries of callers' own are refused, because the engine's process was killed with them."""
        return self._conductor.quarantine.count()

    def load(self) -> Load:
        """What is being asked now, and what is kept."""
        doing = self._conductor.doing
        cache = self._cache
        return Load(
            self._gate.places, self._gate.waiting, doing.under_way(), doing.slowest(), cache.size(), cache.budget()
        )

    async def sub_queries(self, endpoint: Endpoint, caller: Caller, account: str) -> tuple[SubQuery, ...]:
        """What a query of this caller's own may read."""
        return await self._compiling.saved(Askers(account), self._offers.sub_queries, endpoint, caller)

    async def sql_of(self, endpoint: Endpoint, caller: Caller, lql: str, account: str) -> str:
        """The SQL that a query in LQL means."""
        return await self._compiling.own(Askers(account), self._offers.sql_of, endpoint, caller, lql)

    async def answer(self, ask: Ask) -> Answer:
        """The answer, kept or from the engine; cancel it when the caller has left."""
        with self._rates.query_of(ask.account):
            return await self._asked(ask)

    async def _asked(self, ask: Ask) -> Answer:
        return await _until_current(partial(self._tried, ask))

    async def _tried(self, ask: Ask) -> Answer:
        """One attempt; OutdatedError when the statement went out of date while it ran."""
        job = await self._job(ask)
        self._conductor.quarantine.check(job)
        key = identity(ask, job.question)
        self._remember(job, key)
        found = None if ask.fresh else self._look_up(key, job.asked_us)
        if found is not None:
            return found
        if ask.format.streams and not ask.endpoint.cache_seconds:
            return Answer(await self._conductor.streamed(job, Halt()), Outcome.UNCACHED)
        return await self._joined(ask, key, job)

    async def _joined(self, ask: Ask, key: bytes, job: Job) -> Answer:
        outcome = self._outcome(ask, key)
        start = partial(self._run, key, job)
        finished = await self._flights.join(key, ask.account, start)
        return Answer(finished, outcome, self._age_seconds(finished))

    async def export(self, ask: Ask, wanted: Range) -> Answer:
        """A stream's events as they are stored, as they come; kept nowhere."""
        job = export_job(ask, wanted, self._engine, self._clock_us())
        return Answer(await self._conductor.streamed(job, Halt()), Outcome.UNCACHED)

    async def warm(self) -> None:
        """Re-ask what is asked often, until cancelled: the door starts this task beside the server."""
        await self._refresher.run()

    def tick(self) -> list["asyncio.Task[None]"]:
        """One look of `warm` at the clock; the refreshes that it started."""
        return self._refresher.tick()

    async def close(self) -> None:
        """Let what is under way finish; called after the last request."""
        await self._refresher.close()
        await asyncio.to_thread(self._conductor.close)
        self._compiling.close()

    def _look_up(self, key: bytes, now_us: int) -> Answer | None:
        entry = self._cache.get(key)
        if not isinstance(entry, Entry):
            return None
        if is_expired(entry, now_us):
            self._cache.drop(key)
            return None
        entry.asked_us = now_us
        outcome = Outcome.STALE if is_stale(entry, now_us) else Outcome.HIT
        return Answer(entry.finished, outcome, age_us(entry, now_us) / SECOND_US)

    async def _job(self, ask: Ask) -> Job:
        began = time.monotonic()
        redaction = self._redactions.of(ask)
        shapes = names_for(ask.caller, self._engine)
        text = ask.endpoint, ask.sandbox, redaction, shapes
        statement = await self._compiled(text, ask.account, ask.knows, is_own=ask.is_callers_own)
        now_us = self._clock_us()
        question = await self._bound(statement, ask, now_us)
        seconds = ask.endpoint.timeout_seconds or self._limits.query_seconds
        limits = AnswerLimits(ask.endpoint.max_rows, seconds)
        compile_seconds = time.monotonic() - began
        return Job(ask, question, limits, self._limits.answer_bytes, now_us, compile_seconds)

    async def _bound(self, statement: Statement, ask: Ask, now_us: int) -> Question:
        """An engine may be asked whether a text is a regular expression: that is waited for in a thread."""
        if any(slot.parameter is not None and slot.parameter.kind is TextKind.REGEX for slot in statement.slots):
            return await asyncio.to_thread(bind, statement, ask.parameters, now_us, self._is_regex)
        return bind(statement, ask.parameters, now_us, self._is_regex)

    async def _compiled(self, text: _Text, account: str, knows: Hashable, *, is_own: bool) -> Statement:
        """The statement of a text; callers that send the same, and know the same names, wait for one compilation."""
        key = statement_key(*text[:3]), knows
        statement = self._prepared.find(*text)
        if statement is None and self._compilations.under_way(key):
            await self._compilation(key, text, account, is_own=is_own)
            # It may have begun before events that this caller sent: the statement is only taken if it holds now.
            statement = self._prepared.find(*text)
        return statement or await self._compilation(key, text, account, is_own=is_own)

    async def _compilation(self, key: Hashable, text: _Text, account: str, *, is_own: bool) -> Statement:
        compile_in_turn = self._compiling.own if is_own else self._compiling.saved
        try:
            return await self._compilations.join(
                key, account, lambda _, askers: compile_in_turn(askers, self._prepared.compile, *text)
            )
        except CompilerBroke as fault:
            self._stumbles.tell(fault)
            raise

    async def _run(self, key: bytes, job: Job, halt: Halt, askers: Askers, *, refresh: bool = False) -> Finished:
        finished = await self._conductor.whole(job, halt, askers, refresh=refresh)
        if job.ask.endpoint.cache_seconds:
            self._keep(Entry(key, job.ask, finished, asked_us=job.asked_us))
        return finished

    async def _ask_again(self, ask: Ask, entry: Entry) -> None:
        await _until_current(partial(self._refreshed, ask, entry))

    async def _refreshed(self, ask: Ask, entry: Entry) -> None:
        job = await self._job(ask)
        key = identity(ask, job.question)
        await self._flights.join(key, SERVICE, partial(self._run, key, job, refresh=True))
        self._remember(job, key)
        if key != entry.key:
            # The ask is compiled to another statement by now: no caller is to find the old answer any more.
            self._cache.drop(entry.key)
        made = self._cache.peek(key)
        if isinstance(made, Entry):
            made.asked_us = entry.asked_us

    def _keep(self, entry: Entry) -> None:
        self._cache.put(entry.key, entry)
        self._refresher.watch(entry)

    def _spelling(self, ask: Ask) -> bytes:
        return spelling(ask, statement_key(ask.endpoint, ask.sandbox, self._redactions.of(ask)))

    def _remember(self, job: Job, key: bytes) -> None:
        lifetime_seconds = job.ask.endpoint.cache_seconds
        if lifetime_seconds:
            until_us = job.asked_us + int(lifetime_seconds * SECOND_US)
            self._spellings.note(self._spelling(job.ask), key, until_us)

    def _outcome(self, ask: Ask, key: bytes) -> Outcome:
        if self._flights.under_way(key):
            return Outcome.COLLAPSED
        if not ask.endpoint.cache_seconds:
            return Outcome.UNCACHED
        return Outcome.REQUESTED if ask.fresh else Outcome.MISS

    def _age_seconds(self, finished: Finished) -> float:
        return max(0, self._clock_us() - finished.receipt.made_us) / SECOND_US


async def _until_current(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try again, from compiling on, until no statement goes out of date on the way."""
    while True:
        with suppress(OutdatedError):
            return await attempt()
