"""Request cache: the parsed request by its bytes, so that a repeated one is not parsed again.

Permissions of the key and the endpoint's revision are checked each time; only parsing is cached.
"""

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.serve.ask import Ask
from cordwood.web.asgi import Request

# Every header that affects parsing.
READ_HEADERS = (
    b"authorization",
    b"x-api-key",
    b"accept",
    b"accept-encoding",
    b"cache-control",
    b"lf-endpoint-redact-pii",
)
MOST_BYTES = 16 * 2**20
# A longer request is not worth caching.
LONGEST_BYTES = 2048

# The estimated size of the ask and its containers.
_STRUCT_BYTES = 300

Spelling = tuple[bytes | None, ...]


class Remembered(msgspec.Struct, frozen=True):
    """A parsed request, and the request digest that finds its cached answer."""

    address: str
    presented: str | None
    ask: Ask
    digest: bytes
    coding: str | None


class Recall:
    """An LRU cache of parsed requests, bounded in bytes."""

    def __init__(self) -> None:
        self._known: BoundedCache[Spelling, Remembered] = BoundedCache(MOST_BYTES, _remembered_bytes)

    def find(self, request: Request) -> Remembered | None:
        return self._known.get(_spelling(request)) if _is_plain(request) else None

    def keep(self, request: Request, remembered: Remembered) -> None:
        digest = _spelling(request)
        if not _is_plain(request) or sum(len(part) for part in digest if part) > LONGEST_BYTES:
            return
        self._known.put(digest, remembered)


def _remembered_bytes(digest: Spelling, remembered: Remembered) -> int:
    """Return the estimated bytes of an entry, without the shared endpoint and key."""
    ask = remembered.ask
    own = (remembered.address, remembered.presented, remembered.digest, ask.parameters, ask.sandbox)
    return bytes_of((digest, *own, ask.caller)) + _STRUCT_BYTES


def _is_plain(request: Request) -> bool:
    """Return whether it is a GET without a body and without repeated headers: the cache key has one value of each."""
    is_bare = request.method == "GET" and not request.announces_body()
    return is_bare and len(request.headers) == len(request.scope["headers"])


def _spelling(request: Request) -> Spelling:
    get = request.headers.get
    return (request.path, request.query_string, *[get(name) for name in READ_HEADERS])
