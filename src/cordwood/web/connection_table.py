"""Limits on open connections: their number, and the duration and size of unfinished request heads.

A connection *waits* while no request of it is being answered: it has sent nothing yet, only a part of a head, or it is
idle between two requests. Waiting connections are closed when they take too long, when all their unfinished heads
together take too much memory, and when their descriptors are needed for a new connection. Connections whose peer does
not read its answer are closed, too.
"""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

# From the opening of a connection, or the first byte of a later head, to the end of that head.
HEAD_SECONDS: Final = 20.0
# Between the end of a response and the first byte of the next request.
IDLE_SECONDS: Final = 75.0
# The total of all unfinished heads.
MOST_HEAD_BYTES: Final = 16 * 2**20
# Between two times at which the peer received a part of an answer.
STALL_SECONDS: Final = 30.0
SWEEP_SECONDS: Final = 1.0
# File descriptors reserved for the engine, the log, the files of a backup, and the listener.
RESERVED_DESCRIPTORS: Final = 128
# Connections beyond the limit, accepted while every other one is being answered: for probes and callers with a key.
RESERVED_CONNECTIONS: Final = 64


class Connection(Protocol):
    """The interface of a connection that the table uses."""

    @property
    def address(self) -> str:
        """The peer's host."""

    @property
    def waits_since(self) -> float | None:
        """The monotonic time at which the current wait began; None while a request is being answered."""

    @property
    def has_begun(self) -> bool:
        """Whether the wait is for the rest of a head, or for the first request of the connection."""

    @property
    def stalled_since(self) -> float | None:
        """The monotonic time at which the peer last read a part of a pending answer; None if no answer is pending."""

    def cut(self) -> None:
        """Close the connection now."""


class ConnectionTable:
    """All open connections of the process. Not thread-safe: use it on the event loop."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        # In order of arrival.
        self._open: dict[Connection, None] = {}
        self._by_address: Counter[str] = Counter()
        # The bytes of each unfinished head; `head_bytes` is their sum.
        self._heads: dict[Connection, int] = {}
        self.head_bytes = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> bool:
        """Add a connection, closing a waiting one if there are too many; return False if none can be closed.

        If no connection waits, one that is being answered is closed if its address has most of them, unless the new
        connection has the same address.
        """
        if len(self._open) >= self.most:
            self._evict(connection.address)
        if len(self._open) >= self.most + RESERVED_CONNECTIONS:
            return False
        self._open[connection] = None
        self._by_address[connection.address] += 1
        if self._sweeping is None:
            self._sweep_later()
        return True

    def discard(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]
        self.release_head(connection)

    def held_of(self, connection: Connection) -> int:
        """Return the counted bytes of the connection's unfinished head."""
        return self._heads.get(connection, 0)

    def hold_head(self, connection: Connection, more_bytes: int) -> None:
        """Count bytes of an unfinished head.

        If all heads together exceed the limit, the connections with the largest ones are closed, possibly this one.
        """
        self._heads[connection] = self.held_of(connection) + more_bytes
        self.head_bytes += more_bytes
        if self.head_bytes > MOST_HEAD_BYTES:
            for one in sorted(self._heads, key=self._heads.__getitem__, reverse=True):
                if self.head_bytes <= MOST_HEAD_BYTES // 2:
                    break
                self._cut(one)

    def release_head(self, connection: Connection) -> None:
        """Release the bytes of the connection's head, if any."""
        self.head_bytes -= self._heads.pop(connection, 0)

    def sweep(self) -> None:
        """Close connections that waited too long, and those whose peer does not read its answer."""
        now = self._clock()
        for connection in list(self._open):
            since = connection.stalled_since
            if since is not None and now - since > STALL_SECONDS:
                self._cut(connection)
        for connection in list(self._waiting()):
            most_seconds = HEAD_SECONDS if connection.has_begun else IDLE_SECONDS
            if connection.waits_since is not None and now - connection.waits_since > most_seconds:
                self._cut(connection)

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_in_turn)

    def _sweep_in_turn(self) -> None:
        self._sweeping = None
        self.sweep()
        if self._open:
            self._sweep_later()

    def _evict(self, new_address: str) -> None:
        """Close one waiting connection: the longest-waiting one of the address that has most of them."""
        waiting = list(self._waiting())
        if not waiting:
            self._evict_answered(new_address)
            return
        held = Counter(one.address for one in waiting)
        self._cut(max(waiting, key=lambda one: (held[one.address], one.has_begun, -(one.waits_since or 0.0))))

    def _evict_answered(self, new_address: str) -> None:
        """Close the newest connection of an address with more than half of all, unless the new one has that address."""
        ((crowd, count),) = self._by_address.most_common(1)
        if crowd != new_address and count > len(self._open) // 2:
            self._cut(next(one for one in reversed(self._open) if one.address == crowd))

    def _waiting(self) -> Iterable[Connection]:
        return (one for one in self._open if one.waits_since is not None)

    def _cut(self, connection: Connection) -> None:
        self.discard(connection)
        connection.cut()


def most_connections(wanted: int) -> int:
    """Return the limit on connections: as wanted, or as many as the process has descriptors for.

    Raises the soft limit of descriptors as far as needed and permitted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    beside = RESERVED_CONNECTIONS + RESERVED_DESCRIPTORS
    needed = wanted + beside
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(16, min(wanted, soft - beside))
