"""Routes for AI agents: a server of the Model Context Protocol (MCP) at `/mcp`, and the permissions of a key.

To run a tool, the MCP server sends requests to this same application, as if the agent had sent them over HTTP with its
key. Therefore pins, rate limits, redaction, the cache, the log and the metrics apply to these requests. The MCP library
is an optional dependency, which is imported when the first request with a key arrives.
"""

import asyncio
import importlib
from collections.abc import Iterable
from types import ModuleType

import msgspec

from cordwood.access import may_query
from cordwood.agents.api import (
    ApiCall,
    ApiResponse,
    KeyPermissions,
    OnChunk,
    QueryableEndpoint,
    truncated_response_fault,
)
from cordwood.catalog.definition_fields import LOGFLARE_LANGUAGE_BY_DIALECT
from cordwood.errors import Fault, FeatureUnavailable
from cordwood.ingest.limits import MemoryReservation
from cordwood.model.definitions import Endpoint
from cordwood.model.key import Caller
from cordwood.settings.quantities import format_rate
from cordwood.web.asgi import (
    JSON_MEDIA_TYPE,
    NO_STORE_HEADER,
    Application,
    Message,
    Request,
    Response,
    Scope,
    no_store_json_response,
    parse_urlencoded,
)
from cordwood.web.credentials import account_of_caller, identify_caller, presented_key
from cordwood.web.describe.openapi import body_member_schema
from cordwood.web.query_request_parser import REDACT_HEADER
from cordwood.web.request_body import BodyBounds, read_body, run_while_connected
from cordwood.web.route import HandlerContext
from cordwood.web.services import Services

# The maximum size of a message, which may contain a query. A query has at most 256 Ki characters, some of which JSON
# writes as escapes of several bytes.
_MCP_BODY_BOUNDS = BodyBounds(2**20, 2**20)
# The memory that each call reserves in addition to its body, for the rows that it reads and the answer that it makes of
# them. If the rows need more, more is reserved as they arrive.
_API_CALL_MEMORY_RESERVATION_BYTES = 2**20
# The reserved memory for a message, as a multiple of its size. While the MCP library parses a message, it makes copies
# that together take five to nine times the message's size, according to measurements.
_MEMORY_BYTES_PER_MESSAGE_BYTE = 8
# MCP methods for which the MCP server sends HTTP requests. Each of these requests counts against the key's rate, so the
# message itself does not.
_METHODS_CHARGED_PER_INNER_REQUEST = frozenset({"tools/call", "resources/list", "resources/read"})


async def show_key_permissions(request: Request, services: Services) -> Response:
    """Return what the request's key permits: its terms, and the endpoints that it may query, with parameters."""
    caller, _ = identify_caller(request, services)
    services.query_service.charge_request(caller)
    return no_store_json_response(create_key_permissions(caller, services.catalog.endpoints()))


def create_key_permissions(caller: Caller, endpoints: Iterable[Endpoint]) -> KeyPermissions:
    """Return the permissions of the caller's key.

    Each pin of a key sets a parameter of the endpoints. If an endpoint lacks this parameter, the key cannot query the
    endpoint, so the endpoint is left out.
    """
    offered = [
        _queryable_endpoint(endpoint, caller)
        for endpoint in endpoints
        if may_query(caller, endpoint) and caller.pins.keys() <= {one.name for one in endpoint.parameters}
    ]
    rate = None if caller.rate_per_second is None else format_rate(caller.rate_per_second)
    return KeyPermissions(
        caller.key_id, " ".join(sorted(caller.scopes)), caller.pins, caller.redact_always, rate, offered
    )


def _queryable_endpoint(endpoint: Endpoint, caller: Caller) -> QueryableEndpoint:
    free = [one for one in endpoint.parameters if one.name not in caller.pins]
    schema = {
        "type": "object",
        "properties": {one.name: body_member_schema(one) for one in free},
        "required": [one.name for one in free if one.required and one.default is None],
    }
    return QueryableEndpoint(
        name=endpoint.name,
        token=str(endpoint.id),
        description=endpoint.description,
        language=LOGFLARE_LANGUAGE_BY_DIALECT[endpoint.dialect],
        sandboxable=endpoint.accepts_sandbox_queries,
        max_limit=endpoint.max_rows,
        parameters=schema,
    )


