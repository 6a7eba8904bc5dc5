"""What happens to every request: request id, errors as problem documents, common headers, memory budget, request log.

Large bodies that are being sent to slow clients have a memory budget, in total and for each account.
"""

import itertools
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from cordwood.errors import (
    BugFault,
    EngineFailed,
    Fault,
    MalformedHttpRequest,
    MethodNotAllowed,
    MissingApiKey,
    ServiceBusy,
)
from cordwood.ingest.limits import BodyMemoryBudget, MemoryReservation
from cordwood.observe.observation import BugFound, Observer, RequestAnswered
from cordwood.web import ingest, loki_api, shippers
from cordwood.web.asgi import (
    CORS_HEADERS,
    WRITE_CHUNK_BYTES,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    abort_callback_of,
    fault_of,
)
from cordwood.web.credentials import account_of_key, audit_refusal, key_header_hint
from cordwood.web.problems import logflare_error_response, problem_response
from cordwood.web.request_body import ClientDisconnectedError, chunks_while_connected


class _OutgoingBody(msgspec.Struct):
    """A body that is being sent, possibly to several clients at once if it belongs to a cached answer."""

    reservation: MemoryReservation
    exit_stack: ExitStack
    abort_callbacks: list[Callable[[], None]]

    def abort_all(self) -> None:
        for abort in self.abort_callbacks:
            abort()


class SendMemoryBudget:
    """The memory budget for large bodies that are being sent. Not thread-safe: use it on the event loop.

    No account may use more than half of the budget while other accounts need memory. When the budget is used up, these
    connections are aborted, largest body first: the connections of an account that uses more than half of the budget,
    and connections whose client has read nothing for several seconds.
    """

    def __init__(self, max_bytes: int) -> None:
        self._budget = BodyMemoryBudget(
            max_bytes, refusal=_send_budget_fault, max_bodies=max_bytes // WRITE_CHUNK_BYTES + 1
        )
        self._outgoing_body_by_id: dict[int, _OutgoingBody] = {}

    @contextmanager
    def reserve_body_while_sending(
        self, body: bytes, account: str, abort: Callable[[], None]
    ) -> Iterator[Callable[[], None]]:
        """Reserve memory for a body while the caller sends it; raise ServiceBusy if the budget is used up.

        Yield a function, which the caller has to call whenever the client has read a part of the body. If the memory is
        needed for other bodies, `abort` is called, which closes the connection.
        """
        if len(body) <= WRITE_CHUNK_BYTES:
            yield _ignore_progress
            return
        sent = self._outgoing_body_by_id.get(id(body)) or self._reserve_body(body, account)
        sent.abort_callbacks.append(abort)
        try:
            yield sent.reservation.record_body_progress
        finally:
            sent.abort_callbacks.remove(abort)
            if not sent.abort_callbacks:
                sent.exit_stack.close()

    def _reserve_body(self, body: bytes, account: str) -> _OutgoingBody:
        with ExitStack() as ended:
            reservation = ended.enter_context(self._budget.open_reservation(account))
            reservation.reserve(len(body))
            sent = self._outgoing_body_by_id[id(body)] = _OutgoingBody(reservation, ended.pop_all(), [])
        reservation.set_revoke_callback(sent.abort_all)
        sent.exit_stack.callback(self._outgoing_body_by_id.pop, id(body))
        return sent


def _send_budget_fault() -> ServiceBusy:
    return ServiceBusy(
        "Answers that were not read yet hold all the budget there is for them.",
        hint="Read answers before asking for more, or ask for smaller ones.",
        retry_after=2,
    )


def _ignore_progress() -> None:
    """Do nothing. This is the callback for the progress of small bodies, for which no memory is reserved."""


# Headers that must not be sent with two different values, because they determine the caller, the stream, or how the
# body is parsed. Headers that are lists, such as Accept and Content-Encoding, may be repeated. A repeated
# LF-ENDPOINT-REDACT-PII is refused where this header is parsed.
_UNIQUE_HEADERS = (b"authorization", b"host", b"content-type", b"content-length", b"x-source", b"x-collection")


