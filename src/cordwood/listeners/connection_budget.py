"""Limits on the open connections of all listeners: their number, and the time for an unfinished message.

A connection that has sent no valid message yet is closed after some seconds, and one with an unfinished message when
that stalls or arrives too slowly. Other idle connections stay open, because senders keep connections for hours, until
another connection needs their place. One address has at most half of the places.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from cordwood.web.receiving import GRACE_SECONDS, MIN_BYTES_PER_SECOND, STALL_SECONDS

# The maximum time from the opening of a connection to its first valid message.
FIRST_MESSAGE_SECONDS: Final = 20.0
SWEEP_SECONDS: Final = 1.0


class Connection(Protocol):
    """The interface of a connection in the budget. Times are monotonic."""

    opened_at: float
    # Whether the connection has sent a valid message.
    is_proven: bool
    # The bytes of the unfinished message, and for how many seconds its sender was waited for.
    partial_bytes: int
    waited_seconds: float
    # The time since which the sender is waited for, or None while events of the connection are being stored.
    waiting_since: float | None

    @property
    def address(self) -> str:
        """The host of the sender."""

    def cut(self) -> None:
        """Close the connection now."""


class ConnectionBudget:
    """All open connections of the listeners. Not thread-safe: use it on the event loop."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._max_of_one = max(1, limit // 2)
        self._clock = clock
        # In order of arrival.
        self._open: dict[Connection, None] = {}
        self._by_address: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None
        self.cut_count = 0

    @property
    def open_connections(self) -> tuple[Connection, ...]:
        return tuple(self._open)

    def add(self, connection: Connection) -> bool:
        """Add a connection. If there are too many, close another one; return False if none can be closed."""
        own = connection.address
        if self._by_address[own] >= self._max_of_one:
            self._evict(one for one in self._open if one.address == own)
        elif len(self._open) >= self._limit:
            self._evict(self._open)
        if self._by_address[own] >= self._max_of_one or len(self._open) >= self._limit:
            return False
        self._open[connection] = None
        self._by_address[own] += 1
        if self._sweeping is None:
            self._sweep_later()
        return True

    def discard(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def sweep(self) -> None:
        """Close the connections whose senders have been waited for too long."""
        now = self._clock()
        for connection in list(self._open):
            if self._is_overdue(connection, now):
                self._cut(connection)

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _is_overdue(self, connection: Connection, now: float) -> bool:
        if connection.waiting_since is None:
            return False
        if not connection.is_proven and now - connection.opened_at > FIRST_MESSAGE_SECONDS:
            return True
        waits = now - connection.waiting_since
        min_bytes = (connection.waited_seconds + waits - GRACE_SECONDS) * MIN_BYTES_PER_SECOND
        return connection.partial_bytes > 0 and (waits > STALL_SECONDS or connection.partial_bytes < min_bytes)

    def _evict(self, candidates: Iterable[Connection]) -> None:
        """Close a waiting connection of the address with most connections, an unproven one if there is one."""
        waiting = [one for one in candidates if one.waiting_since is not None]
        if waiting:
            held = self._by_address
            self._cut(max(waiting, key=lambda one: (not one.is_proven, held[one.address], -(one.waiting_since or 0.0))))

    def _cut(self, connection: Connection) -> None:
        self.cut_count += 1
        self.discard(connection)
        connection.cut()

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_and_reschedule)

    def _sweep_and_reschedule(self) -> None:
        self._sweeping = None
        self.sweep()
        if self._open:
            self._sweep_later()
