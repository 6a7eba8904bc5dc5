"""Admission control: request rate limits, a limit on concurrent runs, and a queue that accounts share fairly.

An account is a key or, for a caller without a key, a network address.
"""

import asyncio
import math
import os
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import IntEnum
from typing import Protocol

import msgspec

from cordwood.errors import RequestRateExceeded, ServiceBusy
from cordwood.model.key import Caller
from cordwood.observe.observation import AdmissionAwaited, Observer

# The maximum number of accounts whose token buckets are kept. If there are more, the least recently used bucket is
# deleted. The next request of its account gets a new, full bucket.
MAX_REMEMBERED_BUCKETS = 10_000


class RequestAllowance(msgspec.Struct, frozen=True):
    """How many requests an account may still send, as of its latest request.

    The account may send `request_quota` requests in `window_seconds`. It may send `remaining_requests` requests at
    once. After `seconds_until_full`, it may again send all `request_quota` requests at once.
    """

    request_quota: int
    window_seconds: int
    remaining_requests: int
    seconds_until_full: float


class _RequestTokenBucket(msgspec.Struct):
    tokens: float
    refilled_at: float


class RateLimiter:
    """Enforces limits on the request rate (a token bucket) and on the concurrent queries of each account.

    A bucket is refilled at the rate of the caller's key, or at `default_per_second` if the key has no rate. `clock`
    returns monotonic seconds.
    """

    def __init__(
        self, default_per_second: float | None, max_concurrent: int | None, clock: Callable[[], float]
    ) -> None:
        self._default_requests_per_second = default_per_second
        self._max_concurrent_queries = max_concurrent
        self._clock = clock
        self._buckets: OrderedDict[str, _RequestTokenBucket] = OrderedDict()
        self._running_query_counts: dict[str, int] = {}

    def charge_request(self, caller: Caller, account: str) -> RequestAllowance | None:
        """Take a token from the account's bucket; raise RequestRateExceeded if the bucket is empty.

        Return how many requests the account may still send, or None if no rate limit applies to the caller.
        """
        rate = caller.rate_per_second or self._default_requests_per_second
        if not rate:
            return None
        # A bucket must hold at least one token. Therefore, for a rate below one request per second, it holds one token,
        # and the window is longer than a second.
        quota, window = (round(rate), 1) if rate >= 1 else (1, round(1 / rate))
        bucket = self._refill(account, rate, quota)
        if bucket.tokens < 1:
            raise RequestRateExceeded(
                f"This key may send {quota} requests in {window} s.",
                hint="Wait for as long as Retry-After says.",
                retry_after=(1 - bucket.tokens) / rate,
            )
        bucket.tokens -= 1
        return RequestAllowance(quota, window, int(bucket.tokens), (quota - bucket.tokens) / rate)

    @contextmanager
    def count_running_query(self, account: str) -> Iterator[None]:
        """Count one more running query of the account during the `with` block.

        Raise RequestRateExceeded if the account already runs its maximum number of queries.
        """
        running = self._running_query_counts.get(account, 0)
        if self._max_concurrent_queries is not None and running >= self._max_concurrent_queries:
            raise RequestRateExceeded(
                f"This key has {running} queries running, which is its limit.", hint="Wait for one to end."
            )
        self._running_query_counts[account] = running + 1
        try:
            yield
        finally:
            self._decrement_running_queries(account)

    def _decrement_running_queries(self, account: str) -> None:
        self._running_query_counts[account] -= 1
        if not self._running_query_counts[account]:
            del self._running_query_counts[account]

    def _refill(self, account: str, rate: float, quota: int) -> _RequestTokenBucket:
        now = self._clock()
        bucket = self._buckets.get(account)
        if bucket is None:
            bucket = self._buckets[account] = _RequestTokenBucket(quota, now)
            if len(self._buckets) > MAX_REMEMBERED_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(account)
        bucket.tokens = min(quota, bucket.tokens + (now - bucket.refilled_at) * rate)
        bucket.refilled_at = now
        return bucket


