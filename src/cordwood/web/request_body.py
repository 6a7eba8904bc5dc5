"""Receive a request body within limits of size and time, decompress it, and detect a client that disconnects.

Bodies are decompressed in steps of bounded size, so that a decompression bomb is detected early. Snappy's block format
is described at https://github.com/google/snappy/blob/main/format_description.txt
"""

import asyncio
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

import msgspec

from cordwood.errors import BadBody, BodyTooLarge, RequestTooSlow, UnsupportedMediaType
from cordwood.ingest.limits import MemoryReservation
from cordwood.web.asgi import Message, Receive, Request

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# The maximum pause within a body, its maximum duration, and the minimum rate after the grace period.
MAX_READ_STALL_SECONDS: Final = 20.0
MAX_BODY_RECEIVE_SECONDS: Final = 300.0
BODY_RATE_GRACE_SECONDS: Final = 10.0
MIN_BODY_BYTES_PER_SECOND: Final = 1024


class ClientDisconnectedError(Exception):
    """The client disconnected before the request was complete."""


class BodyBounds(msgspec.Struct, frozen=True):
    """The maximum size of a body as it was sent, and after decompression."""

    max_sent_bytes: int
    max_inflated_bytes: int


async def read_body(request: Request, bounds: BodyBounds, reservation: MemoryReservation | None = None) -> bytes:
    """Return the decompressed body; raise BodyTooLarge or RequestTooSlow if it exceeds its limits.

    The reservation grows by the compressed and decompressed bytes as they arrive, and may be refused.
    """
    take = reservation.reserve if reservation is not None else ignore_memory_growth
    body = await _read_raw(request, bounds.max_sent_bytes, reservation)
    codings = request.joined_header(b"content-encoding")
    if codings and body:
        body = await asyncio.to_thread(inflate, body, codings, bounds.max_inflated_bytes, take)
    if reservation is not None:
        reservation.mark_complete()
    return body


# The maximum number of digits of a Content-Length that is converted to an integer. A longer number exceeds any limit.
_MAX_LENGTH_DIGITS: Final = 18


async def _read_raw(request: Request, max_bytes: int, reservation: MemoryReservation | None) -> bytes:
    announced = request.headers.get(b"content-length", b"").lstrip(b"0")
    if announced.isdigit() and (len(announced) > _MAX_LENGTH_DIGITS or int(announced) > max_bytes):
        raise _too_large_fault(max_bytes)
    began = asyncio.get_running_loop().time()
    chunks: list[bytes] = []
    received = 0
    while True:
        message = await receive_message(request, reservation)
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunks.append(message.get("body", b""))
        received += len(chunks[-1])
        if received > max_bytes:
            raise _too_large_fault(max_bytes)
        if reservation is not None:
            reservation.reserve(len(chunks[-1]))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        seconds = asyncio.get_running_loop().time() - began
        if (
            seconds > MAX_BODY_RECEIVE_SECONDS
            or received < (seconds - BODY_RATE_GRACE_SECONDS) * MIN_BODY_BYTES_PER_SECOND
        ):
            raise too_slow_fault()


async def receive_message(request: Request, reservation: MemoryReservation | None) -> Message:
    """Receive the next chunk; raise RequestTooSlow if no chunk arrives in time.

    If the reservation is revoked in the meantime, raise the error with which it refuses memory.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(MAX_READ_STALL_SECONDS) as limit:
            if reservation is not None:
                reservation.set_revoke_callback(lambda: loop.call_soon_threadsafe(_expire, limit))
            return await request.receive()
    except TimeoutError:
        if reservation is not None and reservation.is_revoked:
            raise reservation.refusal_fault() from None
        raise too_slow_fault() from None


def _expire(limit: asyncio.Timeout) -> None:
    # If a chunk has arrived in the meantime, the timeout is over, and `reschedule` raises RuntimeError.
    with suppress(RuntimeError):
        limit.reschedule(asyncio.get_running_loop().time())


def _too_large_fault(max_bytes: int) -> BodyTooLarge:
    size = f"{max_bytes // 2**20} MiB" if max_bytes >= 2**20 else f"{max_bytes // 1024} KiB"
    return BodyTooLarge(f"The body is larger than {size}.", hint="Send less at once, or compress it.")


def too_slow_fault() -> RequestTooSlow:
    return RequestTooSlow(
        "The body did not arrive in time.",
        hint=f"It may pause for {MAX_READ_STALL_SECONDS:.0f} s and take {MAX_BODY_RECEIVE_SECONDS:.0f} s in all.",
    )


T = TypeVar("T")


async def run_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result. If the client disconnects first, cancel it and raise ClientDisconnectedError."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnectedError
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def chunks_while_connected(request: Request, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. If the client disconnects, raise ClientDisconnectedError."""
    leaving = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        while True:
            coming = asyncio.ensure_future(anext(chunks, None))
            await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})
                raise ClientDisconnectedError
            chunk = coming.result()
            if chunk is None:
                return
            yield chunk
    finally:
        leaving.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# The maximum output and input of one decompression step. The unused part of the input is copied in each step, so larger