def check_unique_headers(request: Request) -> None:
    """Raise MalformedHttpRequest if a header in `_UNIQUE_HEADERS` was sent with two different values."""
    sent = request.scope["headers"]
    if len(request.headers) == len(sent):
        return
    for single in _UNIQUE_HEADERS:
        if len({value for name, value in sent if name == single}) > 1:
            raise MalformedHttpRequest(f"The header {single.decode().title()} was sent twice, with different values.")


Responder = Callable[[Request], Awaitable[Response]]
SynchronousResponder = Callable[[Request], Response | None]

REQUEST_ID_REGEX = re.compile(rb"[\x21-\x7e]{1,128}")
# For each route of queries: the HTTP status of a failed query if Logflare's error format is enabled.
_LOGFLARE_ERROR_STATUS_BY_ROUTE = {"query": 200, "ad_hoc": 400}
# For each route with another protocol: the function that renders errors in the format of this protocol.
_ERROR_RENDERERS = {"otlp": ingest.render_otlp_error, "loki_read": loki_api.render_error, **shippers.ERROR_RENDERERS}
# The status in the request log if the client disconnected. No response is sent to such a client.
CLIENT_DISCONNECTED_STATUS = 499


class HttpApplication:
    """The ASGI application. `cached_response` is a synchronous fast path for requests with a cached answer."""

    def __init__(
        self,
        respond: Responder,
        respond_from_cache: SynchronousResponder,
        observer: Observer,
        send_budget: SendMemoryBudget,
        *,
        logflare_errors: bool,
    ) -> None:
        self._respond = respond
        self._respond_from_cache = respond_from_cache
        self._observer = observer
        self._send_memory_budget = send_budget
        self._sends_logflare_errors = logflare_errors
        self._generate_request_id = _request_id_generator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request = self._new_request(scope, receive)
        status = await self._send_response(request, send)
        _log_request(self._observer, request, status, time.perf_counter() - began)

    def cached_response(self, scope: Scope) -> Response | None:
        """Return the response to a repeated request from the caches; otherwise return None.

        After None, the server calls `__call__`, which also refuses invalid requests.
        """
        began = time.perf_counter()
        request = self._new_request(scope, _receive_disconnect)
        try:
            response = self._respond_from_cache(request)
        except Fault:
            return None
        if response is not None:
            _add_common_headers(request, response)
            _log_request(self._observer, request, response.status, time.perf_counter() - began)
        return response

    async def _send_response(self, request: Request, send: Send) -> int:
        """Send the response to a request, and return its status.

        If a streamed answer fails, its body ends incomplete. The server then closes the connection, so that the client
        notices.
        """
        try:
            response = await _respond_or_refuse(
                request, self._respond, self._observer, logflare_errors=self._sends_logflare_errors
            )
            with ExitStack() as reservations:
                if isinstance(response.body, bytes):
                    response, moved = self._reserve_body(request, response, response.body, reservations)
                    _add_common_headers(request, response)
                    await response.send_to(request.scope, send, moved)
                else:
                    _add_common_headers(request, response)
                    response.body = chunks_while_connected(request, response.body)
                    await response.send_to(request.scope, send)
        except ClientDisconnectedError:
            return CLIENT_DISCONNECTED_STATUS
        except Fault as fault:
            _log_failure(self._observer, request, fault)
            request.log_fields["fault"] = fault.code
        return response.status

    def _reserve_body(
        self, request: Request, response: Response, body: bytes, reservations: ExitStack
    ) -> tuple[Response, Callable[[], None]]:
        """Reserve memory for the body of a response until `reservations` is closed.

        Return the response, or an error response if the memory budget is used up. Also return the function that has to
        be called whenever the client has read a part of the body.
        """
        account = account_of_key(request, request.log_fields.get("key", ""))
        try:
            return response, reservations.enter_context(
                self._send_memory_budget.reserve_body_while_sending(body, account, abort_callback_of(request.scope))
            )
        except ServiceBusy as fault:
            return _error_response(request, fault, logflare_errors=self._sends_logflare_errors), _ignore_progress

    def _new_request(self, scope: Scope, receive: Receive) -> Request:
        request = Request(scope, receive)
        client_id = request.headers.get(b"x-request-id")
        request.id = (
            client_id.decode() if client_id and REQUEST_ID_REGEX.fullmatch(client_id) else self._generate_request_id()
        )
        return request


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}


