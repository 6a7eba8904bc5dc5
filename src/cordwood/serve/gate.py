"""Admission control: a bounded number of concurrent runs and a bounded queue, both fair between accounts."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from cordwood.errors import Busy
from cordwood.observe.observation import Queued
from cordwood.observe.observer import Observer
from cordwood.serve.fair_queue import SERVICE, Askers, Claim, FairQueue, Lane, Usage


class Places(Protocol):
    """The policy of a set of slots: how many there are, and which lanes may take a free one."""

    @property
    def name(self) -> str:
        """The name in metrics."""

    @property
    def total(self) -> int:
        """The number of concurrent runs."""

    @property
    def half_life_seconds(self) -> float:
        """The half-life of recorded usage."""

    def may_run(self, lane: Lane, running: Mapping[Lane, int]) -> bool:
        """Return whether one more run of the lane may start."""


class QueryPlaces:
    """The slots at the engine. Queries that callers wrote never take all of them, and slow queries few.

    - A quarter of the slots, at least one, is reserved from queries that callers wrote. - One slot is reserved for
    saved queries that are not known to be slow. - Slow saved queries, slow queries of callers, and refreshes take at
    most a quarter of the slots each, at least one.

    With two slots, one is for saved queries alone, and all other runs share the other one.
    """

    name = "query"
    half_life_seconds = 5.0

    def __init__(self, total: int) -> None:
        self.total = max(2, total)
        self._quarter = max(1, self.total // 4)

    def may_run(self, lane: Lane, running: Mapping[Lane, int]) -> bool:
        taken = sum(running.values())
        if lane is Lane.QUICK or taken == self.total:
            return taken < self.total
        if taken - running[Lane.QUICK] >= self.total - 1:
            return False
        own = sum(running[one] for one in (Lane.OWN_QUICK, Lane.UNKNOWN, Lane.OWN_SLOW))
        if lane.is_own and own >= self.total - self._quarter:
            return False
        return lane < Lane.SLOW or running[lane] < self._quarter


class CompilePlaces:
    """The compile threads. Accounts with recent slow compilations (`OWN_SLOW`) never take the last one."""

    name = "compile"
    # A slow compilation takes seconds and is rare, so the usage of its account decays over minutes.
    half_life_seconds = 60.0

    def __init__(self, total: int) -> None:
        self.total = max(2, total)

    def may_run(self, lane: Lane, running: Mapping[Lane, int]) -> bool:
        taken = sum(running.values())
        return taken < self.total and (lane < Lane.OWN_SLOW or running[lane] < self.total - 1)


class Turn:
    """A granted slot and the account that it is charged to.

    A run on a lent slot continues outside the limit; a run whose slot is withdrawn must be stopped.
    """

    def __init__(self, gate: "Gate", lane: Lane, account: str, began: float) -> None:
        self._gate = gate
        self.lane = lane
        self.account = account
        self.began = began
        self.yields = self.is_lent = self.is_withdrawn = False

    def must_yield(self) -> bool:
        """Return whether this run has to restart later, because a queued request has precedence."""
        return self._gate.must_yield(self)

    def lend(self) -> None:
        """Give the slot to a queued request and continue without one: for a run that cannot be restarted."""
        self._gate.lend(self)

    def give_up(self) -> None:
        """Release the slot although the run has not stopped yet, unless there are too many such runs."""
        self._gate.give_up(self)


class Gate:
    """Admission to slots. Not thread-safe: use it on the event loop.

    The next free slot goes to the account (a key, or an address if there is no key) with the least recent usage, in
    slot seconds that decay exponentially. One account may therefore use all idle slots, and yields when others come. At
    most `queue_length` requests wait: beyond that, the newest request of the account with most of them is refused. Each
    waits for at most `patience_seconds`; refreshes wait without a limit.
    """

    def __init__(
        self,
        places: Places,
        queue_length: int,
        patience_seconds: float,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._queue_length = queue_length
        self._patience = patience_seconds
        self._observer = observer
        self._clock = clock
        self._usage = Usage(places.half_life_seconds, clock)
        self._queue = FairQueue(self._usage)
        self._running = dict.fromkeys(Lane, 0)
        self._turns: dict[Claim, Turn] = {}
        self._claims = 0
        self._starved_since: float | None = None

    @property
    def places(self) -> int:
        return self._places.total

    @property
    def waiting(self) -> int:
        """The number of queued requests, without refreshes."""
        return len(self._queue)

    @property
    def running(self) -> int:
        return sum(self._running.values())

    @property
    def starved_seconds(self) -> float:
        """For how many seconds callers have been waiting without any of them being given a slot."""
        return 0.0 if self._starved_since is None else self._clock() - self._starved_since

    def usage(self, account: str) -> float:
        """Return the recent usage of an account in slot seconds."""
        return self._usage.of(account)

    @asynccontextmanager
    async def turn(self, lane: Lane, askers: Askers, joined: Lane = Lane.QUICK) -> AsyncIterator[Turn]:
        """Hold a slot while the block runs. A queued refresh that a caller joins moves to the lane `joined`."""
        claim = self._claim(lane, askers.accounts)
        askers.on_change = lambda: self._follow(claim, askers.accounts, joined)
        try:
            await self._admitted(claim)
        finally:
            askers.on_change = _nothing
        try:
            yield self._turns[claim]
        finally:
            self._end(claim)

    def must_yield(self, turn: Turn) -> bool:
        """Return whether the run must yield to requests of accounts with at most its usage, or to quick saved queries.

        At most as many runs yield as requests are queued.
        """
        if turn.yields or turn.is_lent or sum(one.yields for one in self._turns.values()) >= self.waiting:
            return turn.yields
        running = {**self._running, turn.lane: self._running[turn.lane] - 1}
        found = self._queue.next(lambda lane: self._places.may_run(lane, running))
        if found is not None and found.claim.lane is not Lane.REFRESH:
            is_saved = turn.lane.is_own and found.claim.lane is Lane.QUICK
            used = self._usage.of(turn.account)
            turn.yields = is_saved or found.account == turn.account or found.usage <= used
        return turn.yields

    def lend(self, turn: Turn) -> None:
        """Lend up to as many slots as there are; beyond that, withdraw one from the account with the most usage."""
        lent = [one for one in self._turns.values() if one.is_lent and not one.is_withdrawn]
        if len(lent) >= self.places:
            used = {one.account: self._usage.of(one.account) for one in [*lent, turn]}
            heaviest = max([*lent, turn], key=lambda one: (used[one.account], -one.began))
            heaviest.is_withdrawn = True
            if heaviest is turn:
                return
        self._free(turn)

    def give_up(self, turn: Turn) -> None:
        """Release the slot of a run that is being cancelled; of at most as many runs as there are slots."""
        if not turn.is_lent and sum(one.is_lent for one in self._turns.values()) < self.places:
            self._free(turn)

    def _free(self, turn: Turn) -> None:
        turn.is_lent, turn.yields = True, False
        self._running[turn.lane] -= 1
        self._admit()

    def _claim(self, lane: Lane, accounts: frozenset[str]) -> Claim:
        self._claims += 1
        claim = Claim(lane, accounts, self._claims, self._clock())
        self._queue.add(claim)
        self._admit()
        if claim.waits and lane is not Lane.REFRESH and self.waiting > self._queue_length:
            refused = self._queue.to_refuse(claim)
            self._queue.remove(refused)
            if not refused.place.done():
                refused.place.set_exception(self._busy("There are more queries waiting than the service holds."))
        return claim

    async def _admitted(self, claim: Claim) -> None:
        outcome = "refused"
        try:
            if not claim.place.done():
                async with asyncio.timeout(None if claim.lane is Lane.REFRESH else self._patience):
                    await claim.place
            claim.place.result()
            outcome = "admitted"
        except TimeoutError:
            if self._starved_since is None:
                self._starved_since = claim.since
            raise self._busy(f"No place came free within {self._patience:g} s.") from None
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        finally:
            if outcome != "admitted":
                self._leave(claim)
            self._note(claim, outcome)

    def _follow(self, claim: Claim, accounts: frozenset[str], joined: Lane) -> None:
        """Update the accounts that wait for a request; a refresh that callers wait for leaves the refresh lane."""
        callers = accounts - {SERVICE}
        if not claim.waits or not callers:
            return
        if claim.lane is Lane.REFRESH:
            self._queue.remove(claim)
            claim.lane, claim.accounts = joined, callers
            self._queue.add(claim)
        else:
            self._queue.change(claim, callers)
        self._admit()

    def _leave(self, claim: Claim) -> None:
        """Leave the queue, or return a slot that was granted after the caller left."""
        if claim in self._turns:
            self._end(claim)
        elif claim.waits:
            self._queue.remove(claim)
        elif not claim.place.cancelled():
            # Retrieve the exception of the refusal, so that asyncio does not log it as unhandled.
            claim.place.exception()

    def _admit(self) -> None:
        while True:
            found = self._queue.next(lambda lane: self._places.may_run(lane, self._running))
            if found is None:
                return
            claim = found.claim
            self._queue.remove(claim)
            if not claim.place.done():
                self._running[claim.lane] += 1
                self._turns[claim] = Turn(self, claim.lane, found.account, self._usage.begin(found.account))
                self._starved_since = None
                claim.place.set_result(None)

    def _end(self, claim: Claim) -> None:
        turn = self._turns.pop(claim)
        self._usage.end(turn.account, turn.began)
        if not turn.is_lent:
            self._running[turn.lane] -= 1
            self._starved_since = None
        self._admit()

    def _note(self, claim: Claim, outcome: str) -> None:
        seconds = round(self._clock() - claim.since, 6)
        lane = claim.lane.name.lower()
        self._observer.note(Queued(places=self._places.name, lane=lane, outcome=outcome, seconds=seconds))

    def _busy(self, message: str) -> Busy:
        return Busy(message, hint="Ask again in a moment.", retry_after=max(1.0, self._patience / 2))


def _nothing() -> None:
    """Do nothing: no request of these accounts is queued."""
