"""Single flight: concurrent requests for the same key share one run."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from cordwood.engines.halt import Halt
from cordwood.serve.fair_queue import Askers

T = TypeVar("T")


class _Flight(msgspec.Struct, Generic[T]):
    task: asyncio.Task[T]
    halt: Halt
    askers: Askers
    waiting: int = 0


class Flights(Generic[T]):
    """Runs by key. A run is cancelled when its last waiting caller leaves."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Flight[T]] = {}

    def under_way(self, key: Hashable) -> bool:
        return key in self._under_way

    async def join(self, key: Hashable, account: str, start: Callable[[Halt, Askers], Awaitable[T]]) -> T:
        """Start a run or join the running one; return its result. The account is SERVICE for a refresh."""
        flight = self._under_way.get(key)
        if flight is None:
            flight = self._take_off(key, account, start)
        else:
            flight.askers.join(account)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            flight.askers.leave(account)
            if flight.waiting == 0 and not flight.task.done():
                self._abandon(key, flight)

    def _take_off(self, key: Hashable, account: str, start: Callable[[Halt, Askers], Awaitable[T]]) -> _Flight[T]:
        halt, askers = Halt(), Askers(account)
        flight = _Flight(asyncio.ensure_future(start(halt, askers)), halt, askers)
        self._under_way[key] = flight
        flight.task.add_done_callback(lambda _: self._land(key, flight))
        return flight

    def _land(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._under_way.get(key) is flight:
            del self._under_way[key]
        if not flight.task.cancelled():
            # Retrieve the exception, so that asyncio does not log it as unhandled when all callers have left.
            flight.task.exception()

    def _abandon(self, key: Hashable, flight: _Flight[T]) -> None:
        del self._under_way[key]
        flight.halt.pull()
        flight.task.cancel()
