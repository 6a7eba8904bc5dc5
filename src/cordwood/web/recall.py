"""Requests that were read before: the same bytes mean the same ask, and need not be read again.

What a key may do and what an endpoint is are looked up each time; only the reading is remembered.
"""

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.serve.ask import Ask
from cordwood.web.asgi import Request

# All that reading an ask looks at beside the address.
READ_HEADERS = (
    b"authorization",
    b"x-api-key",
    b"accept",
    b"accept-encoding",
    b"cache-control",
    b"lf-endpoint-redact-pii",
)
MOST_BYTES = 16 * 2**20
# A longer request costs more to keep than reading it again does.
LONGEST_BYTES = 2048

# An ask and what holds it.
_STRUCT_BYTES = 300

Spelling = tuple[bytes | None, ...]


class Remembered(msgspec.Struct, frozen=True):
    """What a request was read as, and the spelling by which its kept answer is found."""

    address: str
    presented: str | None
    ask: Ask
    spelling: bytes
    coding: str | None


class Recall:
    """The latest few thousand distinct requests, with what was read of them."""

    def __init__(self) -> None:
        self._known: BoundedCache[Spelling, Remembered] = BoundedCache(MOST_BYTES, _remembered_bytes)

    def find(self, request: Request) -> Remembered | None:
        return self._known.get(_spelling(request)) if _is_plain(request) else None

    def keep(self, request: Request, remembered: Remembered) -> None:
        spelling = _spelling(request)
        if not _is_plain(request) or sum(len(part) for part in spelling if part) > LONGEST_BYTES:
            return
        self._known.put(spelling, remembered)


def _remembered_bytes(spelling: Spelling, remembered: Remembered) -> int:
    """Endpoints are the catalogue's, and keys mostly the store's."""
    ask = remembered.ask
    own = (remembered.address, remembered.presented, remembered.spelling, ask.parameters, ask.sandbox)
    return bytes_of((spelling, *own, ask.caller)) + _STRUCT_BYTES


def _is_plain(request: Request) -> bool:
    """A GET without a body, and with each header once: the spelling holds but one of each."""
    is_bare = request.method == "GET" and not request.announces_body()
    return is_bare and len(request.headers) == len(request.scope["headers"])


def _spelling(request: Request) -> Spelling:
    get = request.headers.get
    return (request.path, request.query_string, *[get(name) for name in READ_HEADERS])
