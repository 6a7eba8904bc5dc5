"""One connection of a listener: reading with back pressure, memory in the budget of bodies, TLS, and closing."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final, Self, cast

from cordwood.errors import Backlog
from cordwood.ingest.body_budget import BodyBudget, Reservation
from cordwood.listeners.connection_budget import UNPROVEN_SECONDS, ConnectionBudget

# Reading pauses when this much has arrived and was not taken.
MOST_UNREAD_BYTES: Final = 64 * 1024
# What a connection may hold without a reservation.
FREE_BYTES: Final = 16 * 1024
_ROOM_SECONDS: Final = 0.25


class ConnectionCutError(Exception):
    """The connection was closed by its budget, or its memory was needed for others."""


class SenderConnection(asyncio.Protocol):
    """An accepted connection, which `converse` reads; `at_end` is called with the error that ended it, if any."""

    def __init__(
        self,
        accepted: socket.socket,
        budget: ConnectionBudget,
        converse: "Callable[[SenderConnection], Awaitable[None]]",
        at_end: "Callable[[SenderConnection, BaseException | None], None]",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._accepted = accepted
        self._budget = budget
        self._converse = converse
        self._at_end = at_end
        self._tls = tls
        self._unread = bytearray()
        self._arrived = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._has_ended = self._is_paused = False
        self.is_cut = False
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = _host(accepted)
        self.is_stopping = False
        self.is_proven = False
        self.opened_at = time.monotonic()
        self.partial_bytes = 0
        self.waited_seconds = 0.0
        self.waiting_since: float | None = self.opened_at

    def begin(self) -> bool:
        """Start to read; return False, with the connection closed, if there are too many connections."""
        if not self._budget.add(self):
            self._accepted.close()
            return False
        self._task = asyncio.get_running_loop().create_task(self._run())
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._arrived.set()
        if len(self._unread) >= MOST_UNREAD_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._arrived.set()
        # A plain connection stays open for writing: what was read is stored and acknowledged before it is closed.
        return self._tls is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._budget.discard(self)
        self._has_ended = True
        self._arrived.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def cut(self) -> None:
        self.is_cut = True
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            # TLS is still being negotiated.
            self._task.cancel()
        self._arrived.set()
        self._may_write.set()

    async def has_more(self) -> bool:
        """Wait for data; return False at the end of the connection, or when the service stops and nothing is left."""
        while not (self._unread or self._has_ended or self.is_cut):
            self._arrived.clear()
            await self._waited_for(self._arrived)
        if self.is_cut:
            raise ConnectionCutError
        return bool(self._unread)

    @property
    def unread_bytes(self) -> int:
        return len(self._unread)

    def take(self) -> bytes:
        """Return what has arrived."""
        data, self._unread = bytes(self._unread), bytearray()
        if self._is_paused and self._transport is not None and not self._has_ended:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def has_partial(self, partial_bytes: int) -> None:
        """Note the size of the unfinished message; 0 if there is none."""
        if not partial_bytes:
            self.waited_seconds = 0.0
        self.partial_bytes = partial_bytes

    async def send(self, data: bytes) -> None:
        """Write an answer, and wait while the sender does not read its answers."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if not self._may_write.is_set():
            await self._waited_for(self._may_write)

    def stop(self) -> None:
        """Read nothing more from the sender; what was read is stored."""
        self.is_stopping = self._has_ended = True
        if self._transport is None:
            self.cut()
        elif not self._transport.is_closing() and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._arrived.set()

    async def ended(self) -> None:
        """Return when everything that was read is stored and the connection is closed."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _waited_for(self, event: asyncio.Event) -> None:
        began = self.waiting_since = time.monotonic()
        try:
            await event.wait()
        finally:
            self.waited_seconds += time.monotonic() - began
            self.waiting_since = None

    async def _run(self) -> None:
        problem: BaseException | None = None
        try:
            await self._open()
            await self._converse(self)
        except ConnectionCutError:
            pass
        except asyncio.CancelledError:
            problem = None if self.is_cut else Backlog("The service stopped before it could store what was received.")
        except Exception as caught:  # noqa: BLE001 - `at_end` logs it, and only this connection ends
            problem = caught
        finally:
            self._budget.discard(self)
            if self._transport is None:
                self._accepted.close()
            else:
                self._transport.close()
            self._at_end(self, problem)

    async def _open(self) -> None:
        """Negotiate TLS, if there is any. The connection counts as waiting meanwhile."""
        loop, seconds = asyncio.get_running_loop(), UNPROVEN_SECONDS
        if self._tls is None:
            await loop.connect_accepted_socket(lambda: self, self._accepted)
        else:
            await loop.connect_accepted_socket(
                lambda: self, self._accepted, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        self.waiting_since = None


def _host(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except (OSError, IndexError):
        return ""


class HeldMemory:
    """The memory of what a connection holds, in the budget of bodies.

    With `is_whole` it is never revoked; else it is revoked when others need it and the connection stalls, which is
    closed then.
    """

    def __init__(self, budget: BodyBudget, connection: SenderConnection, *, is_whole: bool = False) -> None:
        self._budget = budget
        self._connection = connection
        self._is_whole = is_whole
        self._stack = ExitStack()
        self._reservation: Reservation | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def hold(self, all_bytes: int) -> None:
        """Reserve memory until it is that much in all; wait until there is room, unless the service stops."""
        if all_bytes <= FREE_BYTES:
            return
        while True:
            try:
                reservation = self._made()
                if all_bytes > reservation.held:
                    reservation.take(all_bytes - reservation.held)
            except Backlog:
                if self._connection.is_cut or (self._reservation is not None and self._reservation.is_revoked):
                    raise ConnectionCutError from None
                if self._connection.is_stopping:
                    return
                await asyncio.sleep(_ROOM_SECONDS)
            else:
                return

    def grow(self, more_bytes: int) -> None:
        """Reserve more memory; raise Backlog if there is none now. Call it from any thread, after `hold`."""
        if self._reservation is not None:
            self._reservation.take(more_bytes)

    def arrived(self) -> None:
        """Mark the message as complete, so that its memory is not revoked while it is stored."""
        if self._reservation is not None:
            self._reservation.arrived()

    def release(self) -> None:
        """Give the memory back."""
        self._reservation = None
        self._stack.close()

    def _made(self) -> Reservation:
        if self._reservation is None:
            loop, cut = asyncio.get_running_loop(), self._connection.cut
            self._reservation = self._stack.enter_context(self._budget.reserve(f"sender {self._connection.address}"))
            self._reservation.on_revoke(lambda: loop.call_soon_threadsafe(cut))
            if self._is_whole:
                self._reservation.arrived()
        return self._reservation