# inputs take more time.
_INFLATE_OUTPUT_BYTES = 256 * 1024
_INFLATE_INPUT_BYTES = 64 * 1024
MAX_CONTENT_CODINGS = 2
# The maximum number of gzip members or zstd frames in a body, because each of them needs a new decompressor. Senders of
# blocked gzip stay below the limit, because they put several thousand bytes into each member.
MAX_COMPRESSED_MEMBERS = 10_000
# A zstd frame may request a window of 2 GiB. RFC 8878 recommends that decoders support 8 MiB.
MAX_ZSTD_WINDOW_LOG = 23

# The content coding for Snappy's block format. A body in this format is decompressed as a whole and not in steps.
SNAPPY_CODING = "snappy"

# A callback whose argument is the number of bytes that are about to be allocated. It may raise an error to refuse them.
OnMemoryGrowth = Callable[[int], object]


def ignore_memory_growth(_: int) -> None:
    """Accept any number of bytes. This is the `OnMemoryGrowth` callback of callers without a memory budget."""


class Inflater(Protocol):
    """The interface of a decompressor of one gzip member or one zstd frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most `max_length` bytes. The rest of the input is kept for the next call."""


class ZlibInflater:
    """A zlib decompressor that keeps its unconsumed input, as the decompressors of other codings do."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _create_gzip_inflater(_: bytes) -> Inflater:
    return ZlibInflater(zlib.MAX_WBITS | 16)


def _create_deflate_inflater(data: bytes) -> Inflater:
    """Return a decompressor for zlib-wrapped deflate, or for the raw deflate that some clients send."""
    wrapped = len(data) > 1 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    return ZlibInflater(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


def _create_zstd_inflater(_: bytes) -> Inflater:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_ZSTD_WINDOW_LOG})


INFLATER_FACTORIES_BY_CODING: Mapping[str, Callable[[bytes], Inflater]] = {
    "gzip": _create_gzip_inflater,
    "x-gzip": _create_gzip_inflater,
    "deflate": _create_deflate_inflater,
    "zstd": _create_zstd_inflater,
}


def inflate(body: bytes, codings: str, max_bytes: int, on_growth: OnMemoryGrowth = ignore_memory_growth) -> bytes:
    """Decompress a body with up to two content codings; `on_growth` is called as the result grows.

    The last coding in `codings` was applied last, so it is removed first.
    """
    names = [part.strip().lower() for part in codings.split(",")]
    applied = [name for name in names if name not in ("", "identity")]
    if len(applied) > MAX_CONTENT_CODINGS:
        raise UnsupportedMediaType(
            f"The body is in {len(applied)} nested content codings.", hint=f"Send it in {MAX_CONTENT_CODINGS} at most."
        )
    for coding in reversed(applied):
        if coding == SNAPPY_CODING:
            body = decompress_snappy(body, max_bytes, on_growth)
        else:
            body = _inflate_one(body, coding, max_bytes, on_growth)
    return body


def _inflate_one(body: bytes, coding: str, max_bytes: int, on_growth: OnMemoryGrowth) -> bytes:
    if coding not in INFLATER_FACTORIES_BY_CODING:
        raise UnsupportedMediaType(
            f"A body in the coding {coding!r} is not read here.",
            hint="Send it as gzip, deflate, zstd, snappy or plain.",
        )
    whole = bytearray()
    try:
        for chunk in _inflated_chunks(body, INFLATER_FACTORIES_BY_CODING[coding]):
            on_growth(len(chunk))
            whole += chunk
            if len(whole) > max_bytes:
                raise BodyTooLarge(
                    f"The body inflates to more than {max_bytes // 2**20} MiB.", hint="Send less at once."
                )
    except (zlib.error, zstd.ZstdError, EOFError):
        raise BadBody(f"The body is not {coding}, or it is broken.") from None
    return bytes(whole)


def _inflated_chunks(body: bytes, create_inflater: Callable[[bytes], Inflater]) -> Iterator[bytes]:
    """Yield the content of all members or frames of a body."""
    at = members = 0
    while at < len(body):
        members += 1
        if members > MAX_COMPRESSED_MEMBERS:
            raise BodyTooLarge(
                f"The body has more than {MAX_COMPRESSED_MEMBERS} compressed members.", hint="Compress it as one."
            )
        inflater = create_inflater(body[at : at + 2])
        while not inflater.eof:
            if at >= len(body):
                raise EOFError
            yield from _inflate_step(inflater, body[at : at + _INFLATE_INPUT_BYTES])
            at += _INFLATE_INPUT_BYTES
        at = min(at, len(body)) - len(inflater.unused_data)


def _inflate_step(inflater: Inflater, data: bytes) -> Iterator[bytes]:
    """Pass a part of the body to the decompressor, and yield the output in chunks of bounded size."""
    chunk = inflater.decompress(data, _INFLATE_OUTPUT_BYTES)
    yield chunk
    while chunk and not inflater.eof:
        chunk = inflater.decompress(b"", _INFLATE_OUTPUT_BYTES)
        yield chunk


# The maximum number of elements (literals or copies) in a body. Decoding two million short elements takes about a
# second. A body with 16 MiB of compressed text has fewer elements.
MAX_SNAPPY_ELEMENTS: Final = 2_000_000
# A block begins with the uncompressed length, a 32-bit number as a varint, which has at most this many bytes.
_SNAPPY_LENGTH_BYTES: Final = 5
# For each tag: the number of bytes that the element adds to the content. The two low bits of a tag are the kind of
# element: 0 is a literal, and 1 to 3 are copies with an offset of 11, 16 and 32 bits. If a literal has more than 60
# bytes, the number is 60 plus the number of bytes after the tag that contain the length.
_SNAPPY_ELEMENT_SIZES: Final = tuple((tag >> 2 & 7) + 4 if tag & 3 == 1 else (tag >> 2) + 1 for tag in range(256))


def decompress_snappy(block: bytes, max_bytes: int, on_growth: Callable[[int], object]) -> bytes:
    """Decompress a block of Snappy. `on_growth` is called with the announced length before memory is allocated."""
    length, position = _read_snappy_length(block)
    if length > max_bytes:
        raise BodyTooLarge(f"The body inflates to more than {max_bytes // 2**20} MiB.", hint="Send less at once.")
    on_growth(length)
    try:
        content = _decode_snappy_elements(block, position, length)
    except IndexError:
        raise _broken_snappy_fault() from None
    if len(content) != length:
        raise _broken_snappy_fault()
    return bytes(content)


def _read_snappy_length(block: bytes) -> tuple[int, int]:
    """Return the announced length of the content, and the position of the first element."""
    length = 0
    for place, byte in enumerate(block[:_SNAPPY_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return length, place + 1
    raise _broken_snappy_fault()


def _decode_snappy_elements(block: bytes, position: int, length: int) -> bytearray:
    """Return the content of the elements from `position` on; raise BadBody once it is longer than `length`."""
    content = bytearray()
    end, left = len(block), MAX_SNAPPY_ELEMENTS
    while position < end:
        tag = block[position]
        size, kind = _SNAPPY_ELEMENT_SIZES[tag], tag & 3
        if kind == 0:
            begin, size = (position + 1, size) if size <= 60 else _long_literal_bounds(block, position, size)
            position = begin + size
            content += block[begin:position]
        else:
            if kind == 2:
                offset = block[position + 1] | block[position + 2] << 8
                position += 3
            elif kind == 1:
                offset = (tag & 0xE0) << 3 | block[position + 1]
                position += 2
            else:
                offset = int.from_bytes(block[position + 1 : position + 5], "little")
                position += 5
            begin = len(content) - offset
            content += (
                content[begin : begin + size]
                if begin >= 0 and size <= offset
                else _overlapping_copy(content, begin, size)
            )
        left -= 1
        if len(content) > length or position > end or left < 0:
            raise _broken_snappy_fault() if left >= 0 else _too_many_elements_fault()
    return content


def _overlapping_copy(content: bytearray, begin: int, size: int) -> bytearray:
    """Return the bytes of a copy that overlaps its own output. Such a copy repeats the last bytes of the content."""
    offset = len(content) - begin
    if begin < 0 or offset == 0:
        raise _broken_snappy_fault()
    return (content[begin:] * (size // offset + 1))[:size]


def _long_literal_bounds(block: bytes, position: int, size: int) -> tuple[int, int]:
    """Return the position and the length of the bytes of a long literal."""
    begin = position + 1 + size - 60
    return begin, int.from_bytes(block[position + 1 : begin], "little") + 1


def _broken_snappy_fault() -> BadBody:
    return BadBody("The body is not snappy, or it is broken.", hint="Send the block format, without frames.")


def _too_many_elements_fault() -> BodyTooLarge:
    return BodyTooLarge(f"The body has more than {MAX_SNAPPY_ELEMENTS} compressed elements.", hint="Send less at once.")
