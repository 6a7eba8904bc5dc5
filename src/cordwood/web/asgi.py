"""A thin typed layer over ASGI: requests with query strings and forms, and responses with compression."""

import re
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final, Protocol
from urllib.parse import unquote_to_bytes

import msgspec

from cordwood.errors import BadParameter, Fault

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

# A body larger than this is written in chunks, at the pace at which the client reads it. A smaller body is written at
# once.
WRITE_CHUNK_BYTES = 128 * 1024

# The server puts some functions into the ASGI scope. The function under this key writes a whole answer. It returns
# False if it cannot write now.
RESPONSE_WRITER_SCOPE_KEY = "cordwood.write_whole"

# The function under this key in the ASGI scope writes a part of a streamed answer. It returns False if it cannot write
# now.
_CHUNK_WRITER_SCOPE_KEY = "cordwood.write_part"

# The function under this key in the ASGI scope ends a streamed answer with trailers. It returns False if it cannot send
# trailers.
_TRAILERS_WRITER_SCOPE_KEY = "cordwood.write_trailers"

# The function under this key in the ASGI scope aborts the connection.
_ABORT_CALLBACK_SCOPE_KEY = "cordwood.cut"

# Under this key, the ASGI scope has an error that the server found in the request before it called the application.
_FAULT_SCOPE_KEY = "cordwood.fault"


def set_response_writer(scope: Any, write: "Callable[[Response, bytes], bool]") -> None:
    scope[RESPONSE_WRITER_SCOPE_KEY] = write


def set_chunk_writer(scope: Any, write: "Callable[[bytes], bool]") -> None:
    scope[_CHUNK_WRITER_SCOPE_KEY] = write


def chunk_writer_of(scope: Scope) -> "Callable[[bytes], bool] | None":
    """Return the server's function that writes a part of a streamed answer in HTTP framing, or None if it has none.

    The function returns False if the client reads too slowly.
    """
    found: Callable[[bytes], bool] | None = scope.get(_CHUNK_WRITER_SCOPE_KEY)
    return found


def set_trailers_writer(scope: Any, write: "Callable[[list[Header]], bool]") -> None:
    scope[_TRAILERS_WRITER_SCOPE_KEY] = write


def set_abort_callback(scope: Any, abort: Callable[[], None]) -> None:
    scope[_ABORT_CALLBACK_SCOPE_KEY] = abort


def abort_callback_of(scope: Scope) -> Callable[[], None]:
    """Return the server's function that aborts the connection of the request, or else a function that does nothing."""
    found: Callable[[], None] = scope.get(_ABORT_CALLBACK_SCOPE_KEY, _do_nothing)
    return found


def _do_nothing() -> None:
    """Do nothing. This is the default of optional callbacks."""


def set_fault(scope: Any, fault: Fault) -> None:
    scope[_FAULT_SCOPE_KEY] = fault


def fault_of(scope: Scope) -> Fault | None:
    found = scope.get(_FAULT_SCOPE_KEY)
    return found if isinstance(found, Fault) else None


