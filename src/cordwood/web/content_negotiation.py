"""Content negotiation: the format of an answer by `?format=` and `Accept`, and its compression."""

import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Protocol

from cordwood.errors import NotAcceptable
from cordwood.serve.query_request import Format
from cordwood.web.encode import arrow, parquet, text
from cordwood.web.encode.text import encode_csv, encode_json, encode_ndjson

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A smaller body is not compressed, because it fits into one packet anyway.
MIN_COMPRESSED_BYTES = 1024
GZIP_LEVEL = 5
ZSTD_LEVEL = 3


class Compressor(Protocol):
    """A streaming compressor."""

    def chunk(self, data: bytes) -> bytes:
        """Compress a chunk and flush it, so that the client can decode it before the next chunk arrives."""

    def end(self) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)

    def chunk(self, data: bytes) -> bytes:
        return self._inner.compress(data) + self._inner.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._inner.flush()


class _Zstd:
    def __init__(self) -> None:
        self._inner = zstd.ZstdCompressor(level=ZSTD_LEVEL)

    def chunk(self, data: bytes) -> bytes:
        return self._inner.compress(data, mode=zstd.ZstdCompressor.FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._inner.flush()


# By content coding, in order of preference: of two with the same ratio, the cheaper one is first.
COMPRESSORS: Mapping[str, Callable[[], Compressor]] = {"zstd": _Zstd, "gzip": _Gzip}


def chosen_coding(accept_encoding: str) -> str | None:
    """Return the content coding that the client prefers, or the server among equals; None for no compression."""
    weights = dict(_parse_weighted(part) for part in accept_encoding.lower().split(",") if part.strip())
    others = weights.get("*", 0.0)
    ranked = [(weights.get(name, others), -place, name) for place, name in enumerate(COMPRESSORS)]
    weight, _, name = max(ranked)
    return name if weight > 0 and weight >= weights.get("identity", 0.0) else None


def compressed(body: bytes, coding: str) -> bytes:
    if coding == "zstd":
        return zstd.compress(body, ZSTD_LEVEL)
    return zlib.compress(body, GZIP_LEVEL, zlib.MAX_WBITS | 16)


async def compressed_chunks(chunks: AsyncIterator[bytes], coding: str) -> AsyncGenerator[bytes, None]:
    compressor = COMPRESSORS[coding]()
    async for chunk in chunks:
        yield compressor.chunk(chunk)
    yield compressor.end()


def _parse_weighted(part: str) -> tuple[str, float]:
    name, *attributes = (text.strip() for text in part.split(";"))
    weight = next((text[2:] for text in attributes if text.startswith("q=")), "1")
    try:
        return name, float(weight)
    except ValueError:
        return name, 0.0


JSON = Format("json", "application/json; charset=utf-8", encode_json)
# Chosen by `?format=` only, because clients that accept plain text expect rows.
PROMETHEUS = Format("prometheus", text.PROMETHEUS_MEDIA_TYPE, text.encode_prometheus)
FORMATS: Mapping[str, Format] = {
    "json": JSON,
    "ndjson": Format("ndjson", "application/x-ndjson", encode_ndjson, streams=True),
    "csv": Format("csv", "text/csv; charset=utf-8", encode_csv, streams=True),
    "arrow": Format("arrow", "application/vnd.apache.arrow.stream", arrow.encode),
    "parquet": Format("parquet", "application/vnd.apache.parquet", parquet.encode),
    "prometheus": PROMETHEUS,
}

_BY_MEDIA_TYPE = {form.media_type.partition(";")[0]: form for form in FORMATS.values() if form is not PROMETHEUS}
_FORMATS_BY_OTHER_MEDIA_TYPE = {"application/ndjson": "ndjson", "application/jsonl": "ndjson"}
_WILDCARDS = {"*/*": JSON, "application/*": JSON, "text/*": FORMATS["csv"]}


def chosen_format(accept: str, format_name: str | None) -> Format:
    """Return the format that `?format=` names, else the first acceptable one of `Accept`, else JSON."""
    if format_name is not None:
        return _format_by_name(format_name)
    if not accept:
        return JSON
    for media_type in _by_preference(accept):
        found = _BY_MEDIA_TYPE.get(media_type) or _WILDCARDS.get(media_type)
        found = found or FORMATS.get(_FORMATS_BY_OTHER_MEDIA_TYPE.get(media_type, ""))
        if found is not None:
            return found
    raise NotAcceptable(
        f"None of the accepted media types is available: {accept}.",
        hint="There are: " + ", ".join(_BY_MEDIA_TYPE) + ".",
    )


def _format_by_name(name: str) -> Format:
    if name not in FORMATS:
        raise NotAcceptable(f"There is no format {name!r}.", hint="There are: " + ", ".join(FORMATS) + ".")
    return FORMATS[name]


def _by_preference(header: str) -> list[str]:
    """Return the names in the header, most preferred first, without those of weight 0."""
    weighted: list[tuple[float, int, str]] = []
    for part in header.split(","):
        name, *attributes = (chunk.strip().lower() for chunk in part.split(";"))
        weight = next((_q_value(text[2:]) for text in attributes if text.startswith("q=")), 1.0)
        if name and weight > 0:
            weighted.append((-weight, len(weighted), name))
    return [name for _, _, name in sorted(weighted)]


def _q_value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
