"""Response headers for CORS, and JSON responses that must not be cached because they depend on the key."""

from typing import Final

import msgspec

from cordwood.web.asgi import Header, Response

ALLOWED_HEADERS = (
    b"Authorization, Content-Type, Content-Encoding, Accept, Cache-Control, If-Match, If-None-Match, X-Requested-With, "
    b"X-API-KEY, X-Source, X-Collection, X-Request-Id, LF-ENDPOINT-LABELS, LF-ENDPOINT-REDACT-PII, "
    b"LF-ENDPOINT-BIGQUERY-RESERVATION, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
)
EXPOSED_HEADERS = (
    b"Age, Cache-Status, Cordwood-Next, Cordwood-Notice, Cordwood-Revision, Cordwood-Rows, Cordwood-Truncated, ETag, RateLimit, "
    b"RateLimit-Policy, Retry-After, Server-Timing, X-Request-Id"
)
MAX_AGE_SECONDS = b"1728000"

# Sent with every response, because without them a page could not read an error.
CORS_HEADERS: tuple[Header, ...] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", EXPOSED_HEADERS),
)


def preflight(methods: str) -> Response:
    return Response(
        204,
        [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", MAX_AGE_SECONDS),
            (b"allow", methods.encode()),
        ],
    )


NO_STORE: Final[Header] = (b"cache-control", b"no-store")
JSON: Final = b"application/json; charset=utf-8"


def no_store_json(value: object, status: int = 200, *more: Header) -> Response:
    return Response(status, [(b"content-type", JSON), NO_STORE, *more], msgspec.json.encode(value))
