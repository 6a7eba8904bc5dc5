"""Whose turn it is at the engine: few at once, a bounded queue, and quick questions before slow ones."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum

from cordwood.errors import Busy


class Lane(IntEnum):
    """How a question queues, the first lane first."""

    QUICK = 0
    UNKNOWN = 1
    SLOW = 2
    REFRESH = 3


class Turn:
    """A place at the engine; `crowded` says that others wait for one."""

    def __init__(self, gate: "Gate", lane: Lane) -> None:
        self._gate = gate
        self.lane = lane

    @property
    def crowded(self) -> bool:
        return self._gate.waiting > 0


class Gate:
    """At most `places` runs at once, of which slow and unknown ones never take the last.

    Callers wait for at most `patience_seconds`, and at most `queue_length` of them; refreshes wait as long as it takes.
    """

    def __init__(self, places: int, queue_length: int, patience_seconds: float) -> None:
        self.places = max(2, places)
        self._queue_length = queue_length
        self._patience = patience_seconds
        self._running = dict.fromkeys(Lane, 0)
        self._queues: dict[Lane, deque[asyncio.Future[None]]] = {lane: deque() for lane in Lane}

    @property
    def waiting(self) -> int:
        """How many callers wait; refreshes have time."""
        return sum(len(queue) for lane, queue in self._queues.items() if lane is not Lane.REFRESH)

    @property
    def running(self) -> int:
        return sum(self._running.values())

    @asynccontextmanager
    async def turn(self, lane: Lane) -> AsyncIterator[Turn]:
        await self._wait(lane)
        try:
            yield Turn(self, lane)
        finally:
            self._running[lane] -= 1
            self._admit()

    async def _wait(self, lane: Lane) -> None:
        if self._may_run(lane) and not self._queues[lane]:
            self._running[lane] += 1
            return
        if lane is not Lane.REFRESH and self.waiting >= self._queue_length:
            raise self._busy("There are more queries waiting than the service holds.")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues[lane].append(place)
        try:
            async with asyncio.timeout(None if lane is Lane.REFRESH else self._patience):
                await place
        except TimeoutError:
            self._leave(lane, place)
            raise self._busy(f"No place at the engine came free within {self._patience:g} s.") from None
        except asyncio.CancelledError:
            self._leave(lane, place)
            raise

    def _leave(self, lane: Lane, place: "asyncio.Future[None]") -> None:
        """Out of the queue, or out of the place that was given a moment too late."""
        if place in self._queues[lane]:
            self._queues[lane].remove(place)
        elif place.done() and not place.cancelled():
            self._running[lane] -= 1
            self._admit()

    def _admit(self) -> None:
        for lane in Lane:
            queue = self._queues[lane]
            while queue and self._may_run(lane):
                place = queue.popleft()
                if not place.done():
                    self._running[lane] += 1
                    place.set_result(None)

    def _may_run(self, lane: Lane) -> bool:
        running = self.running
        if lane is Lane.QUICK:
            return running < self.places
        if running >= self.places - 1:
            return False
        return lane is Lane.UNKNOWN or self._running[lane] < max(1, self.places // 4)

    def _busy(self, message: str) -> Busy:
        return Busy(message, hint="Ask again in a moment.", retry_after=max(1.0, self._patience / 2))
