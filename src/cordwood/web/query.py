"""Handlers for queries (endpoint, sandbox, ad hoc and followed queries), and for the requests of query editors.

The request cache has the parsed form of repeated requests, which are recognised by their bytes. Even then, each request
is checked again: whether the key still permits it, and whether the endpoint is unchanged. The rows of a followed query
are sent as Server-Sent Events, as soon as their events are stored.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from cordwood.access import may_manage_service, require_query_permission
from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.errors import BadParameter, Fault, Forbidden
from cordwood.ingest.quarantine import QUARANTINE_STREAM
from cordwood.model.datatype import Row, Rows
from cordwood.model.definitions import Endpoint
from cordwood.model.key import Caller
from cordwood.model.timestamps import now_us
from cordwood.serve.admission import RequestAllowance
from cordwood.serve.query_request import AnswerFormat, QueryRequest
from cordwood.serve.tails import FeedPosition, FeedRow, pack_rows, parse_feed_position
from cordwood.settings.quantities import parse_duration
from cordwood.sql.follow import EVENT_POSITION_COLUMN_COUNT
from cordwood.sql.sub_query_schema import SubQueryColumn, SubQuerySchema
from cordwood.web.answer_rendering import (
    can_render_on_event_loop,
    escape_header_text,
    ignored_parameter_headers,
    rate_limit_headers,
    render_answer,
    render_complete_answer,
)
from cordwood.web.asgi import (
    Header,
    Request,
    Response,
    choose_content_coding,
    chunk_writer_of,
    no_store_json_response,
    parse_urlencoded,
)
from cordwood.web.credentials import account_of_caller, account_of_key, presented_key, require_private_caller
from cordwood.web.encode.cells import distinct_names
from cordwood.web.query_request_parser import parse_ad_hoc_request, parse_endpoint_request, read_body_parameters
from cordwood.web.request_body import run_while_connected
from cordwood.web.services import Services, WebOptions, require_endpoint

# All headers that affect how a request is parsed. They are a part of its key in the request cache.
REQUEST_CACHE_KEY_HEADERS = (
    b"authorization",
    b"x-api-key",
    b"accept",
    b"accept-encoding",
    b"cache-control",
    b"lf-endpoint-redact-pii",
)
REQUEST_CACHE_BYTES = 16 * 2**20
# A request is not cached if its path, its query string and its headers in `REQUEST_CACHE_KEY_HEADERS` together have
# more bytes than this.
MAX_CACHED_REQUEST_BYTES = 2048

# The estimated memory for the objects of a cached request, in addition to its contents.
_CACHED_REQUEST_OVERHEAD_BYTES = 300

RequestCacheKey = tuple[bytes | None, ...]

# The parameters that may contain the text of a query. In Logflare's API, `sql` is in the backend's dialect, and
# `bq_sql` in BigQuery's dialect.
_QUERY_TEXT_PARAMETERS = ("sql", "bq_sql")
_UNSUPPORTED_QUERY_TEXT_PARAMETERS = ("ch_sql", "pg_sql")


class CachedRequest(msgspec.Struct, frozen=True):
    """A parsed request in the request cache, and the digest under which its answer is cached."""

    endpoint_address: str
    presented_key: str | None
    query_request: QueryRequest
    answer_digest: bytes
    content_coding: str | None


class ParsedRequestCache:
    """A cache of parsed requests. When its size limit is exceeded, it drops the least recently used requests."""

    def __init__(self) -> None:
        self._requests: BoundedCache[RequestCacheKey, CachedRequest] = BoundedCache(
            REQUEST_CACHE_BYTES, _cached_request_bytes
        )

    def find(self, request: Request) -> CachedRequest | None:
        return self._requests.get(_request_cache_key(request)) if _is_cacheable(request) else None

    def put(self, request: Request, cached_request: CachedRequest) -> None:
        digest = _request_cache_key(request)
        if not _is_cacheable(request) or sum(len(part) for part in digest if part) > MAX_CACHED_REQUEST_BYTES:
            return
        self._requests.put(digest, cached_request)


def _cached_request_bytes(digest: RequestCacheKey, cached_request: CachedRequest) -> int:
    """Return the estimated memory of a cached request, without the endpoint, which many requests share."""
    query_request = cached_request.query_request
    own = (
        cached_request.endpoint_address,
        cached_request.presented_key,
        cached_request.answer_digest,
        query_request.parameters,
        query_request.sandbox,
    )
    return estimate_memory_bytes((digest, *own, query_request.caller)) + _CACHED_REQUEST_OVERHEAD_BYTES


def _is_cacheable(request: Request) -> bool:
    """Return whether the request may be cached: it is a GET without a body and without repeated headers."""
    is_get = request.method == "GET" and not request.has_body()
    return is_get and len(request.headers) == len(request.scope["headers"])


def _request_cache_key(request: Request) -> RequestCacheKey:
    get = request.headers.get
    return (request.path, request.query_string, *[get(name) for name in REQUEST_CACHE_KEY_HEADERS])


class AdmittedQuery(msgspec.Struct, frozen=True):
    """A parsed request whose caller may query the endpoint. `query_string_values` has the values in the query string.

    The request has been counted against the key's rate; `allowance` is what remains of this rate.
    """

    query_string_values: Mapping[str, str]
    presented_key: str | None
    request: QueryRequest
    allowance: RequestAllowance | None


async def admit_query(
    request: Request, services: Services, options: WebOptions, address: str, only_format: AnswerFormat | None = None
) -> AdmittedQuery:
    """Check the key of a request, count the request against the key's rate, and parse it.

    If the route has only one answer format, it is given as `only_format`.
    """
    query = parse_urlencoded(request.query_string, "query string")
    key = presented_key(request, query)
    found = services.catalog.endpoint(address)
    caller = services.authenticator.authenticate_for_endpoint(key, found, address)
    request.log_fields["key"] = caller.key_id
    require_query_permission(caller, found)
    endpoint = found or require_endpoint(services, address)
    request.log_fields["endpoint"] = endpoint.name
    allowance = services.query_service.charge_request(caller, account_of_caller(request, caller))
    query_request = await parse_endpoint_request(
        request, endpoint, caller, query, options, services.query_service.cursor_codec, only_format
    )
    return AdmittedQuery(query, key, query_request, allowance)


async def answer_query(
    request: Request, services: Services, options: WebOptions, address: str, request_cache: ParsedRequestCache
) -> Response:
    began = time.perf_counter()
    admitted = await admit_query(request, services, options, address)
    query_request = admitted.request
    digest = services.query_service.cache_lookup_digest(query_request)
    answer = None if digest is None else services.query_service.cached_answer(digest)
    if answer is None:
        answer = await run_while_connected(request, services.query_service.answer(query_request, request.id))
    if digest is not None:
        coding = choose_content_coding(request.joined_header(b"accept-encoding"))
        request_cache.put(request, CachedRequest(address, admitted.presented_key, query_request, digest, coding))
    response = await render_answer(request, query_request, answer, began, services.query_service.cursor_codec)
    return _add_query_headers(response, query_request, admitted.allowance)


def answer_repeated_request(request: Request, services: Services, request_cache: ParsedRequestCache) -> Response | None:
    """Answer a request from the request cache and the answer cache; return None if that is not possible."""
    cached_request = request_cache.find(request)
    if cached_request is None:
        return None
    began = time.perf_counter()
    request.route_name = "query"
    query_request = cached_request.query_request
    if services.catalog.endpoint(cached_request.endpoint_address) is not query_request.endpoint:
        return None
    if _authenticate_again(services, cached_request) != query_request.caller:
        return None
    answer = services.query_service.cached_answer(cached_request.answer_digest)
    if answer is None or not can_render_on_event_loop(answer, cached_request.content_coding):
        return None
    request.log_fields["key"] = query_request.caller.key_id
    request.log_fields["endpoint"] = query_request.endpoint.name
    allowance = services.query_service.charge_request(
        query_request.caller, account_of_caller(request, query_request.caller)
    )
    cursors = services.query_service.cursor_codec
    response = render_complete_answer(request, query_request, answer, cached_request.content_coding, began, cursors)
    return _add_query_headers(response, query_request, allowance)


def _authenticate_again(services: Services, cached_request: CachedRequest) -> Caller:
    return services.authenticator.authenticate_for_endpoint(
        cached_request.presented_key, cached_request.query_request.endpoint, cached_request.endpoint_address
    )


def _add_query_headers(response: Response, query_request: QueryRequest, allowance: RequestAllowance | None) -> Response:
    response.headers += ignored_parameter_headers(query_request.ignored_parameters)
    if allowance is not None:
        response.headers += rate_limit_headers(allowance)
    return response


async def answer_ad_hoc_query(request: Request, services: Services, options: WebOptions) -> Response:
    began = time.perf_counter()
    caller, endpoint, texts = await _read_ad_hoc_query(request, services, options)
    query_request = parse_ad_hoc_request(request, endpoint, caller, texts)
    answer = await run_while_connected(request, services.query_service.answer(query_request, request.id))
    return await render_answer(request, query_request, answer, began)


async def show_ad_hoc_query_parameters(request: Request, services: Services, options: WebOptions) -> Response:
    """Return the names of the parameters in an ad hoc query.

    As in Logflare, the response also has an `expanded_query`. It is the unchanged text, because an ad hoc query cannot
    refer to saved queries.
    """
    _, endpoint, _ = await _read_ad_hoc_query(request, services, options)
    names = [parameter.name for parameter in endpoint.parameters]
    return no_store_json_response({"result": {"parameters": names, "expanded_query": endpoint.sql}})


async def _read_ad_hoc_query(
    request: Request, services: Services, options: WebOptions
) -> tuple[Caller, Endpoint, Mapping[str, str]]:
    caller, query = require_private_caller(request, services)
    if caller.pins:
        pins = ", ".join(f"{name} = {value!r}" for name, value in caller.pins.items())
        raise Forbidden(
            f"This key is pinned to {pins}, and an ad hoc query reads whole streams.",
            hint="Query an endpoint that has a parameter of that name.",
        )
    texts = {**query, **await read_body_parameters(request, query, options, _QUERY_TEXT_PARAMETERS)}
    streams = [QUARANTINE_STREAM.name, *(stream.name for stream in services.catalog.streams())]
    endpoint = await services.query_service.create_ad_hoc_endpoint(_ad_hoc_query_text(texts), streams, caller.key_id)
    request.log_fields["endpoint"] = endpoint.name
    return caller, endpoint, texts


def _ad_hoc_query_text(texts: Mapping[str, str]) -> str:
    _refuse_backend_selection(texts.get("backend_id"))
    sent = [name for name in _QUERY_TEXT_PARAMETERS if texts.get(name, "").strip()]
    if len(sent) > 1:
        raise BadParameter("sql= and bq_sql= were sent together.", hint="Send one of them.")
    if sent:
        return texts[sent[0]]
    other = next((name for name in _UNSUPPORTED_QUERY_TEXT_PARAMETERS if name in texts), None)
    if other is not None:
        raise BadParameter(
            f"{other}= is not read here.", hint="Write the query in BigQuery's dialect and send it as sql=."
        )
    empty = next((name for name in _QUERY_TEXT_PARAMETERS if name in texts), None)
    raise BadParameter(
        "No query was sent." if empty is None else f"{empty}= was sent empty.",
        hint="Send a query in BigQuery's dialect as sql= or bq_sql=.",
    )


def _refuse_backend_selection(backend_id: str | None) -> None:
    if backend_id is not None and not backend_id.isdecimal():
        raise BadParameter("Invalid backend_id: must be an integer.")
    if backend_id is not None:
        raise BadParameter("Backend not found.", hint="There is only one engine: omit backend_id.")


async def show_sandbox_sub_queries(request: Request, services: Services, address: str) -> Response:
    """Return what a query editor needs: the endpoint's sub-queries, whether the key is private, and its pins.

    If the key is pinned to a project, the sub-queries have only the paths that occur in events of this project.
    """
    endpoint, caller, _ = _authorize_sandbox(request, services, address)
    sub_queries = await services.query_service.describe_sub_queries(
        endpoint, caller, account_of_caller(request, caller)
    )
    key = {"private": may_manage_service(caller), "pins": dict(caller.pins)}
    described = [_sub_query_json(one) for one in sub_queries]
    return no_store_json_response({"endpoint": endpoint.name, "sub_queries": described, "key": key})


async def show_lql_as_sql(request: Request, services: Services, address: str) -> Response:
    """Translate an LQL query to SQL and return the SQL, without running it."""
    endpoint, caller, query = _authorize_sandbox(request, services, address)
    lql = query.get("lql", "").strip()
    if not lql:
        raise BadParameter("The parameter lql is missing.", hint="It is the query whose SQL is wanted.")
    sql = await services.query_service.translate_lql(endpoint, caller, query["lql"], account_of_caller(request, caller))
    return no_store_json_response({"sql": sql})


def _authorize_sandbox(request: Request, services: Services, address: str) -> tuple[Endpoint, Caller, dict[str, str]]:
    query = parse_urlencoded(request.query_string, "query string")
    found = services.catalog.endpoint(address)
    caller = services.authenticator.authenticate_for_endpoint(presented_key(request, query), found, address)
    request.log_fields["key"] = caller.key_id
    require_query_permission(caller, found)
    found = found or require_endpoint(services, address)
    services.query_service.charge_request(caller, account_of_caller(request, caller))
    if not found.accepts_sandbox_queries:
        raise BadParameter(f"{found.name} does not accept queries of callers.")
    return found, caller, query


def _sub_query_json(sub_query: SubQuerySchema) -> dict[str, Any]:
    return {"name": sub_query.name, "columns": [_column_json(column) for column in sub_query.columns]}


def _column_json(column: SubQueryColumn) -> dict[str, Any]:
    fields = [
        {"path": list(path), "kinds": sorted(kinds)} for path, kinds in column.value_kinds_by_path.items() if path
    ]
    return {"name": column.name, "type": column.kind, "fields": fields}


_encode_json = msgspec.json.Encoder().encode


def _encode_feed_rows(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns[:-EVENT_POSITION_COLUMN_COUNT])
    for batch in rows.batches:
        if batch:
            yield pack_rows([_feed_row(names, row) for row in batch])


def _feed_row(names: list[str], row: Row) -> FeedRow:
    data = _encode_json(dict(zip(names, row[:-EVENT_POSITION_COLUMN_COUNT], strict=True)))
    if b"\n" in data or b"\r" in data:
        # The sender's JSON may have line breaks between its tokens. A line break would end the `data:` line of the
        # Server-Sent Event.
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    receipt_us, time_us, key = row[-EVENT_POSITION_COLUMN_COUNT:]
    return FeedRow(int(str(receipt_us)), int(str(time_us)), str(key), data)


FEED_ROWS_FORMAT = AnswerFormat("tail", "text/event-stream", _encode_feed_rows)


_SINCE_PARAMETER = "since"
_EVENT_STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", FEED_ROWS_FORMAT.media_type.encode()),
    (b"cache-control", b"no-store"),
    # With this header, nginx and similar proxies pass on each event at once.
    (b"x-accel-buffering", b"no"),
)


async def follow_query(request: Request, services: Services, options: WebOptions, address: str) -> Response:
    admitted = await admit_query(request, services, options, address, FEED_ROWS_FORMAT)
    query_request, allowance = admitted.request, admitted.allowance
    endpoint = query_request.endpoint
    position = _feed_start_position(request, admitted.query_string_values, endpoint)

    def access_fault() -> Fault | None:
        """Return an error if the endpoint or the key has changed, so that the caller may no longer follow the query."""
        try:
            current = services.catalog.endpoint(address)
            if (
                current is endpoint
                and services.authenticator.authenticate_for_endpoint(admitted.presented_key, current, address)
                == query_request.caller
            ):
                return None
        except Fault as fault:
            return fault
        return Forbidden("The endpoint or the key has changed.", hint="Connect again.")

    write_part = chunk_writer_of(request.scope)
    write = partial(_write_http_chunk, write_part) if write_part is not None else None
    client = account_of_key(request, "")
    follower = await run_while_connected(
        request, services.tail_service.follow(query_request, position, access_fault, write, client)
    )
    chunks = follower.chunks()
    # Read the first chunk to start the generator. If it were closed without being started, its `finally` block, which
    # ends the follower, would not run.
    first = await anext(chunks)
    ignored = ignored_parameter_headers(name for name in query_request.ignored_parameters if name != _SINCE_PARAMETER)
    notices = [(b"cordwood-notice", escape_header_text(notice)) for notice in follower.notices]
    rate = rate_limit_headers(allowance) if allowance is not None else []
    return Response(200, [*_EVENT_STREAM_HEADERS, *ignored, *notices, *rate], _prepend_chunk(first, chunks))


def _write_http_chunk(write: Callable[[bytes], bool], chunk: bytes) -> bool:
    return write(_frame_http_chunk(chunk))


class _LastFramedChunk:
    """The last chunk in HTTP framing, which is cached because all followers of a query get the same chunks."""

    chunk = b""
    framed_chunk = b""


def _frame_http_chunk(chunk: bytes) -> bytes:
    """Return a chunk with the framing of HTTP/1.1's chunked transfer encoding."""
    if chunk is not _LastFramedChunk.chunk:
        _LastFramedChunk.chunk, _LastFramedChunk.framed_chunk = chunk, b"%x\r\n%b\r\n" % (len(chunk), chunk)
    return _LastFramedChunk.framed_chunk


async def _prepend_chunk(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield first
    async for chunk in chunks:
        yield chunk


def _feed_start_position(request: Request, query: Mapping[str, str], endpoint: Endpoint) -> FeedPosition | None:
    """Return where a followed query starts: after the last event that the client got, or as long ago as `since` says.

    None means that the query starts with events that are stored from now on.
    """
    last_id = request.header(b"last-event-id")
    if last_id:
        return parse_feed_position(last_id)
    since = query.get(_SINCE_PARAMETER)
    if not since or any(parameter.name == _SINCE_PARAMETER for parameter in endpoint.parameters):
        return None
    try:
        seconds = parse_duration(since)
    except ValueError as problem:
        raise BadParameter(f"since={problem}.", hint="Send how long ago to begin, as in since=10m.") from None
    return FeedPosition(max(0, now_us() - round(seconds * 1e6)), 0)
