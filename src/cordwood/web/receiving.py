"""Receive a request body within limits of size and time, and detect a client that disconnects."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from cordwood.errors import TooLarge, TooSlow
from cordwood.ingest.body_budget import Reservation
from cordwood.web.asgi import Message, Receive, Request
from cordwood.web.decompression import inflate, uncounted

# The maximum pause within a body, its maximum duration, and the minimum rate after the grace period.
STALL_SECONDS: Final = 20.0
MAX_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 10.0
MIN_BYTES_PER_SECOND: Final = 1024


class CallerLeftError(Exception):
    """The client disconnected before the request was complete."""


class BodyBounds(msgspec.Struct, frozen=True):
    """The maximum size of a body as it was sent, and after decompression."""

    sent_bytes: int
    inflated_bytes: int


async def read_body(request: Request, bounds: BodyBounds, reservation: Reservation | None = None) -> bytes:
    """Return the decompressed body; raise TooLarge or TooSlow if it exceeds its limits.

    The reservation grows by the compressed and decompressed bytes as they arrive, and may be refused.
    """
    take = reservation.take if reservation is not None else uncounted
    body = await _read_raw(request, bounds.sent_bytes, reservation)
    codings = request.joined(b"content-encoding")
    if codings and body:
        body = await asyncio.to_thread(inflate, body, codings, bounds.inflated_bytes, take)
    if reservation is not None:
        reservation.mark_complete()
    return body


# More digits than any limit has, but few enough to be converted to an integer.
_MAX_LENGTH_DIGITS: Final = 18


async def _read_raw(request: Request, max_bytes: int, reservation: Reservation | None) -> bytes:
    announced = request.headers.get(b"content-length", b"").lstrip(b"0")
    if announced.isdigit() and (len(announced) > _MAX_LENGTH_DIGITS or int(announced) > max_bytes):
        raise _too_large_error(max_bytes)
    began = asyncio.get_running_loop().time()
    chunks: list[bytes] = []
    received = 0
    while True:
        message = await next_message(request, reservation)
        if message["type"] == "http.disconnect":
            raise CallerLeftError
        chunks.append(message.get("body", b""))
        received += len(chunks[-1])
        if received > max_bytes:
            raise _too_large_error(max_bytes)
        if reservation is not None:
            reservation.take(len(chunks[-1]))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        seconds = asyncio.get_running_loop().time() - began
        if seconds > MAX_SECONDS or received < (seconds - GRACE_SECONDS) * MIN_BYTES_PER_SECOND:
            raise too_slow()


async def next_message(request: Request, reservation: Reservation | None) -> Message:
    """Receive the next chunk; raise TooSlow if none arrives in time, Backlog if the reservation is revoked."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(STALL_SECONDS) as limit:
            if reservation is not None:
                reservation.on_revoke(lambda: loop.call_soon_threadsafe(_expire, limit))
            return await request.receive()
    except TimeoutError:
        if reservation is not None and reservation.is_revoked:
            raise reservation.refusal() from None
        raise too_slow() from None


def _expire(limit: asyncio.Timeout) -> None:
    # A chunk may have arrived in the meantime; then the limit has no effect.
    with suppress(RuntimeError):
        limit.reschedule(asyncio.get_running_loop().time())


def _too_large_error(max_bytes: int) -> TooLarge:
    size = f"{max_bytes // 2**20} MiB" if max_bytes >= 2**20 else f"{max_bytes // 1024} KiB"
    return TooLarge(f"The body is larger than {size}.", hint="Send less at once, or compress it.")


def too_slow() -> TooSlow:
    return TooSlow(
        "The body did not arrive in time.",
        hint=f"It may pause for {STALL_SECONDS:.0f} s and take {MAX_SECONDS:.0f} s in all.",
    )


T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the coroutine. If the client disconnects first, cancel it and raise CallerLeftError."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise CallerLeftError
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def chunks_while_connected(request: Request, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. If the client disconnects, raise CallerLeftError."""
    leaving = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        while True:
            coming = asyncio.ensure_future(anext(chunks, None))
            await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})
                raise CallerLeftError
            chunk = coming.result()
            if chunk is None:
                return
            yield chunk
    finally:
        leaving.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
