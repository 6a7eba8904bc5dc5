"""Decompress bodies in steps of bounded size, so that a decompression bomb is detected early."""

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from cordwood.errors import BadBody, TooLarge, UnsupportedMedia
from cordwood.web.snappy import decompress

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK_BYTES = 256 * 1024
# The maximum input of one decompression step. The unused part of the input is copied, so larger steps cost more.
INPUT_STEP_BYTES = 64 * 1024
MAX_CODINGS = 2
# The maximum number of gzip members or zstd frames. Each needs a decompressor; senders of blocked gzip put several
# thousand bytes into each.
MAX_MEMBERS = 10_000
# A zstd frame may request a window of 2 GiB. RFC 8878 recommends that decoders support 8 MiB.
MAX_WINDOW_LOG = 23

# The block format of Snappy, which is decompressed as a whole and not in steps.
SNAPPY = "snappy"

# A callback with the number of bytes that are about to be allocated, which may raise an error to refuse them.
OnGrowth = Callable[[int], object]


def uncounted(_: int) -> None:
    """Accept any number of bytes: the `OnGrowth` of callers without a memory budget."""


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


def _gzip(_: bytes) -> Inflater:
    return ZlibInflater(zlib.MAX_WBITS | 16)


def _deflate(data: bytes) -> Inflater:
    """Return a decompressor for zlib-wrapped deflate, or for the raw deflate that some clients send."""
    wrapped = len(data) > 1 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    return ZlibInflater(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


def _zstd(_: bytes) -> Inflater:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG})


INFLATERS: Mapping[str, Callable[[bytes], Inflater]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}


def inflate(body: bytes, codings: str, max_bytes: int, on_growth: OnGrowth = uncounted) -> bytes:
    """Decompress a body with up to two content codings, the last one first; `on_growth` is called as the result grows."""
    names = [part.strip().lower() for part in codings.split(",")]
    applied = [name for name in names if name not in ("", "identity")]
    if len(applied) > MAX_CODINGS:
        raise UnsupportedMedia(
            f"The body is in {len(applied)} nested content codings.", hint=f"Send it in {MAX_CODINGS} at most."
        )
    for coding in reversed(applied):
        if coding == SNAPPY:
            body = decompress(body, max_bytes, on_growth)
        else:
            body = _inflate_one(body, coding, max_bytes, on_growth)
    return body


def _inflate_one(body: bytes, coding: str, max_bytes: int, on_growth: OnGrowth) -> bytes:
    if coding not in INFLATERS:
        raise UnsupportedMedia(
            f"A body in the coding {coding!r} is not read here.",
            hint="Send it as gzip, deflate, zstd, snappy or plain.",
        )
    whole = bytearray()
    try:
        for chunk in _chunks(body, INFLATERS[coding]):
            on_growth(len(chunk))
            whole += chunk
            if len(whole) > max_bytes:
                raise TooLarge(f"The body inflates to more than {max_bytes // 2**20} MiB.", hint="Send less at once.")
    except (zlib.error, zstd.ZstdError, EOFError):
        raise BadBody(f"The body is not {coding}, or it is broken.") from None
    return bytes(whole)


def _chunks(body: bytes, create_inflater: Callable[[bytes], Inflater]) -> Iterator[bytes]:
    """Yield the content of all members or frames of a body."""
    at = members = 0
    while at < len(body):
        members += 1
        if members > MAX_MEMBERS:
            raise TooLarge(f"The body has more than {MAX_MEMBERS} compressed members.", hint="Compress it as one.")
        inflater = create_inflater(body[at : at + 2])
        while not inflater.eof:
            if at >= len(body):
                raise EOFError
            yield from _inflate_step(inflater, body[at : at + INPUT_STEP_BYTES])
            at += INPUT_STEP_BYTES
        at = min(at, len(body)) - len(inflater.unused_data)


def _inflate_step(inflater: Inflater, data: bytes) -> Iterator[bytes]:
    """Yield the output of one input step."""
    chunk = inflater.decompress(data, CHUNK_BYTES)
    yield chunk
    while chunk and not inflater.eof:
        chunk = inflater.decompress(b"", CHUNK_BYTES)
        yield chunk
