"""Receive the body of a request within limits on size and time, decompress it, and detect that a client disconnects.

Bodies are decompressed in small steps, so that a decompression bomb is detected before it takes much memory. Snappy's
block format is described at https://github.com/google/snappy/blob/main/format_description.txt
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

# The limits on time while a body arrives: the longest pause, the longest duration, and the minimum rate, which applies
# after a grace period.
MAX_READ_STALL_SECONDS: Final = 20.0
MAX_BODY_RECEIVE_SECONDS: Final = 300.0
BODY_RATE_GRACE_SECONDS: Final = 10.0
MIN_BODY_BYTES_PER_SECOND: Final = 1024


class ClientDisconnectedError(Exception):
    """The client disconnected before its request was received or answered completely."""


class BodyBounds(msgspec.Struct, frozen=True):
    """The maximum size of a body as it is sent, and its maximum size after decompression."""

    max_sent_bytes: int
    max_inflated_bytes: int


async def read_body(request: Request, bounds: BodyBounds, reservation: MemoryReservation | None = None) -> bytes:
    """Return the decompressed body; raise BodyTooLarge if it is too large, RequestTooSlow if it arrives too slowly.

    Memory is reserved for the bytes of the body as they arrive and are decompressed. If there is too little memory, the
    reservation raises an error.
    """
    take = reservation.reserve if reservation is not None else ignore_memory_growth
    body = await _read_raw(request, bounds.max_sent_bytes, reservation)
    codings = request.joined_header(b"content-encoding")
    if codings and body:
        body = await asyncio.to_thread(inflate, body, codings, bounds.max_inflated_bytes, take)
    if reservation is not None:
        reservation.mark_body_complete()
    return body


# If a Content-Length has more digits than this, it is not converted to an integer, because it exceeds any limit.
_MAX_CONTENT_LENGTH_DIGITS: Final = 18


async def _read_raw(request: Request, max_bytes: int, reservation: MemoryReservation | None) -> bytes:
    announced = request.headers.get(b"content-length", b"").lstrip(b"0")
    if announced.isdigit() and (len(announced) > _MAX_CONTENT_LENGTH_DIGITS or int(announced) > max_bytes):
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
            raise slow_body_fault()


async def receive_message(request: Request, reservation: MemoryReservation | None) -> Message:
    """Receive the next chunk of a body; raise RequestTooSlow if it does not arrive in time.

    If the reservation is revoked while waiting, raise the error by which the reservation refuses memory.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(MAX_READ_STALL_SECONDS) as limit:
            if reservation is not None:
                reservation.set_revoke_callback(lambda: loop.call_soon_threadsafe(_expire_timeout, limit))
            return await request.receive()
    except TimeoutError:
        if reservation is not None and reservation.is_revoked:
            raise reservation.refusal_fault() from None
        raise slow_body_fault() from None


def _expire_timeout(limit: asyncio.Timeout) -> None:
    # If a chunk has arrived just before, the timeout has ended already, and `reschedule` raises RuntimeError.
    with suppress(RuntimeError):
        limit.reschedule(asyncio.get_running_loop().time())


def _too_large_fault(max_bytes: int) -> BodyTooLarge:
    size = f"{max_bytes // 2**20} MiB" if max_bytes >= 2**20 else f"{max_bytes // 1024} KiB"
    return BodyTooLarge(f"The body is larger than {size}.", hint="Send less at once, or compress it.")


def slow_body_fault() -> RequestTooSlow:
    return RequestTooSlow(
        "The body did not arrive in time.",
        hint=f"It may pause for {MAX_READ_STALL_SECONDS:.0f} s and take {MAX_BODY_RECEIVE_SECONDS:.0f} s in all.",
    )


T = TypeVar("T")


async def run_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result.

    If the client disconnects before the coroutine ends, cancel the coroutine and raise ClientDisconnectedError.
    """
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
    """Yield the chunks; raise ClientDisconnectedError as soon as the client disconnects."""
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


# The maximum number of bytes that one step of decompression returns, and that it gets as input. Each step copies the
# unused part of its input, so larger inputs would take more time.
_INFLATE_OUTPUT_BYTES = 256 * 1024
_INFLATE_INPUT_BYTES = 64 * 1024
MAX_CONTENT_CODINGS = 2
# A body may consist of several gzip members or zstd frames, but of at most this many, because each of them needs a new
# decompressor. Senders of blocked gzip stay below the limit: their members have several thousand bytes each.
MAX_COMPRESSED_MEMBERS = 10_000
# The maximum window size of a zstd frame, as a power of two: 8 MiB, which RFC 8878 recommends to support. A frame could
# request up to 2 GiB.
MAX_ZSTD_WINDOW_LOG = 23

# The content coding for Snappy's block format. Unlike bodies in other codings, such a body is decompressed in one step.
SNAPPY_CODING = "snappy"

# A callback that gets the number of bytes that are about to be allocated. To refuse them, it raises an error.
OnMemoryGrowth = Callable[[int], object]


def ignore_memory_growth(_: int) -> None:
    """Accept any number of bytes. This `OnMemoryGrowth` callback is for callers that have no memory budget."""


class Inflater(Protocol):
    """The interface of an object that decompresses one gzip member or one zstd frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress `data` and return at most `max_length` bytes.

        Input that is not decompressed yet is kept for the next call.
        """


class ZlibInflater:
    """A zlib decompressor that keeps unused input for the next call, as the decompressor of zstd does."""

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
    """Return a decompressor for the coding deflate. Its data should have a zlib header, but some clients omit it."""
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
    """Decompress a body that has up to two content codings; `on_growth` is called as the result grows.

    `codings` names the codings in the order in which they were applied, so they are removed in reverse order.
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
            body = _inflate_single_coding(body, coding, max_bytes, on_growth)
    return body


