"""Cached answers: when they are fresh, stale, due and expired, and the refresh of those that are requested often."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable

import msgspec

from cordwood.bounded_cache import bytes_of
from cordwood.cache.cache import AnswerCache
from cordwood.catalog.catalog import Catalog
from cordwood.errors import Fault
from cordwood.model.endpoint import Endpoint
from cordwood.observe.observation import Refreshed
from cordwood.observe.observer import Observer
from cordwood.serve.ask import Ask
from cordwood.serve.jobs import Finished

SECOND_US = 1_000_000

# A refresh starts before the answer is `warm` seconds old, earlier by a lead between these two shares. The lead depends
# on the cache key, so that entries made together are not refreshed together.
LEAST_LEAD, MOST_LEAD = 0.02, 0.10
# A failed refresh is retried after the first share of `warm` seconds, doubling up to the second share.
FIRST_RETRY, LAST_RETRY = 1 / 30, 1 / 5


class Entry(msgspec.Struct):
    """A cached answer and the request that made it."""

    key: bytes
    ask: Ask
    finished: Finished
    asked_us: int
    failures: int = 0
    failed_us: int = 0
    ask_bytes: int = 0

    def __post_init__(self) -> None:
        ask = self.ask
        self.ask_bytes = bytes_of((ask.parameters, ask.sandbox, ask.endpoint if ask.is_ad_hoc else None))

    @property
    def size(self) -> int:
        return self.finished.size + self.ask_bytes

    @property
    def made_us(self) -> int:
        return self.finished.receipt.made_us


def age_us(entry: Entry, now_us: int) -> int:
    return max(0, now_us - entry.made_us)


def expires_us(entry: Entry) -> int:
    return entry.made_us + int(entry.ask.endpoint.cache_seconds * SECOND_US)


def is_expired(entry: Entry, now_us: int) -> bool:
    return now_us >= expires_us(entry)


def is_stale(entry: Entry, now_us: int) -> bool:
    """Return whether the answer is older than `warm` seconds because its refresh failed."""
    warm = entry.ask.endpoint.warm_seconds
    return warm is not None and entry.failures > 0 and age_us(entry, now_us) >= warm * SECOND_US


def is_wanted(entry: Entry, now_us: int) -> bool:
    """Return whether it was requested within one cache lifetime."""
    return now_us - entry.asked_us < entry.ask.endpoint.cache_seconds * SECOND_US


def due_us(entry: Entry) -> int:
    """Return when to refresh the answer; its expiry if it is not refreshed."""
    warm = entry.ask.endpoint.warm_seconds
    if not warm:
        return expires_us(entry)
    if entry.failures:
        pause = warm * min(LAST_RETRY, FIRST_RETRY * 2 ** min(entry.failures - 1, 10))
        return entry.failed_us + int(pause * SECOND_US)
    return entry.made_us + int(warm * (1 - _lead(entry.key)) * SECOND_US)


def lifetime_seconds(endpoint: Endpoint) -> float:
    """Return for how many seconds an answer counts as fresh: `max-age` of its response."""
    return endpoint.warm_seconds or endpoint.cache_seconds


def _lead(key: bytes) -> float:
    return LEAST_LEAD + (MOST_LEAD - LEAST_LEAD) * key[0] / 255


LOOK_SECONDS = 1.0
# When the heap has this many times, those of evicted entries are removed.
LEAST_TIMES = 1000


class Refresher:
    """Schedules the refresh of each cached answer. `ask_again` runs a request and replaces its entry."""

    def __init__(
        self,
        cache: AnswerCache,
        catalog: Catalog,
        observer: Observer,
        clock_us: Callable[[], int],
        ask_again: Callable[[Ask, Entry], Awaitable[None]],
    ) -> None:
        self._cache = cache
        self._catalog = catalog
        self._observer = observer
        self._clock_us = clock_us
        self._ask_again = ask_again
        self._times: list[tuple[int, bytes]] = []
        self._watched: set[bytes] = set()
        self._most_times = LEAST_TIMES
        self._refreshing: dict[bytes, asyncio.Task[None]] = {}
        self._revisions = self._current_revisions()

    def watch(self, entry: Entry) -> None:
        if entry.key not in self._watched:
            if len(self._times) >= self._most_times:
                self._forget_dropped()
            self._watched.add(entry.key)
            heapq.heappush(self._times, (due_us(entry), entry.key))

    def _forget_dropped(self) -> None:
        """Remove evicted entries from the schedule, because there may be many more of them than the cache holds."""
        self._times = [(time, key) for time, key in self._times if self._cache.peek(key) is not None]
        heapq.heapify(self._times)
        self._watched = {key for _, key in self._times}
        self._most_times = max(LEAST_TIMES, 2 * len(self._times))

    async def run(self) -> None:
        while True:
            self.tick()
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        """Cancel the running refreshes; no caller waits for them."""
        refreshing = list(self._refreshing.values())
        for task in refreshing:
            task.cancel()
        await asyncio.gather(*refreshing, return_exceptions=True)

    def tick(self) -> list["asyncio.Task[None]"]:
        """Process every entry that is due; return the refresh tasks that were started."""
        now_us = self._clock_us()
        self._look_at_changed()
        started = []
        while self._times and self._times[0][0] <= now_us:
            _, key = heapq.heappop(self._times)
            self._watched.discard(key)
            task = self._look_at(key, now_us)
            if task is not None:
                started.append(task)
        return started

    def _look_at_changed(self) -> None:
        """Make the entries due whose endpoint has changed."""
        revisions = self._current_revisions()
        if revisions == self._revisions:
            return
        self._revisions = revisions
        self._times = [(0 if self._is_outdated(key) else time, key) for time, key in self._times]
        heapq.heapify(self._times)

    def _current_revisions(self) -> dict[str, str]:
        return {str(endpoint.id): endpoint.revision for endpoint in self._catalog.endpoints()}

    def _is_outdated(self, key: bytes) -> bool:
        entry = self._cache.peek(key)
        if not isinstance(entry, Entry):
            return True
        return self._revisions.get(str(entry.ask.endpoint.id)) != entry.ask.endpoint.revision

    def _look_at(self, key: bytes, now_us: int) -> "asyncio.Task[None] | None":
        entry = self._cache.peek(key)
        if not isinstance(entry, Entry):
            return None
        outdated = self._is_outdated(key)
        if outdated or is_expired(entry, now_us) or not is_wanted(entry, now_us):
            self._cache.drop(key)
        if is_wanted(entry, now_us) and entry.ask.endpoint.warm_seconds:
            return self._refresh(entry)
        return None

    def _refresh(self, entry: Entry) -> "asyncio.Task[None] | None":
        endpoint = self._catalog.endpoint(str(entry.ask.endpoint.id))
        if endpoint is None or not endpoint.warm_seconds or entry.key in self._refreshing:
            return None
        task = asyncio.ensure_future(self._again(entry, msgspec.structs.replace(entry.ask, endpoint=endpoint)))
        self._refreshing[entry.key] = task
        task.add_done_callback(lambda _: self._refreshing.pop(entry.key, None))
        return task

    async def _again(self, entry: Entry, ask: Ask) -> None:
        outcome = "ok"
        try:
            await self._ask_again(ask, entry)
        except Fault as fault:
            outcome = fault.code
            entry.failures += 1
            entry.failed_us = self._clock_us()
            if self._cache.peek(entry.key) is entry:
                self.watch(entry)
        self._observer.note(Refreshed(endpoint=ask.endpoint.name, outcome=outcome, failures=entry.failures))