# The maximum number of accounts whose usage is remembered; the least recently used accounts are forgotten first.
MAX_ACCOUNTS_WITH_USAGE = 10_000
# The minimum time that is charged for a run. Otherwise an account with many very short runs would be charged almost
# nothing.
_MIN_CHARGED_SECONDS = 0.001
# The account to which background refreshes are charged.
BACKGROUND_ACCOUNT = ""


class AdmissionLane(IntEnum):
    """The class of a run, which determines the slots that the run may use.

    The runs of saved queries use `QUICK` or `SLOW`. The runs of queries that callers wrote use `OWN_QUICK` or
    `OWN_SLOW`, or `UNKNOWN` if the duration of the query is not known yet. Runs in the background, such as refreshes of
    cached answers, use `REFRESH`.
    """

    QUICK = 0
    OWN_QUICK = 1
    UNKNOWN = 2
    SLOW = 3
    OWN_SLOW = 4
    REFRESH = 5

    @property
    def queue_rank(self) -> int:
        """The rank by which the queued runs of one account are ordered; the run with the lowest rank starts first.

        All lanes from `UNKNOWN` on have the same rank, so their runs start in order of arrival.
        """
        return min(self, 2)

    @property
    def is_for_caller_queries(self) -> bool:
        """Whether the lane is for queries that callers wrote."""
        return self in (AdmissionLane.OWN_QUICK, AdmissionLane.UNKNOWN, AdmissionLane.OWN_SLOW)


class WaitingAccounts:
    """The accounts that wait for the result of one run: the account that started it, and those that joined later.

    `on_change` is called when an account is added or removed.
    """

    def __init__(self, account: str) -> None:
        self._request_counts_by_account = Counter([account])
        self.on_change: Callable[[], None] = lambda: None

    @property
    def accounts(self) -> frozenset[str]:
        return frozenset(self._request_counts_by_account)

    def join(self, account: str) -> None:
        self._request_counts_by_account[account] += 1
        if self._request_counts_by_account[account] == 1:
            self.on_change()

    def leave(self, account: str) -> None:
        self._request_counts_by_account[account] -= 1
        if not self._request_counts_by_account[account]:
            del self._request_counts_by_account[account]
            self.on_change()


class _SlotRequest:
    """A run's request for a slot, on behalf of all accounts that wait for the result of the run.

    The future `grant_future` is resolved when the slot is granted or the request is refused.
    """

    __slots__ = ("accounts", "arrival_number", "grant_future", "is_queued", "lane", "requested_at")

    def __init__(self, lane: AdmissionLane, accounts: frozenset[str], number: int, since: float) -> None:
        self.lane = lane
        self.accounts = accounts
        self.arrival_number = number
        self.requested_at = since
        self.is_queued = False
        self.grant_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _SlotUsage:
    """The usage of each account: the number of seconds for which the account's runs have occupied slots.

    The recorded seconds of an account are halved every `half_life_seconds`.
    """

    def __init__(self, half_life_seconds: float, clock: Callable[[], float]) -> None:
        self._half_life_seconds = half_life_seconds
        self._clock = clock
        self._usage_and_time_by_account: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._slot_starts_by_account: dict[str, list[float]] = {}

    def used_seconds(self, account: str) -> float:
        """Return the usage of an account, including the slots that its current runs occupy."""
        now = self._clock()
        running = sum(
            max(now - started_at, _MIN_CHARGED_SECONDS) for started_at in self._slot_starts_by_account.get(account, ())
        )
        return self._decayed_seconds(account, now) + running

    def record_slot_start(self, account: str) -> float:
        started_at = self._clock()
        self._slot_starts_by_account.setdefault(account, []).append(started_at)
        return started_at

    def record_slot_end(self, account: str, started_at: float) -> None:
        now = self._clock()
        running = self._slot_starts_by_account[account]
        running.remove(started_at)
        if not running:
            del self._slot_starts_by_account[account]
        self._usage_and_time_by_account[account] = (
            self._decayed_seconds(account, now) + max(now - started_at, _MIN_CHARGED_SECONDS),
            now,
        )
        self._usage_and_time_by_account.move_to_end(account)
        if len(self._usage_and_time_by_account) > MAX_ACCOUNTS_WITH_USAGE:
            self._usage_and_time_by_account.popitem(last=False)

    def _decayed_seconds(self, account: str, now: float) -> float:
        seconds, recorded_at = self._usage_and_time_by_account.get(account, (0.0, now))
        return seconds * math.exp2((recorded_at - now) / self._half_life_seconds)


