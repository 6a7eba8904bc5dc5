"""Limits on open connections: their number, and the duration and size of unfinished request heads.

A connection *waits* while none of its requests is being answered: it has sent nothing or only a part of a request head,
or is idle between two requests. A waiting connection is closed when it takes too long, when all unfinished heads
together take too much memory, and when a new connection needs its file descriptor. A connection whose peer does not
read its answer is closed as well.
"""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

# The maximum time from the opening of a connection, or from the first byte of a later head, to the end of the head.
HEAD_SECONDS: Final = 20.0
# The maximum time from the end of a response to the first byte of the next request.
IDLE_SECONDS: Final = 75.0
# The maximum bytes of all unfinished heads together.
MAX_HEAD_BYTES: Final = 16 * 2**20
# The maximum time in which the peer reads nothing of its answer.
STALL_SECONDS: Final = 30.0
SWEEP_SECONDS: Final = 1.0
# File descriptors reserved for the engine, the log, the files of a backup, and the listener.
RESERVED_DESCRIPTORS: Final = 128
# Further connections that are accepted while all others are being answered, for probes and for callers with a key.
RESERVED_CONNECTIONS: Final = 64


class Connection(Protocol):
    """The interface of a connection in the table."""

    @property
    def address(self) -> str:
        """The peer's host."""

    @property
    def waits_since(self) -> float | None:
        """The monotonic time at which the current wait began, or None while a request is being answered."""

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has arrived, or the connection waits for its first request."""

    @property
    def stalled_since(self) -> float | None:
        """The monotonic time since which the peer reads nothing of a pending answer; None without a pending answer."""

    def cut(self) -> None:
        """Close the connection now."""


class ConnectionTable:
    """All open connections of the process. Not thread-safe: use it on the event loop."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        # In order of arrival.
        self._open: dict[Connection, None] = {}
        self._by_address: Counter[str] = Counter()
        # Bytes of the unfinished head by connection; `head_bytes` is their sum.
        self._heads: dict[Connection, int] = {}
        self.head_bytes = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> bool:
        """Add a connection. If there are too many, close a waiting one; return False if none can be closed.

        If no connection waits, close one that is being answered, of the address with most connections. It must not be
        the address of the new connection.
        """
        if len(self._open) >= self.limit:
            self._evict(connection.address)
        if len(self._open) >= self.limit + RESERVED_CONNECTIONS:
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

    def head_bytes_of(self, connection: Connection) -> int:
        """Return the counted bytes of the connection's unfinished head."""
        return self._heads.get(connection, 0)

    def hold_head(self, connection: Connection, more_bytes: int) -> None:
        """Count more bytes of an unfinished head.

        If all heads together exceed the limit, close the connections with the largest heads, possibly this one.
        """
        self._heads[connection] = self.head_bytes_of(connection) + more_bytes
        self.head_bytes += more_bytes
        if self.head_bytes > MAX_HEAD_BYTES:
            for one in sorted(self._heads, key=self._heads.__getitem__, reverse=True):
                if self.head_bytes <= MAX_HEAD_BYTES // 2:
                    break
                self._cut(one)

    def release_head(self, connection: Connection) -> None:
        """Release the bytes of the connection's head, if any."""
        self.head_bytes -= self._heads.pop(connection, 0)

    def sweep(self) -> None:
        """Close connections that have waited too long, and connections whose peers do not read their answers."""
        now = self._clock()
        for connection in list(self._open):
            since = connection.stalled_since
            if since is not None and now - since > STALL_SECONDS:
                self._cut(connection)
        for connection in list(self._waiting()):
            max_seconds = HEAD_SECONDS if connection.has_begun else IDLE_SECONDS
            if connection.waits_since is not None and now - connection.waits_since > max_seconds:
                self._cut(connection)

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_and_reschedule)

    def _sweep_and_reschedule(self) -> None:
        self._sweeping = None
        self.sweep()
        if self._open:
            self._sweep_later()

    def _evict(self, new_address: str) -> None:
        """Close the longest-waiting connection of the address that has most waiting connections."""
        waiting = list(self._waiting())
        if not waiting:
            self._evict_busy(new_address)
            return
        held = Counter(one.address for one in waiting)
        self._cut(max(waiting, key=lambda one: (held[one.address], one.has_begun, -(one.waits_since or 0.0))))

    def _evict_busy(self, new_address: str) -> None:
        """Close the newest connection of the address with over half of all, unless the new one has this address."""
        ((crowd, count),) = self._by_address.most_common(1)
        if crowd != new_address and count > len(self._open) // 2:
            self._cut(next(one for one in reversed(self._open) if one.address == crowd))

    def _waiting(self) -> Iterable[Connection]:
        return (one for one in self._open if one.waits_since is not None)

    def _cut(self, connection: Connection) -> None:
        self.discard(connection)
        connection.cut()


def max_connections(requested: int) -> int:
    """Return the limit on connections: as many as requested, or as many as there are file descriptors for.

    Raises the soft limit of descriptors as far as it is needed and permitted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    beside = RESERVED_CONNECTIONS + RESERVED_DESCRIPTORS
    needed = requested + beside
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return requested if soft == resource.RLIM_INFINITY else max(16, min(requested, soft - beside))