async def _respond_or_refuse(
    request: Request, respond: Responder, observer: Observer, *, logflare_errors: bool
) -> Response:
    marked = fault_of(request.scope)
    if marked is not None:
        return _error_response(request, marked, logflare_errors=False)
    try:
        check_unique_headers(request)
        return await respond(request)
    except Fault as fault:
        if isinstance(fault, MissingApiKey):
            fault.hint = key_header_hint(request) or fault.hint
        audit_refusal(observer, request, fault)
        _log_failure(observer, request, fault)
        return _error_response(request, fault, logflare_errors=logflare_errors)
    except ClientDisconnectedError:
        raise
    except Exception:  # noqa: BLE001 - the last catch-all of HTTP
        observer.record(BugFound(incident=request.id, trace=traceback.format_exc()))
        bug = BugFault("An internal error occurred.", hint=_incident_hint(request))
        return _error_response(request, bug, logflare_errors=logflare_errors)


def _log_failure(observer: Observer, request: Request, fault: Fault) -> None:
    """Log the details of an engine error under the request's id, which is all that the caller gets to see."""
    if isinstance(fault, EngineFailed) and fault.__cause__ is not None:
        observer.record(BugFound(incident=request.id, trace="".join(traceback.format_exception(fault))))
        fault.hint = fault.hint or _incident_hint(request)


def _incident_hint(request: Request) -> str:
    return f"Report the incident {request.id}."


def _error_response(request: Request, fault: Fault, *, logflare_errors: bool) -> Response:
    request.log_fields["fault"] = fault.code
    response = _protocol_error_response(request, fault, logflare_errors=logflare_errors) or problem_response(
        fault, request.id
    )
    if isinstance(fault, MethodNotAllowed):
        response.headers.append((b"allow", ", ".join(request.allowed_methods).encode()))
    return response


def _protocol_error_response(request: Request, fault: Fault, *, logflare_errors: bool) -> Response | None:
    """Return the error in the format of the route's protocol, or None if the route uses problem documents."""
    render = _ERROR_RENDERERS.get(request.route_name)
    if render is not None:
        return render(fault, request)
    status = _LOGFLARE_ERROR_STATUS_BY_ROUTE.get(request.route_name) if logflare_errors else None
    return None if status is None else logflare_error_response(fault, status)


def _add_common_headers(request: Request, response: Response) -> None:
    """Add the headers that every response has. A pre-rendered `block` of headers has the CORS headers already."""
    response.headers.append((b"x-request-id", request.id.encode()))
    if isinstance(response.body, bytes) and response.status not in (204, 304):
        response.headers.append((b"content-length", b"%d" % len(response.body)))
    if not response.extra_rendered_headers:
        response.headers += CORS_HEADERS


def _log_request(observer: Observer, request: Request, status: int, seconds: float) -> None:
    observer.record(
        RequestAnswered(
            request_id=request.id,
            method=request.method,
            route=request.route_name,
            status=status,
            seconds=round(seconds, 6),
            **request.log_fields,
        )
    )


def _request_id_generator() -> Callable[[], str]:
    """Return a function that makes request ids: the process's random prefix, followed by a counter."""
    prefix = os.urandom(8).hex()
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers):08x}"