class QueueCandidate(msgspec.Struct, frozen=True):
    """The queued request to which the next free slot should be granted.

    Several accounts may wait for the result of the request's run. The one with the least usage is charged for the slot:
    `charged_account`, whose usage is `usage_seconds`.
    """

    request: _SlotRequest
    charged_account: str
    usage_seconds: float


class _FairQueue:
    """The queued requests, by lane and account. The account with the least usage gets the next free slot."""

    def __init__(self, usage: _SlotUsage) -> None:
        self._slot_usage = usage
        self._queued_requests: dict[AdmissionLane, dict[str, dict[int, _SlotRequest]]] = {
            lane: {} for lane in AdmissionLane
        }
        self._queued_counts_by_account: Counter[str] = Counter()
        self._sizes_by_lane = dict.fromkeys(AdmissionLane, 0)

    def __len__(self) -> int:
        """Return the number of queued requests, without those in the lane `REFRESH`."""
        return sum(size for lane, size in self._sizes_by_lane.items() if lane is not AdmissionLane.REFRESH)

    @property
    def sizes_by_lane(self) -> Mapping[AdmissionLane, int]:
        return self._sizes_by_lane

    def add(self, request: _SlotRequest) -> None:
        request.is_queued = True
        self._sizes_by_lane[request.lane] += 1
        for account in request.accounts:
            self._add_to_account(request, account)

    def remove(self, request: _SlotRequest) -> None:
        request.is_queued = False
        self._sizes_by_lane[request.lane] -= 1
        for account in request.accounts:
            self._remove_from_account(request, account)

    def change_accounts(self, request: _SlotRequest, accounts: frozenset[str]) -> None:
        """Replace the accounts that wait for the result of a queued request."""
        for account in request.accounts - accounts:
            self._remove_from_account(request, account)
        for account in accounts - request.accounts:
            self._add_to_account(request, account)
        request.accounts = accounts

    def _add_to_account(self, request: _SlotRequest, account: str) -> None:
        self._queued_requests[request.lane].setdefault(account, {})[request.arrival_number] = request
        if request.lane is not AdmissionLane.REFRESH:
            self._queued_counts_by_account[account] += 1

    def _remove_from_account(self, request: _SlotRequest, account: str) -> None:
        requests = self._queued_requests[request.lane][account]
        del requests[request.arrival_number]
        if not requests:
            del self._queued_requests[request.lane][account]
        if request.lane is not AdmissionLane.REFRESH:
            self._queued_counts_by_account[account] -= 1
            if not self._queued_counts_by_account[account]:
                del self._queued_counts_by_account[account]

    def next_candidate(self, may_run: Callable[[AdmissionLane], bool]) -> QueueCandidate | None:
        """Return the request that should get a slot next, or None if no queued request may run now.

        `may_run` decides whether another run of a lane may start. Requests of the account with the least usage come
        first. Refreshes come after all other requests.
        """
        used: dict[str, float] = {}
        best_candidate: tuple[tuple[bool, float, int, int], QueueCandidate] | None = None
        for lane, waiting in self._queued_requests.items():
            if not waiting or not may_run(lane):
                continue
            for account, requests in waiting.items():
                request = next(iter(requests.values()))
                if account not in used:
                    used[account] = self._slot_usage.used_seconds(account)
                order = (lane is AdmissionLane.REFRESH, used[account], lane.queue_rank, request.arrival_number)
                if best_candidate is None or order < best_candidate[0]:
                    best_candidate = order, QueueCandidate(request, account, used[account])
        return None if best_candidate is None else best_candidate[1]

    def choose_request_to_refuse(self, newest: _SlotRequest) -> _SlotRequest:
        """Return the request to refuse because the queue is full: `newest`, or a request that makes room for it.

        The account with the most queued requests loses its least urgent request; among equally urgent requests, it
        loses the newest. If no account has more queued requests than the account of `newest`, the account of `newest`
        loses a request that is less urgent than `newest`. If it has no such request, `newest` itself is refused.
        """
        own_count = min(self._queued_counts_by_account[account] for account in newest.accounts)
        for account, count in self._queued_counts_by_account.most_common():
            if count <= own_count and account not in newest.accounts:
                break
            for request in self._requests_least_urgent_first(account):
                if min(self._queued_counts_by_account[account] for account in request.accounts) > own_count:
                    return request
                if request.accounts <= newest.accounts and request.lane.queue_rank > newest.lane.queue_rank:
                    return request
        return newest

    def _requests_least_urgent_first(self, account: str) -> Iterator[_SlotRequest]:
        for lane in reversed(AdmissionLane):
            if lane is not AdmissionLane.REFRESH:
                yield from reversed(self._queued_requests[lane].get(account, {}).values())


