"""Refresh cached answers before they expire, and evict those that are no longer requested."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable

import msgspec

from cordwood.cache.cache import AnswerCache
from cordwood.catalog.catalog import Catalog
from cordwood.errors import Fault
from cordwood.observe.observation import Refreshed
from cordwood.observe.observer import Observer
from cordwood.serve.ask import Ask
from cordwood.serve.freshness import Entry, due_us, is_expired, is_wanted

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
