"""Connections of listeners: reading with back pressure, TLS, limits, and memory from the budget of request bodies.

A connection is closed if it sends no valid message within `MAX_FIRST_MESSAGE_SECONDS`. It is also closed if an
unfinished message stalls or arrives too slowly. Other idle connections stay open, because senders keep connections for
hours. If the number of connections has reached its limit, a new connection replaces an idle one. One address may have
at most half of all connections.
"""

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import Final, Protocol, Self, cast

from cordwood.errors import BacklogFull
from cordwood.ingest.limits import BodyMemoryBudget, MemoryReservation
from cordwood.web.request_body import BODY_RATE_GRACE_SECONDS, MAX_READ_STALL_SECONDS, MIN_BODY_BYTES_PER_SECOND

# The maximum time from the opening of a connection to its first valid message.
MAX_FIRST_MESSAGE_SECONDS: Final = 20.0
OVERDUE_CHECK_INTERVAL_SECONDS: Final = 1.0


class LimitedConnection(Protocol):
    """The interface of a connection that `ConnectionBudget` limits. Times are seconds of a monotonic clock."""

    opened_at: float
    # Whether the connection has sent a valid message.
    has_sent_valid_message: bool
    # `partial_message_bytes` is the number of bytes of the unfinished message that have arrived.
    # `partial_message_wait_seconds` is for how long the service has waited for data of this message. A connection whose
    # bytes arrive too slowly is closed.
    partial_message_bytes: int
    partial_message_wait_seconds: float
    # Since when the service has been waiting for data from the sender. None while the service stores events of the
    # connection, so that this time does not count against the sender.
    waiting_since: float | None

    @property
    def peer_address(self) -> str:
        """The host of the sender."""

    def abort(self) -> None:
        """Close the connection now."""