MIN_DEFAULT_QUERY_SLOTS = 4


class ServeLimits(msgspec.Struct, frozen=True):
    """Limits on queries, on the queue, on each key, and on the memory for compiled statements.

    If `concurrent_queries` is 0, the number of slots depends on the number of cores.
    """

    query_seconds: float = 30.0
    answer_bytes: int = 64 * 1024 * 1024
    concurrent_queries: int = 0
    queued_queries: int = 200
    queue_seconds: float = 10.0
    key_requests_per_second: float | None = None
    key_concurrent_queries: int | None = None
    # The maximum bytes of cached statements. The parsed trees of endpoints have a separate budget of the same size.
    compile_cache_bytes: int = 16 * 2**20

    def slot_count(self) -> int:
        """Return the number of slots: the configured number, or two for each core, at least `MIN_DEFAULT_QUERY_SLOTS`.

        There are more slots than cores, because runs often wait for input and output.
        """
        return self.concurrent_queries or max(MIN_DEFAULT_QUERY_SLOTS, 2 * (os.cpu_count() or 1))


class SlotPolicy(Protocol):
    """The interface of a policy for slots: how many slots exist, and which lanes may take a free slot."""

    @property
    def name(self) -> str:
        """The name by which metrics identify the policy."""

    @property
    def slot_count(self) -> int:
        """The maximum number of runs that hold a slot at the same time."""

    @property
    def usage_half_life_seconds(self) -> float:
        """The number of seconds in which the recorded usage of an account is halved."""

    def may_run(self, lane: AdmissionLane, running: Mapping[AdmissionLane, int]) -> bool:
        """Return whether another run of `lane` may start.

        `running` has the number of current runs in each lane.
        """