async def answer_mcp(context: HandlerContext) -> Response:
    """Answer one MCP message. There are no sessions, so each message carries the key."""
    request, services = context.request, context.services()
    key = presented_key(request, parse_urlencoded(request.query_string, "query string"))
    caller = services.authenticator.authenticate(key)
    request.log_fields["key"] = caller.key_id
    with context.dependencies.options.query_body_budget.open_reservation(
        account_of_caller(request, caller)
    ) as reservation:
        reservation.reserve(_API_CALL_MEMORY_RESERVATION_BYTES)
        body = await read_body(request, _MCP_BODY_BOUNDS, reservation)
        reservation.reserve(_MEMORY_BYTES_PER_MESSAGE_BYTE * len(body))
        is_counted = _mcp_method_of_body(body) not in _METHODS_CHARGED_PER_INNER_REQUEST
        if is_counted:
            services.query_service.charge_request(caller)
        server = await asyncio.to_thread(_import_mcp_server)
        api = InProcessApi(context, key or "", caller, reservation)
        status, answer_body = await run_while_connected(
            request, server.answer_message(api, request.scope["headers"], body)
        )
    if not is_counted and not api.has_sent_request:
        services.query_service.charge_request(caller)
    # MCP notifications are not answered, so their responses have an empty body.
    headers = [(b"content-type", JSON_MEDIA_TYPE), NO_STORE_HEADER] if answer_body else [NO_STORE_HEADER]
    return Response(status, headers, answer_body)


class _McpMessageMethod(msgspec.Struct):
    method: str = ""


def _mcp_method_of_body(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_McpMessageMethod).method
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _import_mcp_server() -> ModuleType:
    """Import the MCP server; raise FeatureUnavailable if the optional MCP library is not installed.

    The import takes half a second, so call this function in a thread.
    """
    try:
        return importlib.import_module("cordwood.agents.mcp_server")
    except ModuleNotFoundError as missing:
        hint = "Install it: pip install 'cordwood[mcp]'."
        raise FeatureUnavailable(f"/mcp needs {missing.name}, which is not installed.", hint=hint) from missing


class InProcessApi:
    """Sends requests with one key to the HTTP API, inside the process."""

    def __init__(self, context: HandlerContext, key: str, caller: Caller, reservation: MemoryReservation) -> None:
        self.has_sent_request = False
        self._memory_reservation = reservation
        self._handler_context = context
        self._api_key = key
        self._caller = caller

    async def fetch_permissions(self) -> KeyPermissions:
        return create_key_permissions(self._caller, self._handler_context.services().catalog.endpoints())

    async def send(self, call: ApiCall, on_chunk: OnChunk) -> ApiResponse:
        self.has_sent_request = True
        exchange = _InProcessRequest(call, on_chunk, self._memory_reservation)
        await exchange.run(self._handler_context.dependencies.dispatch_request, self._asgi_scope(call))
        if exchange.fault is not None:
            raise exchange.fault
        return ApiResponse(exchange.response_status, exchange.response_headers, bytes(exchange.error_body))

    def _asgi_scope(self, call: ApiCall) -> Scope:
        request = self._handler_context.request
        path, _, query = call.path.partition("?")
        headers = {
            **call.headers,
            "x-api-key": self._api_key,
            "x-request-id": request.id,
            "content-length": str(len(call.body)),
        }
        redact = [(name, value) for name, value in request.scope["headers"] if name == REDACT_HEADER]
        return {
            "type": "http",
            "http_version": "1.1",
            "method": call.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            + redact,
            "client": request.scope.get("client"),
        }


class _InProcessRequest:
    """A request that is sent to the application inside the process.

    As soon as the sender needs no more of the response, the application is told that the client has disconnected.
    """

    def __init__(self, call: ApiCall, on_chunk: OnChunk, reservation: MemoryReservation) -> None:
        self.response_status = 0
        self.fault: Fault | None = None
        self.response_headers: list[tuple[str, str]] = []
        self.error_body = bytearray()
        self._request_body = call.body
        self._on_chunk = on_chunk
        self._is_request_body_read = False
        self._is_response_complete = False
        self._disconnected_event = asyncio.Event()
        self._memory_reservation = reservation
        self._received_response_bytes = 0

    async def run(self, application: Application, scope: Scope) -> None:
        await application(scope, self._receive, self._send)
        if not self._is_response_complete and not self._disconnected_event.is_set():
            # The application has returned before it sent the whole body.
            self.fault = truncated_response_fault()

    async def _receive(self) -> Message:
        if not self._is_request_body_read:
            self._is_request_body_read = True
            return {"type": "http.request", "body": self._request_body, "more_body": False}
        await self._disconnected_event.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.response_status = message["status"]
            self.response_headers = [
                (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message["headers"]
            ]
            return
        self._is_response_complete = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        if self.response_status >= 400:
            self.error_body += body
        elif not self._disconnected_event.is_set() and not self._pass_on_chunk(body):
            self._disconnected_event.set()

    def _pass_on_chunk(self, chunk: bytes) -> bool:
        """Reserve memory for a chunk and pass it to the sender; return False if the sender needs no further chunks."""
        self._received_response_bytes += len(chunk)
        try:
            if self._received_response_bytes > _API_CALL_MEMORY_RESERVATION_BYTES:
                self._memory_reservation.reserve(len(chunk))
        except Fault as fault:
            self.fault = fault
            return False
        return self._on_chunk(chunk)
