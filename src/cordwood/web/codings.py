"""Content codings of answers: negotiation and compression."""

import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A smaller body fits into one packet anyway.
WORTH_IT_BYTES = 1024
GZIP_LEVEL = 5
ZSTD_LEVEL = 3


class Compressor(Protocol):
    """A streaming compressor."""

    def piece(self, data: bytes) -> bytes:
        """Compress a chunk and flush, so that the client can decode it before the next one."""

    def end(self) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)

    def piece(self, data: bytes) -> bytes:
        return self._inner.compress(data) + self._inner.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._inner.flush()


class _Zstd:
    def __init__(self) -> None:
        self._inner = zstd.ZstdCompressor(level=ZSTD_LEVEL)

    def piece(self, data: bytes) -> bytes:
        return self._inner.compress(data, mode=zstd.ZstdCompressor.FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._inner.flush()


# In order of preference: the cheaper one for the same ratio first.
COMPRESSORS: Mapping[str, Callable[[], Compressor]] = {"zstd": _Zstd, "gzip": _Gzip}


def chosen_coding(accept_encoding: str) -> str | None:
    """Return the coding that the client prefers, by server preference among equals; None for an uncompressed body."""
    weights = dict(_weighted(part) for part in accept_encoding.lower().split(",") if part.strip())
    others = weights.get("*", 0.0)
    ranked = [(weights.get(name, others), -place, name) for place, name in enumerate(COMPRESSORS)]
    weight, _, name = max(ranked)
    return name if weight > 0 and weight >= weights.get("identity", 0.0) else None


def compressed(body: bytes, coding: str) -> bytes:
    if coding == "zstd":
        return zstd.compress(body, ZSTD_LEVEL)
    return zlib.compress(body, GZIP_LEVEL, zlib.MAX_WBITS | 16)


async def compressed_pieces(pieces: AsyncIterator[bytes], coding: str) -> AsyncGenerator[bytes, None]:
    compressor = COMPRESSORS[coding]()
    async for piece in pieces:
        yield compressor.piece(piece)
    yield compressor.end()


def _weighted(part: str) -> tuple[str, float]:
    name, *attributes = (text.strip() for text in part.split(";"))
    weight = next((text[2:] for text in attributes if text.startswith("q=")), "1")
    try:
        return name, float(weight)
    except ValueError:
        return name, 0.0