class QuerySlotPolicy:
    """The policy for runs on the engine, which keeps slots free for quick saved queries.

    - A quarter of the slots, at least one, is not available to callers' own queries.
    - One slot is reserved for saved queries that are not known to be slow (lane `QUICK`).
    - The lanes `SLOW`, `OWN_SLOW` and `REFRESH` each occupy at most a quarter of the slots, or one slot if a quarter is
      less.

    With two slots, one is reserved for the lane `QUICK`, and all other runs share the other slot.
    """

    name = "query"
    usage_half_life_seconds = 5.0

    def __init__(self, total: int) -> None:
        self.slot_count = max(2, total)
        self._quarter_slot_count = max(1, self.slot_count // 4)

    def may_run(self, lane: AdmissionLane, running: Mapping[AdmissionLane, int]) -> bool:
        occupied_slots = sum(running.values())
        if lane is AdmissionLane.QUICK or occupied_slots == self.slot_count:
            return occupied_slots < self.slot_count
        if occupied_slots - running[AdmissionLane.QUICK] >= self.slot_count - 1:
            return False
        unsaved_queries = sum(
            running[unsaved_lane]
            for unsaved_lane in (AdmissionLane.OWN_QUICK, AdmissionLane.UNKNOWN, AdmissionLane.OWN_SLOW)
        )
        if lane.is_for_caller_queries and unsaved_queries >= self.slot_count - self._quarter_slot_count:
            return False
        return lane < AdmissionLane.SLOW or running[lane] < self._quarter_slot_count


class CompileSlotPolicy:
    """The policy for compile threads: slow compilations (lane `OWN_SLOW`) never occupy all threads."""

    name = "compile"
    # Slow compilations take seconds and are rare, so usage decays over minutes.
    usage_half_life_seconds = 60.0

    def __init__(self, total: int) -> None:
        self.slot_count = max(2, total)

    def may_run(self, lane: AdmissionLane, running: Mapping[AdmissionLane, int]) -> bool:
        occupied_slots = sum(running.values())
        return occupied_slots < self.slot_count and (
            lane < AdmissionLane.OWN_SLOW or running[lane] < self.slot_count - 1
        )


class AdmissionSlot:
    """The right of one run to use the engine or a compile thread, with the account that is charged for it.

    If the slot is lent (`is_lent`), another run may start although this run continues. If the slot is withdrawn
    (`is_withdrawn`), this run must be stopped.
    """

    def __init__(self, admission: "AdmissionController", lane: AdmissionLane, account: str, started_at: float) -> None:
        self._admission_controller = admission
        self.lane = lane
        self.charged_account = account
        self.started_at = started_at
        self.yields = self.is_lent = self.is_withdrawn = False

    def must_yield(self) -> bool:
        """Return whether the run must stop now and start again later, because a queued request takes precedence."""
        return self._admission_controller.must_yield(self)

    def lend_to_queued_request(self) -> None:
        """Let a queued request start, although the run of this slot continues because it cannot be restarted."""
        self._admission_controller.lend(self)

    def release_early(self) -> None:
        """Release the slot although its run has not stopped yet.

        Do nothing if too many other runs already continue without a slot.
        """
        self._admission_controller.release_early(self)


class AdmissionController:
    """Grants slots to runs, fairly between accounts. Not thread-safe: use it on the event loop.

    A free slot goes to the account whose runs have occupied slots for the shortest time recently. Usage is measured in
    seconds of occupied slots, and decays exponentially. So one account may use all idle slots, but yields some of them
    when other accounts need them. At most `queue_length` requests are queued. If the queue is full, the account with
    the most queued requests loses its least urgent request. A request is refused if it gets no slot within
    `queue_seconds`. A refresh waits without a time limit.
    """

    def __init__(
        self,
        slots: SlotPolicy,
        queue_length: int,
        queue_seconds: float,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slot_policy = slots
        self._max_queue_length = queue_length
        self._max_queue_seconds = queue_seconds
        self._observer = observer
        self._clock = clock
        self._slot_usage = _SlotUsage(slots.usage_half_life_seconds, clock)
        self._queue = _FairQueue(self._slot_usage)
        self._running_counts_by_lane = dict.fromkeys(AdmissionLane, 0)
        self._running_slots: dict[_SlotRequest, AdmissionSlot] = {}
        self._last_request_number = 0
        self._queue_stalled_since: float | None = None

    @property
    def slot_count(self) -> int:
        return self._slot_policy.slot_count

    @property
    def queued_count(self) -> int:
        """The number of queued requests, without those in the lane `REFRESH`."""
        return len(self._queue)

    @property
    def running_count(self) -> int:
        return sum(self._running_counts_by_lane.values())

    @property
    def queue_stalled_seconds(self) -> float:
        """The number of seconds for which the queue has been stalled, or 0 if it is not stalled.

        The queue is stalled if a request was refused because it got no slot in time, and since then no slot has been
        granted or released.
        """
        return 0.0 if self._queue_stalled_since is None else self._clock() - self._queue_stalled_since

    @asynccontextmanager
    async def hold_slot(
        self, lane: AdmissionLane, waiting: WaitingAccounts, joined_lane: AdmissionLane = AdmissionLane.QUICK
    ) -> AsyncIterator[AdmissionSlot]:
        """Wait for a slot, and hold it during the `with` block.

        If a caller joins a queued refresh, the refresh moves to the lane `joined_lane`.
        """
        request = self._enqueue_request(lane, waiting.accounts)
        waiting.on_change = lambda: self._update_accounts(request, waiting.accounts, joined_lane)
        try:
            await self._wait_for_slot(request)
        finally:
            waiting.on_change = _ignore_change
        try:
            yield self._running_slots[request]
        finally:
            self._release_slot(request)

    def must_yield(self, slot: AdmissionSlot) -> bool:
        """Return whether the run must yield its slot to a queued request that could start in its place.

        The run yields to a request of the same account, or of an account with at most as much usage. If the run is for
        a query that a caller wrote, it also yields to a request in the lane `QUICK` of any account. A run never yields
        to a refresh. The number of yielding runs never exceeds the number of queued requests.
        """
        if (
            slot.yields
            or slot.is_lent
            or sum(other.yields for other in self._running_slots.values()) >= self.queued_count
        ):
            return slot.yields
        running = {**self._running_counts_by_lane, slot.lane: self._running_counts_by_lane[slot.lane] - 1}
        candidate = self._queue.next_candidate(lambda lane: self._slot_policy.may_run(lane, running))
        if candidate is not None and candidate.request.lane is not AdmissionLane.REFRESH:
            is_saved = slot.lane.is_for_caller_queries and candidate.request.lane is AdmissionLane.QUICK
            used_seconds = self._slot_usage.used_seconds(slot.charged_account)
            slot.yields = (
                is_saved or candidate.charged_account == slot.charged_account or candidate.usage_seconds <= used_seconds
            )
        return slot.yields

    def lend(self, slot: AdmissionSlot) -> None:
        """Let a queued request start, although the run of `slot` continues.

        At most `slot_count` slots are lent at the same time. If this limit is reached, withdraw a slot of the account
        with the most usage, so that its run is stopped.
        """
        lent_slots = [other for other in self._running_slots.values() if other.is_lent and not other.is_withdrawn]
        if len(lent_slots) >= self.slot_count:
            used_seconds = {
                other.charged_account: self._slot_usage.used_seconds(other.charged_account)
                for other in [*lent_slots, slot]
            }
            heaviest = max(
                [*lent_slots, slot], key=lambda other: (used_seconds[other.charged_account], -other.started_at)
            )
            heaviest.is_withdrawn = True
            if heaviest is slot:
                return
        self._make_slot_available(slot)

    def release_early(self, slot: AdmissionSlot) -> None:
        """Release the slot of a cancelled run that has not stopped yet.

        Do nothing if `slot_count` slots are already lent or released early.
        """
        if not slot.is_lent and sum(other.is_lent for other in self._running_slots.values()) < self.slot_count:
            self._make_slot_available(slot)

    def _make_slot_available(self, slot: AdmissionSlot) -> None:
        slot.is_lent, slot.yields = True, False
        self._running_counts_by_lane[slot.lane] -= 1
        self._grant_free_slots()

    def _enqueue_request(self, lane: AdmissionLane, accounts: frozenset[str]) -> _SlotRequest:
        self._last_request_number += 1
        request = _SlotRequest(lane, accounts, self._last_request_number, self._clock())
        self._queue.add(request)
        self._grant_free_slots()
        if request.is_queued and lane is not AdmissionLane.REFRESH and self.queued_count > self._max_queue_length:
            refused = self._queue.choose_request_to_refuse(request)
            self._queue.remove(refused)
            if not refused.grant_future.done():
                refused.grant_future.set_exception(self._busy_fault("The queue of queries is full."))
        return request

    async def _wait_for_slot(self, request: _SlotRequest) -> None:
        outcome = "refused"
        try:
            if not request.grant_future.done():
                async with asyncio.timeout(None if request.lane is AdmissionLane.REFRESH else self._max_queue_seconds):
                    await request.grant_future
            request.grant_future.result()
            outcome = "admitted"
        except TimeoutError:
            if self._queue_stalled_since is None:
                self._queue_stalled_since = request.requested_at
            raise self._busy_fault(f"No slot became free within {self._max_queue_seconds:g} s.") from None
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        finally:
            if outcome != "admitted":
                self._withdraw_request(request)
            self._record_admission_outcome(request, outcome)

    def _update_accounts(self, request: _SlotRequest, accounts: frozenset[str], joined_lane: AdmissionLane) -> None:
        """Replace the accounts that wait for the result of a queued request.

        If a caller has joined a refresh, move the refresh to the lane `joined_lane`.
        """
        callers = accounts - {BACKGROUND_ACCOUNT}
        if not request.is_queued or not callers:
            return
        if request.lane is AdmissionLane.REFRESH:
            self._queue.remove(request)
            request.lane, request.accounts = joined_lane, callers
            self._queue.add(request)
        else:
            self._queue.change_accounts(request, callers)
        self._grant_free_slots()

    def _withdraw_request(self, request: _SlotRequest) -> None:
        """Remove a request that failed or whose callers have left.

        If it has a slot already, release the slot; otherwise remove the request from the queue.
        """
        if request in self._running_slots:
            self._release_slot(request)
        elif request.is_queued:
            self._queue.remove(request)
        elif not request.grant_future.cancelled():
            # Read the exception of the refused request, because asyncio would log an exception that nobody has read.
            request.grant_future.exception()

    def _grant_free_slots(self) -> None:
        while True:
            candidate = self._queue.next_candidate(
                lambda lane: self._slot_policy.may_run(lane, self._running_counts_by_lane)
            )
            if candidate is None:
                return
            request = candidate.request
            self._queue.remove(request)
            if not request.grant_future.done():
                self._running_counts_by_lane[request.lane] += 1
                self._running_slots[request] = AdmissionSlot(
                    self,
                    request.lane,
                    candidate.charged_account,
                    self._slot_usage.record_slot_start(candidate.charged_account),
                )
                self._queue_stalled_since = None
                request.grant_future.set_result(None)

    def _release_slot(self, request: _SlotRequest) -> None:
        slot = self._running_slots.pop(request)
        self._slot_usage.record_slot_end(slot.charged_account, slot.started_at)
        if not slot.is_lent:
            self._running_counts_by_lane[slot.lane] -= 1
            self._queue_stalled_since = None
        self._grant_free_slots()

    def _record_admission_outcome(self, request: _SlotRequest, outcome: str) -> None:
        seconds = round(self._clock() - request.requested_at, 6)
        lane = request.lane.name.lower()
        self._observer.record(
            AdmissionAwaited(places=self._slot_policy.name, lane=lane, outcome=outcome, seconds=seconds)
        )

    def _busy_fault(self, message: str) -> ServiceBusy:
        return ServiceBusy(message, hint="Ask again in a moment.", retry_after=max(1.0, self._max_queue_seconds / 2))


def _ignore_change() -> None:
    """Do nothing. `WaitingAccounts.on_change` is this function while the run is not queued."""