class ConnectionBudget:
    """The open connections of all listeners, limited in number. Not thread-safe: use it only on the event loop."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_connections = limit
        self._max_connections_per_address = max(1, limit // 2)
        self._clock = clock
        # The open connections, in order of arrival.
        self._open_connections: dict[LimitedConnection, None] = {}
        self._connection_counts_by_address: Counter[str] = Counter()
        self._overdue_timer: asyncio.TimerHandle | None = None
        self.aborted_count = 0

    @property
    def open_connections(self) -> tuple[LimitedConnection, ...]:
        return tuple(self._open_connections)

    def add(self, connection: LimitedConnection) -> bool:
        """Add a connection; return False if there are too many and none of them can be closed.

        If a limit is reached, another connection is closed to make room.
        """
        own = connection.peer_address
        if self._connection_counts_by_address[own] >= self._max_connections_per_address:
            self._evict_connection(one for one in self._open_connections if one.peer_address == own)
        elif len(self._open_connections) >= self._max_connections:
            self._evict_connection(self._open_connections)
        if (
            self._connection_counts_by_address[own] >= self._max_connections_per_address
            or len(self._open_connections) >= self._max_connections
        ):
            return False
        self._open_connections[connection] = None
        self._connection_counts_by_address[own] += 1
        if self._overdue_timer is None:
            self._schedule_overdue_check()
        return True

    def discard(self, connection: LimitedConnection) -> None:
        if connection in self._open_connections:
            del self._open_connections[connection]
            self._connection_counts_by_address[connection.peer_address] -= 1
            if not self._connection_counts_by_address[connection.peer_address]:
                del self._connection_counts_by_address[connection.peer_address]

    def close_overdue_connections(self) -> None:
        """Close each connection whose sender has kept the service waiting too long."""
        now = self._clock()
        for connection in list(self._open_connections):
            if self._is_overdue(connection, now):
                self._abort(connection)

    def close(self) -> None:
        if self._overdue_timer is not None:
            self._overdue_timer.cancel()

    def _is_overdue(self, connection: LimitedConnection, now: float) -> bool:
        if connection.waiting_since is None:
            return False
        if not connection.has_sent_valid_message and now - connection.opened_at > MAX_FIRST_MESSAGE_SECONDS:
            return True
        waits = now - connection.waiting_since
        min_bytes = (
            connection.partial_message_wait_seconds + waits - BODY_RATE_GRACE_SECONDS
        ) * MIN_BODY_BYTES_PER_SECOND
        return connection.partial_message_bytes > 0 and (
            waits > MAX_READ_STALL_SECONDS or connection.partial_message_bytes < min_bytes
        )

    def _evict_connection(self, candidates: Iterable[LimitedConnection]) -> None:
        """Close one of the candidates; never close a connection whose events are being stored.

        The candidate to close is chosen by three criteria, in this order: the connection has sent no valid message; its
        address has the most connections; it has been waiting longest.
        """
        waiting = [one for one in candidates if one.waiting_since is not None]
        if waiting:
            held = self._connection_counts_by_address
            self._abort(
                max(
                    waiting,
                    key=lambda one: (
                        not one.has_sent_valid_message,
                        held[one.peer_address],
                        -(one.waiting_since or 0.0),
                    ),
                )
            )

    def _abort(self, connection: LimitedConnection) -> None:
        self.aborted_count += 1
        self.discard(connection)
        connection.abort()

    def _schedule_overdue_check(self) -> None:
        self._overdue_timer = asyncio.get_running_loop().call_later(
            OVERDUE_CHECK_INTERVAL_SECONDS, self._check_overdue_and_reschedule
        )

    def _check_overdue_and_reschedule(self) -> None:
        self._overdue_timer = None
        self.close_overdue_connections()
        if self._open_connections:
            self._schedule_overdue_check()


# Reading pauses once this many bytes have arrived that were not fetched by `take_unread`.
MAX_UNREAD_BYTES: Final = 64 * 1024
# The number of bytes that a connection may hold without reserving memory for them.
MAX_UNRESERVED_BYTES: Final = 16 * 1024
_MEMORY_RETRY_SECONDS: Final = 0.25


class ConnectionAbortedByServerError(Exception):
    """Raised if the connection was closed because there were too many connections, or because its memory was needed."""


class SenderConnection(asyncio.Protocol):
    """An accepted connection of a sender.

    The function `handle` reads the connection until its end. Then `at_end` is called with the error that ended the
    connection, or None.
    """

    def __init__(
        self,
        accepted: socket.socket,
        budget: ConnectionBudget,
        handle: "Callable[[SenderConnection], Awaitable[None]]",
        at_end: "Callable[[SenderConnection, BaseException | None], None]",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._accepted_socket = accepted
        self._connection_budget = budget
        self._handle_connection = handle
        self._on_end = at_end
        self._tls_context = tls
        self._unread_data = bytearray()
        self._data_or_end_event = asyncio.Event()
        self._writable_event = asyncio.Event()
        self._writable_event.set()
        self._has_ended = self._is_paused = False
        self.is_aborted = False
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.peer_address = _peer_host(accepted)
        self.is_stopping = False
        self.has_sent_valid_message = False
        self.opened_at = time.monotonic()
        self.partial_message_bytes = 0
        self.partial_message_wait_seconds = 0.0
        self.waiting_since: float | None = self.opened_at

    def start(self) -> bool:
        """Start reading; if there are too many connections, close this one and return False."""
        if not self._connection_budget.add(self):
            self._accepted_socket.close()
            return False
        self._task = asyncio.get_running_loop().create_task(self._run())
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread_data += data
        self._data_or_end_event.set()
        if len(self._unread_data) >= MAX_UNREAD_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._data_or_end_event.set()
        # A connection without TLS stays open for writing, so that its last events can be acknowledged before it is
        # closed.
        return self._tls_context is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection_budget.discard(self)
        self._has_ended = True
        self._data_or_end_event.set()
        self._writable_event.set()

    def pause_writing(self) -> None:
        self._writable_event.clear()

    def resume_writing(self) -> None:
        self._writable_event.set()

    def abort(self) -> None:
        self.is_aborted = True
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            # Without a transport, the TLS handshake is not complete, so cancel the task that performs it.
            self._task.cancel()
        self._data_or_end_event.set()
        self._writable_event.set()

    async def wait_for_data(self) -> bool:
        """Wait until data has arrived; raise ConnectionAbortedByServerError if the service has closed the connection.

        Return False if there is no more data, because the sender has ended the connection or the service stops.
        """
        while not (self._unread_data or self._has_ended or self.is_aborted):
            self._data_or_end_event.clear()
            await self._wait_for_sender(self._data_or_end_event)
        if self.is_aborted:
            raise ConnectionAbortedByServerError
        return bool(self._unread_data)

    @property
    def unread_bytes(self) -> int:
        return len(self._unread_data)

    def take_unread(self) -> bytes:
        """Return the data that has arrived, and empty the buffer. Reading resumes if it was paused."""
        data, self._unread_data = bytes(self._unread_data), bytearray()
        if self._is_paused and self._transport is not None and not self._has_ended:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def record_partial_message_bytes(self, partial_bytes: int) -> None:
        """Record how many bytes of an unfinished message have arrived, or 0 if no message is unfinished."""
        if not partial_bytes:
            self.partial_message_wait_seconds = 0.0
        self.partial_message_bytes = partial_bytes

    async def send(self, data: bytes) -> None:
        """Write an answer; wait while the sender is too slow in reading its answers."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if not self._writable_event.is_set():
            await self._wait_for_sender(self._writable_event)

    def stop(self) -> None:
        """Stop reading. Data that was already read is still stored."""
        self.is_stopping = self._has_ended = True
        if self._transport is None:
            self.abort()
        elif not self._transport.is_closing() and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._data_or_end_event.set()

    async def wait_until_ended(self) -> None:
        """Return once everything that was read is stored and the connection is closed."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def abandon_unstored_events(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _wait_for_sender(self, event: asyncio.Event) -> None:
        began = self.waiting_since = time.monotonic()
        try:
            await event.wait()
        finally:
            self.partial_message_wait_seconds += time.monotonic() - began
            self.waiting_since = None

    async def _run(self) -> None:
        problem: BaseException | None = None
        try:
            await self._connect_transport()
            await self._handle_connection(self)
        except ConnectionAbortedByServerError:
            pass
        except asyncio.CancelledError:
            problem = (
                None if self.is_aborted else BacklogFull("The service stopped before it could store what was received.")
            )
        except Exception as caught:  # noqa: BLE001 - `at_end` logs it, and only this connection ends
            problem = caught
        finally:
            self._connection_budget.discard(self)
            if self._transport is None:
                self._accepted_socket.close()
            else:
                self._transport.close()
            self._on_end(self, problem)

    async def _connect_transport(self) -> None:
        """Create the transport, after a TLS handshake if the listener uses TLS.

        During the handshake, the connection counts as waiting for its sender (`waiting_since` is set), so that it can
        be closed if the handshake stalls.
        """
        loop, seconds = asyncio.get_running_loop(), MAX_FIRST_MESSAGE_SECONDS
        if self._tls_context is None:
            await loop.connect_accepted_socket(lambda: self, self._accepted_socket)
        else:
            await loop.connect_accepted_socket(
                lambda: self, self._accepted_socket, ssl=self._tls_context, ssl_handshake_timeout=seconds
            )
        self.waiting_since = None


def _peer_host(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except (OSError, IndexError):
        return ""


class ConnectionMemory:
    """The memory that is reserved for the data of a connection, from the budget of request bodies.

    If `is_whole` is true, the data counts as a complete message, so the reservation is never revoked. Otherwise it may
    be revoked when other bodies need memory, and then the connection is closed.
    """

    def __init__(self, budget: BodyMemoryBudget, connection: SenderConnection, *, is_whole: bool = False) -> None:
        self._body_memory_budget = budget
        self._connection = connection
        self._is_reservation_irrevocable = is_whole
        self._reservation_stack = ExitStack()
        self._reservation: MemoryReservation | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def reserve_up_to(self, total_bytes: int) -> None:
        """Reserve memory until `total_bytes` are reserved. Wait while too little is free, unless the service stops."""
        if total_bytes <= MAX_UNRESERVED_BYTES:
            return
        while True:
            try:
                reservation = self._get_or_open_reservation()
                if total_bytes > reservation.held_bytes:
                    reservation.reserve(total_bytes - reservation.held_bytes)
            except BacklogFull:
                if self._connection.is_aborted or (self._reservation is not None and self._reservation.is_revoked):
                    raise ConnectionAbortedByServerError from None
                if self._connection.is_stopping:
                    return
                await asyncio.sleep(_MEMORY_RETRY_SECONDS)
            else:
                return

    def reserve_more(self, more_bytes: int) -> None:
        """Reserve more memory; raise BacklogFull if not enough is free at present.

        This method can be called in any thread, but only after `reserve_up_to`.
        """
        if self._reservation is not None:
            self._reservation.reserve(more_bytes)

    def mark_message_complete(self) -> None:
        """Mark the message as complete, so that its memory is not revoked while it is stored."""
        if self._reservation is not None:
            self._reservation.mark_body_complete()

    def release(self) -> None:
        """Return all memory to the budget."""
        self._reservation = None
        self._reservation_stack.close()

    def _get_or_open_reservation(self) -> MemoryReservation:
        if self._reservation is None:
            loop, cut = asyncio.get_running_loop(), self._connection.abort
            self._reservation = self._reservation_stack.enter_context(
                self._body_memory_budget.open_reservation(f"sender {self._connection.peer_address}")
            )
            self._reservation.set_revoke_callback(lambda: loop.call_soon_threadsafe(cut))
            if self._is_reservation_irrevocable:
                self._reservation.mark_body_complete()
        return self._reservation
