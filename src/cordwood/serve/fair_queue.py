"""Fair queueing between accounts: slots in use, recent usage of each account, and the choice of the next request."""

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

import msgspec

# The maximum number of accounts whose usage is remembered; the least recently used are forgotten first.
REMEMBERED_ACCOUNTS = 10_000
# The minimum charge of a run, so that accounts with many very short runs are scheduled fairly too.
_MIN_CHARGED_SECONDS = 0.001
# The account to which background refreshes are charged.
SERVICE = ""


class Lane(IntEnum):
    """The queue class of a run. Lanes with `OWN` are for queries that callers wrote, the others for saved queries."""

    QUICK = 0
    OWN_QUICK = 1
    UNKNOWN = 2
    SLOW = 3
    OWN_SLOW = 4
    REFRESH = 5

    @property
    def rank(self) -> int:
        """The priority within one account. Unknown and slow runs have the same rank and run in order of arrival."""
        return min(self, 2)

    @property
    def is_own(self) -> bool:
        """Whether the lane is for queries that callers wrote."""
        return self in (Lane.OWN_QUICK, Lane.UNKNOWN, Lane.OWN_SLOW)


class WaitingAccounts:
    """The accounts that wait for one run: the account that requested it, and those that joined it later."""

    def __init__(self, account: str) -> None:
        self._requests = Counter([account])
        self.on_change: Callable[[], None] = lambda: None

    @property
    def accounts(self) -> frozenset[str]:
        return frozenset(self._requests)

    def join(self, account: str) -> None:
        self._requests[account] += 1
        if self._requests[account] == 1:
            self.on_change()

    def leave(self, account: str) -> None:
        self._requests[account] -= 1
        if not self._requests[account]:
            del self._requests[account]
            self.on_change()


class SlotRequest:
    """A queued request for a slot, on behalf of all accounts that wait for the run.

    The future `granted` is resolved when the slot is granted or the request refused.
    """

    __slots__ = ("accounts", "granted", "is_queued", "lane", "number", "since")

    def __init__(self, lane: Lane, accounts: frozenset[str], number: int, since: float) -> None:
        self.lane = lane
        self.accounts = accounts
        self.number = number
        self.since = since
        self.is_queued = False
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Usage:
    """The slot seconds that each account has used, which count half after `half_life_seconds`."""

    def __init__(self, half_life_seconds: float, clock: Callable[[], float]) -> None:
        self._half_life = half_life_seconds
        self._clock = clock
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._running: dict[str, list[float]] = {}

    def of(self, account: str) -> float:
        """Return the usage of an account, including its running slots until now."""
        now = self._clock()
        running = sum(max(now - started_at, _MIN_CHARGED_SECONDS) for started_at in self._running.get(account, ()))
        return self._decayed_seconds(account, now) + running

    def begin(self, account: str) -> float:
        started_at = self._clock()
        self._running.setdefault(account, []).append(started_at)
        return started_at

    def end(self, account: str, started_at: float) -> None:
        now = self._clock()
        running = self._running[account]
        running.remove(started_at)
        if not running:
            del self._running[account]
        self._used[account] = self._decayed_seconds(account, now) + max(now - started_at, _MIN_CHARGED_SECONDS), now
        self._used.move_to_end(account)
        if len(self._used) > REMEMBERED_ACCOUNTS:
            self._used.popitem(last=False)

    def _decayed_seconds(self, account: str, now: float) -> float:
        seconds, recorded_at = self._used.get(account, (0.0, now))
        return seconds * math.exp2((recorded_at - now) / self._half_life)


class Candidate(msgspec.Struct, frozen=True):
    """The next request of an account. `account` is the one with least usage among those that wait for the request."""

    request: SlotRequest
    account: str
    usage: float


class FairQueue:
    """Queued requests by lane and account. The next request is that of the account with the least usage."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._waiting: dict[Lane, dict[str, dict[int, SlotRequest]]] = {lane: {} for lane in Lane}
        self._counts: Counter[str] = Counter()
        self._sizes = dict.fromkeys(Lane, 0)

    def __len__(self) -> int:
        """Return the number of queued requests other than refreshes."""
        return sum(size for lane, size in self._sizes.items() if lane is not Lane.REFRESH)

    @property
    def sizes(self) -> Mapping[Lane, int]:
        return self._sizes

    def add(self, request: SlotRequest) -> None:
        request.is_queued = True
        self._sizes[request.lane] += 1
        for account in request.accounts:
            self._add_request(request, account)

    def remove(self, request: SlotRequest) -> None:
        request.is_queued = False
        self._sizes[request.lane] -= 1
        for account in request.accounts:
            self._remove_request(request, account)

    def change(self, request: SlotRequest, accounts: frozenset[str]) -> None:
        """Change the accounts that wait for a queued request."""
        for account in request.accounts - accounts:
            self._remove_request(request, account)
        for account in accounts - request.accounts:
            self._add_request(request, account)
        request.accounts = accounts

    def _add_request(self, request: SlotRequest, account: str) -> None:
        self._waiting[request.lane].setdefault(account, {})[request.number] = request
        if request.lane is not Lane.REFRESH:
            self._counts[account] += 1

    def _remove_request(self, request: SlotRequest, account: str) -> None:
        requests = self._waiting[request.lane][account]
        del requests[request.number]
        if not requests:
            del self._waiting[request.lane][account]
        if request.lane is not Lane.REFRESH:
            self._counts[account] -= 1
            if not self._counts[account]:
                del self._counts[account]

    def next(self, may_run: Callable[[Lane], bool]) -> Candidate | None:
        """Return the next request in the lanes that may run. Refreshes come after all other requests."""
        used: dict[str, float] = {}
        best_candidate: tuple[tuple[bool, float, int, int], Candidate] | None = None
        for lane, waiting in self._waiting.items():
            if not waiting or not may_run(lane):
                continue
            for account, requests in waiting.items():
                request = next(iter(requests.values()))
                if account not in used:
                    used[account] = self._usage.of(account)
                order = (lane is Lane.REFRESH, used[account], lane.rank, request.number)
                if best_candidate is None or order < best_candidate[0]:
                    best_candidate = order, Candidate(request, account, used[account])
        return None if best_candidate is None else best_candidate[1]

    def choose_refused(self, newest: SlotRequest) -> SlotRequest:
        """Return the request to refuse when the queue is full: the newest of the account with most queued requests.

        If no account has more queued requests than the account of the new one, the new request is refused. An account
        with most queued requests gives up its own least urgent request for a more urgent one.
        """
        own_count = min(self._counts[account] for account in newest.accounts)
        for account, count in self._counts.most_common():
            if count <= own_count and account not in newest.accounts:
                break
            for request in self._least_urgent_first(account):
                if min(self._counts[account] for account in request.accounts) > own_count:
                    return request
                if request.accounts <= newest.accounts and request.lane.rank > newest.lane.rank:
                    return request
        return newest

    def _least_urgent_first(self, account: str) -> Iterator[SlotRequest]:
        for lane in reversed(Lane):
            if lane is not Lane.REFRESH:
                yield from reversed(self._waiting[lane].get(account, {}).values())