def _inflate_single_coding(body: bytes, coding: str, max_bytes: int, on_growth: OnMemoryGrowth) -> bytes:
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
    """Yield the decompressed content of all gzip members or zstd frames of a body, in chunks."""
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
            yield from _inflate_in_chunks(inflater, body[at : at + _INFLATE_INPUT_BYTES])
            at += _INFLATE_INPUT_BYTES
        at = min(at, len(body)) - len(inflater.unused_data)


def _inflate_in_chunks(inflater: Inflater, data: bytes) -> Iterator[bytes]:
    """Decompress a part of the body, and yield the content in chunks of limited size."""
    chunk = inflater.decompress(data, _INFLATE_OUTPUT_BYTES)
    yield chunk
    while chunk and not inflater.eof:
        chunk = inflater.decompress(b"", _INFLATE_OUTPUT_BYTES)
        yield chunk


# The maximum number of elements (literals or copies) in a Snappy body. Decoding two million short elements takes about
# a second. Even 16 MiB of compressed text have fewer elements.
MAX_SNAPPY_ELEMENTS: Final = 2_000_000
# A Snappy block begins with the length of its content, as a varint of a 32-bit number. Such a varint has at most this
# many bytes.
_MAX_SNAPPY_LENGTH_VARINT_BYTES: Final = 5
# For each tag, the first byte of an element: the number of bytes that the element adds to the content. The two low bits
# of a tag are the kind of element: 0 is a literal, and 1 to 3 are copies with an offset of 11, 16 and 32 bits. The size
# of a literal of more than 60 bytes is not in the tag but in the bytes after it. Then the table has 60 plus the number
# of these bytes.
_SNAPPY_ELEMENT_SIZE_BY_TAG: Final = tuple((tag >> 2 & 7) + 4 if tag & 3 == 1 else (tag >> 2) + 1 for tag in range(256))


def decompress_snappy(block: bytes, max_bytes: int, on_growth: Callable[[int], object]) -> bytes:
    """Decompress a Snappy block. Before memory is allocated, `on_growth` is called with the announced length."""
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
    """Return the length that the block announces for its content, and the position of the first element."""
    length = 0
    for place, byte in enumerate(block[:_MAX_SNAPPY_LENGTH_VARINT_BYTES]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return length, place + 1
    raise _broken_snappy_fault()


def _decode_snappy_elements(block: bytes, position: int, length: int) -> bytearray:
    """Return the content of the block's elements from `position` on; raise BadBody if it is longer than `length`."""
    content = bytearray()
    end, left = len(block), MAX_SNAPPY_ELEMENTS
    while position < end:
        tag = block[position]
        size, kind = _SNAPPY_ELEMENT_SIZE_BY_TAG[tag], tag & 3
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
                else _expand_overlapping_copy(content, begin, size)
            )
        left -= 1
        if len(content) > length or position > end or left < 0:
            raise _broken_snappy_fault() if left >= 0 else _too_many_elements_fault()
    return content


def _expand_overlapping_copy(content: bytearray, begin: int, size: int) -> bytearray:
    """Return the bytes that a copy element adds if it is longer than its offset.

    Such a copy repeats the last bytes of the content, from `begin` on, until it has `size` bytes.
    """
    offset = len(content) - begin
    if begin < 0 or offset == 0:
        raise _broken_snappy_fault()
    return (content[begin:] * (size // offset + 1))[:size]


def _long_literal_bounds(block: bytes, position: int, size: int) -> tuple[int, int]:
    """Return the position and the length of a literal that has more than 60 bytes."""
    begin = position + 1 + size - 60
    return begin, int.from_bytes(block[position + 1 : begin], "little") + 1


def _broken_snappy_fault() -> BadBody:
    return BadBody("The body is not snappy, or it is broken.", hint="Send the block format, without frames.")


def _too_many_elements_fault() -> BodyTooLarge:
    return BodyTooLarge(f"The body has more than {MAX_SNAPPY_ELEMENTS} compressed elements.", hint="Send less at once.")