class Request:
    """An HTTP request, whose body is read on demand.

    `route_name` and `log_fields` are logged when the request has been answered. `allowed_methods` are the HTTP methods
    that are allowed for the request's path.
    """

    __slots__ = (
        "allowed_methods",
        "headers",
        "id",
        "log_fields",
        "method",
        "path",
        "query_string",
        "receive",
        "route_name",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.id = ""
        self.route_name = "unknown"
        self.allowed_methods: tuple[str, ...] = ()
        self.log_fields: dict[str, Any] = {}

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def media_type(self) -> str:
        """Return the media type of the body in lower case, without parameters such as `charset`."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")

    def has_body(self) -> bool:
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    def joined_header(self, name: bytes) -> str:
        """Return the value of a header that is a list. If it was sent several times, join the values with commas."""
        return b", ".join([value for key, value in self.scope["headers"] if key == name]).decode("latin-1")


class Response:
    """A status, headers, and a body, which is either complete or a stream of chunks.

    `block` has further headers, which are already rendered as text. `trailers` is a function that returns the headers
    to send after the last chunk.
    """

    __slots__ = ("body", "compute_trailers", "extra_rendered_headers", "headers", "status")

    def __init__(
        self,
        status: int,
        headers: list[Header],
        body: bytes | AsyncIterator[bytes] = b"",
        block: bytes = b"",
        trailers: "Callable[[], list[Header]] | None" = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.extra_rendered_headers = block
        self.compute_trailers = trailers

    async def send_to(self, scope: Scope, send: Send, on_progress: Callable[[], None] = _do_nothing) -> None:
        """Send the response. `on_progress` is called each time that the client has read a chunk of a large body."""
        with_body = scope["method"] != "HEAD"
        if not isinstance(self.body, bytes):
            await self._send_chunks(scope, send, self.body, with_body=with_body)
            return
        write = scope.get(RESPONSE_WRITER_SCOPE_KEY)
        if write is None or not write(self, self.body if with_body else b""):
            await self._send_whole(send, self.body if with_body else b"", on_progress)

    async def _send_whole(self, send: Send, body: bytes, on_progress: Callable[[], None]) -> None:
        headers = [*self.headers, *_parse_headers(self.extra_rendered_headers)]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        last = max(0, (len(body) - 1) // WRITE_CHUNK_BYTES * WRITE_CHUNK_BYTES)
        for begin in range(0, last, WRITE_CHUNK_BYTES):
            # `send` returns only when the client has read most of the previous chunks.
            await send(
                {"type": "http.response.body", "body": body[begin : begin + WRITE_CHUNK_BYTES], "more_body": True}
            )
            on_progress()
        await send({"type": "http.response.body", "body": body[last:]})

    async def _send_chunks(self, scope: Scope, send: Send, chunks: AsyncIterator[bytes], *, with_body: bool) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        if with_body:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        write = scope.get(_TRAILERS_WRITER_SCOPE_KEY)
        if self.compute_trailers is None or write is None or not with_body or not write(self.compute_trailers()):
            await send({"type": "http.response.body", "body": b""})


def render_headers(headers: list[Header]) -> bytes:
    """Return headers as text in HTTP/1.1 syntax."""
    return b"".join([name + b": " + value + b"\r\n" for name, value in headers])


def _parse_headers(block: bytes) -> list[Header]:
    pairs = (line.partition(b": ") for line in block.split(b"\r\n") if line)
    return [(name, value) for name, _, value in pairs]


CORS_ALLOWED_HEADERS = (
    b"Authorization, Content-Type, Content-Encoding, Accept, Cache-Control, If-Match, If-None-Match, X-Requested-With, "
    b"X-API-KEY, X-Source, X-Collection, X-Request-Id, LF-ENDPOINT-LABELS, LF-ENDPOINT-REDACT-PII, "
    b"LF-ENDPOINT-BIGQUERY-RESERVATION, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
)
CORS_EXPOSED_HEADERS = (
    b"Age, Cache-Status, Cordwood-Next, Cordwood-Notice, Cordwood-Revision, Cordwood-Rows, Cordwood-Truncated, ETag, RateLimit, "
    b"RateLimit-Policy, Retry-After, Server-Timing, X-Request-Id"
)
PREFLIGHT_MAX_AGE_SECONDS = b"1728000"

# These headers are sent with every response, even with errors. Otherwise web pages of other origins could not read the
# response.
CORS_HEADERS: tuple[Header, ...] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", CORS_EXPOSED_HEADERS),
)


def preflight_response(methods: str) -> Response:
    return Response(
        204,
        [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", CORS_ALLOWED_HEADERS),
            (b"access-control-max-age", PREFLIGHT_MAX_AGE_SECONDS),
            (b"allow", methods.encode()),
        ],
    )


NO_STORE_HEADER: Final[Header] = (b"cache-control", b"no-store")
JSON_MEDIA_TYPE: Final = b"application/json; charset=utf-8"


def no_store_json_response(value: object, status: int = 200, *more: Header) -> Response:
    return Response(status, [(b"content-type", JSON_MEDIA_TYPE), NO_STORE_HEADER, *more], msgspec.json.encode(value))


_INVALID_PERCENT_ESCAPE_PATTERN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PARAMETER_EXCERPT_CHARACTERS = 40
_PERCENT_HINT = "A percent sign itself is sent as %25."


def percent_decode(text: bytes, subject: str) -> str:
    """Percent-decode a text; raise BadParameter if it is malformed."""
    broken = _INVALID_PERCENT_ESCAPE_PATTERN.search(text)
    if broken is not None:
        piece = text[broken.start() : broken.start() + 3].decode("latin-1")
        raise BadParameter(f"The {subject} has a broken percent-encoding: {piece!r}.", hint=_PERCENT_HINT)
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise BadParameter(
            f"The {subject} is not UTF-8.", hint="Encode text as UTF-8, then percent-encode it."
        ) from None


def parse_count_parameter(text: str | None, default: int, limit: int, name: str = "limit") -> int:
    """Parse a parameter that is a number from 1 to `limit`; raise BadParameter if it is not.

    If `text` is None, return `default`.
    """
    if text is None:
        return default
    if not text.isdecimal() or len(text) > len(str(limit)) or not 1 <= int(text) <= limit:
        raise BadParameter(
            f"{name} is {text[:_PARAMETER_EXCERPT_CHARACTERS]!r}.", hint=f"It must be a number from 1 to {limit}."
        )
    return int(text)


def parse_urlencoded(text: bytes, subject: str) -> dict[str, str]:
    """Parse a query string or form. If a name occurs several times, its last value counts."""
    if b"%" not in text and b"+" not in text and text.isascii():
        return _parse_unescaped_urlencoded(text.decode("ascii"))
    return dict(iterate_urlencoded(text, subject))


def iterate_urlencoded(text: bytes, subject: str) -> Iterator[tuple[str, str]]:
    """Yield every name and value in a query string or form. A repeated name is yielded with each of its values."""
    for pair in text.replace(b"+", b" ").split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            yield percent_decode(name, subject), percent_decode(value, subject)


def _parse_unescaped_urlencoded(text: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split("&") if pair)


# A body smaller than this fits into one packet anyway, so it is not compressed.
MIN_BODY_BYTES_TO_COMPRESS = 1024
_GZIP_LEVEL = 5
_ZSTD_LEVEL = 3


class Compressor(Protocol):
    """The interface of a compressor for a stream of chunks."""

    def compress_chunk(self, data: bytes) -> bytes:
        """Compress a chunk and flush it, so that the client can decode it without the next chunk."""

    def finish(self) -> bytes: ...


class _GzipCompressor:
    def __init__(self) -> None:
        self._inner = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)

    def compress_chunk(self, data: bytes) -> bytes:
        return self._inner.compress(data) + self._inner.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._inner.flush()


class _ZstdCompressor:
    def __init__(self) -> None:
        self._inner = zstd.ZstdCompressor(level=_ZSTD_LEVEL)

    def compress_chunk(self, data: bytes) -> bytes:
        return self._inner.compress(data, mode=zstd.ZstdCompressor.FLUSH_BLOCK)

    def finish(self) -> bytes:
        return self._inner.flush()


# The compressors by content coding, in order of preference. zstd comes first, because it takes less CPU time than gzip
# for about the same compression ratio.
COMPRESSOR_FACTORIES_BY_CODING: Mapping[str, Callable[[], Compressor]] = {
    "zstd": _ZstdCompressor,
    "gzip": _GzipCompressor,
}


def parse_weighted_names(header: str) -> Iterator[tuple[str, float]]:
    """Yield each name in an `Accept` or `Accept-Encoding` header in lower case, with its weight (`q=`, by default 1).

    If a weight cannot be parsed, it counts as 0.
    """
    for part in header.lower().split(","):
        name, *attributes = (text.strip() for text in part.split(";"))
        weight = next((text[2:] for text in attributes if text.startswith("q=")), "1")
        try:
            yield name, float(weight)
        except ValueError:
            yield name, 0.0


def choose_content_coding(accept_encoding: str) -> str | None:
    """Return the content coding that the client prefers, or None to send the body uncompressed.

    If the client prefers several codings equally, the first of them in `COMPRESSOR_FACTORIES_BY_CODING` is returned.
    """
    weights = dict(parse_weighted_names(accept_encoding))
    others = weights.get("*", 0.0)
    ranked = [(weights.get(name, others), -place, name) for place, name in enumerate(COMPRESSOR_FACTORIES_BY_CODING)]
    weight, _, name = max(ranked)
    return name if weight > 0 and weight >= weights.get("identity", 0.0) else None


def compress_body(body: bytes, coding: str) -> bytes:
    if coding == "zstd":
        return zstd.compress(body, _ZSTD_LEVEL)
    return zlib.compress(body, _GZIP_LEVEL, zlib.MAX_WBITS | 16)


async def compress_chunks(chunks: AsyncIterator[bytes], coding: str) -> AsyncGenerator[bytes, None]:
    compressor = COMPRESSOR_FACTORIES_BY_CODING[coding]()
    async for chunk in chunks:
        yield compressor.compress_chunk(chunk)
    yield compressor.finish()
