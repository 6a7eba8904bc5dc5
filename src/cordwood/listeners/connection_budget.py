"""Limits on the open connections of all listeners: their number, and the time that an unfinished message may take.

A connection from which no valid message has come yet is closed after some seconds, and one that has an unfinished
message when that stalls or arrives too slowly. Other idle connections are kept, since senders keep theirs open for
hours, until their place is needed. One address holds at most half of the places.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from cordwood.web.receiving import GRACE_SECONDS, LEAST_BYTES_PER_SECOND, STALL_SECONDS

# From the opening of a connection to its first valid message.
UNPROVEN_SECONDS: Final = 20.0
SWEEP_SECONDS: Final = 1.0


class Connection(Protocol):
    """The interface of a connection that the budget uses. Times are monotonic."""

    opened_at: float
    # Whether a valid message has come from it.
    is_proven: bool
    # The bytes of the unfinished message, and the seconds for which its sender was waited for.
    partial_bytes: int
    waited_seconds: float
    # Since when its sender is waited for; None while the service is storing what it sent.
    waiting_since: float | None

    @property
    def address(self) -> str:
        """The host of the sender."""

    def cut(self) -> None:
        """Close the connection now."""


class ConnectionBudget:
    """All open connections of the listeners. Not thread-safe: use it on the event loop."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._most_of_one = max(1, most // 2)
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
        """Add a connection, closing another one if there are too many; return False if none can be closed."""
        own = connection.address
        if self._by_address[own] >= self._most_of_one:
            self._evict(one for one in self._open if one.address == own)
        elif len(self._open) >= self._most:
            self._evict(self._open)
        if self._by_address[own] >= self._most_of_one or len(self._open) >= self._most:
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
        """Close the connections that are waited for too long."""
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
        if not connection.is_proven and now - connection.opened_at > UNPROVEN_SECONDS:
            return True
        waits = now - connection.waiting_since
        least_bytes = (connection.waited_seconds + waits - GRACE_SECONDS) * LEAST_BYTES_PER_SECOND
        return connection.partial_bytes > 0 and (waits > STALL_SECONDS or connection.partial_bytes < least_bytes)

    def _evict(self, among: Iterable[Connection]) -> None:
        """Close one waiting connection: an unproven one if there is one, of the address that has most of them."""
        waiting = [one for one in among if one.waiting_since is not None]
        if waiting:
            held = self._by_address
            self._cut(max(waiting, key=lambda one: (not one.is_proven, held[one.address], -(one.waiting_since or 0.0))))

    def _cut(self, connection: Connection) -> None:
        self.cut_count += 1
        self.discard(connection)
        connection.cut()

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_in_turn)

    def _sweep_in_turn(self) -> None:
        self._sweeping = None
        self.sweep()
        if self._open:
            self._sweep_later()
