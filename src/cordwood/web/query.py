"""Answer saved queries: the request cache, the fast path for repeated requests, and the full path.

The request cache holds parsed requests by their bytes, so that a repeated one is not parsed again. Permissions of the
key and the endpoint's revision are checked each time.
"""

import time
from collections.abc import Mapping

import msgspec

from cordwood.access import require_query
from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.model.key import Caller
from cordwood.serve.query_request import Format, QueryRequest
from cordwood.serve.rate_limiter import Allowance
from cordwood.web.answer_rendering import (
    ignored_headers,
    needs_no_thread,
    rate_headers,
    render_answer,
    render_complete,
)
from cordwood.web.asgi import Request, Response
from cordwood.web.catalog_lookup import existing_endpoint
from cordwood.web.content_negotiation import chosen_coding
from cordwood.web.credentials import account_of, presented
from cordwood.web.lifecycle import Services
from cordwood.web.options import WebOptions
from cordwood.web.percent_encoding import pairs
from cordwood.web.query_request_parser import read_ask
from cordwood.web.receiving import while_connected

# Every header that affects parsing.
READ_HEADERS = (
    b"authorization",
    b"x-api-key",
    b"accept",
    b"accept-encoding",
    b"cache-control",
    b"lf-endpoint-redact-pii",
)
MOST_CACHED_BYTES = 16 * 2**20
# A longer request is not worth caching.
LONGEST_CACHED_BYTES = 2048

# The estimated size of the request and its containers.
_STRUCT_BYTES = 300

RequestKey = tuple[bytes | None, ...]


class CachedRequest(msgspec.Struct, frozen=True):
    """A parsed request, and the request digest that finds its cached answer."""

    address: str
    presented: str | None
    query_request: QueryRequest
    digest: bytes
    coding: str | None


class RequestCache:
    """An LRU cache of parsed requests, bounded in bytes."""

    def __init__(self) -> None:
        self._known: BoundedCache[RequestKey, CachedRequest] = BoundedCache(MOST_CACHED_BYTES, _cached_request_bytes)

    def find(self, request: Request) -> CachedRequest | None:
        return self._known.get(_request_key(request)) if _is_plain(request) else None

    def keep(self, request: Request, cached_request: CachedRequest) -> None:
        digest = _request_key(request)
        if not _is_plain(request) or sum(len(part) for part in digest if part) > LONGEST_CACHED_BYTES:
            return
        self._known.put(digest, cached_request)


def _cached_request_bytes(digest: RequestKey, cached_request: CachedRequest) -> int:
    """Return the estimated bytes of an entry, without the shared endpoint and key."""
    query_request = cached_request.query_request
    own = (
        cached_request.address,
        cached_request.presented,
        cached_request.digest,
        query_request.parameters,
        query_request.sandbox,
    )
    return bytes_of((digest, *own, query_request.caller)) + _STRUCT_BYTES


def _is_plain(request: Request) -> bool:
    """Return whether it is a GET without a body and without repeated headers: the cache key has one value of each."""
    is_bare = request.method == "GET" and not request.announces_body()
    return is_bare and len(request.headers) == len(request.scope["headers"])


def _request_key(request: Request) -> RequestKey:
    get = request.headers.get
    return (request.path, request.query_string, *[get(name) for name in READ_HEADERS])


class AdmittedQuery(msgspec.Struct, frozen=True):
    """A request whose key may ask for the endpoint, counted against its rate; `texts` is the query string."""

    texts: Mapping[str, str]
    key: str | None
    request: QueryRequest
    allowance: Allowance | None


async def admit_query(
    request: Request, services: Services, options: WebOptions, address: str, only_format: Format | None = None
) -> AdmittedQuery:
    """Check the key, count the request and parse it; `only_format` is the format of a route that has no other."""
    query = pairs(request.query_string, "query string")
    key = presented(request, query)
    found = services.catalog.endpoint(address)
    caller = services.access.visitor(key, found, address)
    request.facts["key"] = caller.key_id
    require_query(caller, found)
    endpoint = found or existing_endpoint(services, address)
    request.facts["endpoint"] = endpoint.name
    allowance = services.answers.admit(caller, account_of(request, caller))
    asked = await read_ask(request, endpoint, caller, query, options, services.answers.cursors, only_format)
    return AdmittedQuery(query, key, asked, allowance)


async def answer_query(
    request: Request, services: Services, options: WebOptions, address: str, request_cache: RequestCache
) -> Response:
    began = time.perf_counter()
    admitted = await admit_query(request, services, options, address)
    query_request = admitted.request
    digest = services.answers.digest_of(query_request)
    answer = None if digest is None else services.answers.cached(digest)
    if answer is None:
        answer = await while_connected(request, services.answers.answer(query_request, request.id))
    if digest is not None:
        coding = chosen_coding(request.joined(b"accept-encoding"))
        request_cache.keep(request, CachedRequest(address, admitted.key, query_request, digest, coding))
    response = await render_answer(request, query_request, answer, began, services.answers.cursors)
    return _complete(response, query_request, admitted.allowance)


def answer_repeated(request: Request, services: Services, request_cache: RequestCache) -> Response | None:
    """Answer a repeated request from the caches; return None if it has to take the full path."""
    cached_request = request_cache.find(request)
    if cached_request is None:
        return None
    began = time.perf_counter()
    request.route = "query"
    query_request = cached_request.query_request
    if services.catalog.endpoint(cached_request.address) is not query_request.endpoint:
        return None
    if _caller(services, cached_request) != query_request.caller:
        return None
    answer = services.answers.cached(cached_request.digest)
    if answer is None or not needs_no_thread(answer, cached_request.coding):
        return None
    request.facts["key"] = query_request.caller.key_id
    request.facts["endpoint"] = query_request.endpoint.name
    allowance = services.answers.admit(query_request.caller, account_of(request, query_request.caller))
    cursors = services.answers.cursors
    response = render_complete(request, query_request, answer, cached_request.coding, began, cursors)
    return _complete(response, query_request, allowance)


def _caller(services: Services, cached_request: CachedRequest) -> Caller:
    return services.access.visitor(
        cached_request.presented, cached_request.query_request.endpoint, cached_request.address
    )


def _complete(response: Response, query_request: QueryRequest, allowance: Allowance | None) -> Response:
    response.headers += ignored_headers(query_request.ignored)
    if allowance is not None:
        response.headers += rate_headers(allowance)
    return response
