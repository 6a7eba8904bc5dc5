"""The steps around every request: request id, errors as problem documents, common headers, memory, and the request log.

Large answers that are being sent to slow clients have a memory budget, in all and for each account.
"""

import itertools
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from cordwood.errors import BadMethod, BugFault, Busy, EngineFailed, Fault, Malformed, NoKey
from cordwood.ingest.limits import BodyBudget, Reservation
from cordwood.observe.observation import BugFound, Observer, Requested
from cordwood.web import ingest, loki_api, shippers
from cordwood.web.asgi import (
    CHUNK_BYTES,
    CORS_HEADERS,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    abort_of,
    marked_fault,
)
from cordwood.web.credentials import account_of_key, audit_refusal, how_to_present
from cordwood.web.problems import logflare_error, refusal
from cordwood.web.receiving import CallerLeftError, chunks_while_connected


class _SentBody(msgspec.Struct):
    """A body that is being sent; a cached answer may be sent to several clients at once."""

    reservation: Reservation
    ended: ExitStack
    aborts: list[Callable[[], None]]

    def abort(self) -> None:
        for abort in self.aborts:
            abort()


class SendBudget:
    """The memory budget for large bodies that are being sent.

    No account may use more than half of the budget while others need memory. When the budget is used up, connections
    are aborted, those with the largest answers first: connections of an account that uses more than half of the budget,
    and connections that have read nothing for several seconds. Not thread-safe: use it on the event loop.
    """

    def __init__(self, max_bytes: int) -> None:
        self._budget = BodyBudget(max_bytes, refusal=_no_room, max_bodies=max_bytes // CHUNK_BYTES + 1)
        self._bodies: dict[int, _SentBody] = {}

    @contextmanager
    def held(self, body: bytes, account: str, abort: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Reserve memory while a body is sent, and yield the function to call whenever the client has read a part.

        Raise Busy if the budget is used up.
        """
        if len(body) <= CHUNK_BYTES:
            yield _ignore_progress
            return
        sent = self._bodies.get(id(body)) or self._begin_body(body, account)
        sent.aborts.append(abort)
        try:
            yield sent.reservation.note_progress
        finally:
            sent.aborts.remove(abort)
            if not sent.aborts:
                sent.ended.close()

    def _begin_body(self, body: bytes, account: str) -> _SentBody:
        with ExitStack() as ended:
            reservation = ended.enter_context(self._budget.reserve(account))
            reservation.take(len(body))
            sent = self._bodies[id(body)] = _SentBody(reservation, ended.pop_all(), [])
        reservation.on_revoke(sent.abort)
        sent.ended.callback(self._bodies.pop, id(body))
        return sent


def _no_room() -> Busy:
    return Busy(
        "Answers that were not read yet hold all the budget there is for them.",
        hint="Read answers before asking for more, or ask for smaller ones.",
        retry_after=2,
    )


def _ignore_progress() -> None:
    """Do nothing: no memory is reserved for a small body."""


# The headers that determine the caller, the stream, and how the body is parsed: each may have one value only. List
# headers (Accept, Content-Encoding) may be repeated; a repeated LF-ENDPOINT-REDACT-PII is refused where it is parsed.
_UNIQUE_HEADERS = (b"authorization", b"host", b"content-type", b"content-length", b"x-source", b"x-collection")


def check_unique_headers(request: Request) -> None:
    """Raise Malformed for a header that may have one value only and was sent with two."""
    sent = request.scope["headers"]
    if len(request.headers) == len(sent):
        return
    for single in _UNIQUE_HEADERS:
        if len({value for name, value in sent if name == single}) > 1:
            raise Malformed(f"The header {single.decode().title()} was sent twice, with different values.")


Respond = Callable[[Request], Awaitable[Response]]
RespondSynchronously = Callable[[Request], Response | None]

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
# By route, the status of a failed query where Logflare's error format is enabled.
_LOGFLARE_STATUS = {"query": 200, "ad_hoc": 400}
# By route, the function that renders errors in the format of the protocol's clients.
_ERROR_RENDERERS = {"otlp": ingest.render_otlp_error, "loki_read": loki_api.render_error, **shippers.ERROR_RENDERERS}
# The status that is logged for a request whose client disconnected. No response is sent.
CALLER_LEFT_STATUS = 499


class HttpApplication:
    """The ASGI application. Cached answers take a synchronous fast path."""

    def __init__(
        self,
        respond: Respond,
        respond_at_once: RespondSynchronously,
        observer: Observer,
        send_budget: SendBudget,
        *,
        logflare_errors: bool,
    ) -> None:
        self._respond = respond
        self._respond_at_once = respond_at_once
        self._observer = observer
        self._send_budget = send_budget
        self._logflare_errors = logflare_errors
        self._new_id = _request_id_generator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request = self._new_request(scope, receive)
        status = await self._serve(request, send)
        _log_request(self._observer, request, status, time.perf_counter() - began)

    def cached_response(self, scope: Scope) -> Response | None:
        """Answer a repeated request from the cache; return None if the full path has to answer it, or to refuse it."""
        began = time.perf_counter()
        request = self._new_request(scope, _nothing_to_receive)
        try:
            response = self._respond_at_once(request)
        except Fault:
            return None
        if response is not None:
            _complete(request, response)
            _log_request(self._observer, request, response.status, time.perf_counter() - began)
        return response

    async def _serve(self, request: Request, send: Send) -> int:
        """Send the response and return its status.

        If a streamed answer fails, its body is left incomplete and the server closes the connection, so that the client
        detects that the answer is incomplete.
        """
        try:
            response = await _respond_or_refuse(
                request, self._respond, self._observer, logflare_errors=self._logflare_errors
            )
            with ExitStack() as reservations:
                if isinstance(response.body, bytes):
                    response, moved = self._reserve_body(request, response, response.body, reservations)
                    _complete(request, response)
                    await response.send_to(request.scope, send, moved)
                else:
                    _complete(request, response)
                    response.body = chunks_while_connected(request, response.body)
                    await response.send_to(request.scope, send)
        except CallerLeftError:
            return CALLER_LEFT_STATUS
        except Fault as fault:
            _log_failure(self._observer, request, fault)
            request.facts["fault"] = fault.code
        return response.status

    def _reserve_body(
        self, request: Request, response: Response, body: bytes, reservations: ExitStack
    ) -> tuple[Response, Callable[[], None]]:
        """Reserve memory for the body; return the response, or a refusal, and the function to call on progress."""
        account = account_of_key(request, request.facts.get("key", ""))
        try:
            return response, reservations.enter_context(self._send_budget.held(body, account, abort_of(request.scope)))
        except Busy as fault:
            return _error_response(request, fault, logflare_errors=self._logflare_errors), _ignore_progress

    def _new_request(self, scope: Scope, receive: Receive) -> Request:
        request = Request(scope, receive)
        client_id = request.headers.get(b"x-request-id")
        request.id = client_id.decode() if client_id and REQUEST_ID.fullmatch(client_id) else self._new_id()
        return request


async def _nothing_to_receive() -> Message:
    return {"type": "http.disconnect"}


async def _respond_or_refuse(
    request: Request, respond: Respond, observer: Observer, *, logflare_errors: bool
) -> Response:
    marked = marked_fault(request.scope)
    if marked is not None:
        return _error_response(request, marked, logflare_errors=False)
    try:
        check_unique_headers(request)
        return await respond(request)
    except Fault as fault:
        if isinstance(fault, NoKey):
            fault.hint = how_to_present(request) or fault.hint
        audit_refusal(observer, request, fault)
        _log_failure(observer, request, fault)
        return _error_response(request, fault, logflare_errors=logflare_errors)
    except CallerLeftError:
        raise
    except Exception:  # noqa: BLE001 - the last catch-all of HTTP
        observer.note(BugFound(incident=request.id, trace=traceback.format_exc()))
        bug = BugFault("An internal error occurred.", hint=_report_hint(request))
        return _error_response(request, bug, logflare_errors=logflare_errors)


def _log_failure(observer: Observer, request: Request, fault: Fault) -> None:
    """Log the details of an engine error under the request id. The caller gets only this id in the hint."""
    if isinstance(fault, EngineFailed) and fault.__cause__ is not None:
        observer.note(BugFound(incident=request.id, trace="".join(traceback.format_exception(fault))))
        fault.hint = fault.hint or _report_hint(request)


def _report_hint(request: Request) -> str:
    return f"Report the incident {request.id}."


def _error_response(request: Request, fault: Fault, *, logflare_errors: bool) -> Response:
    request.facts["fault"] = fault.code
    response = _protocol_error(request, fault, logflare_errors=logflare_errors) or refusal(fault, request.id)
    if isinstance(fault, BadMethod):
        response.headers.append((b"allow", ", ".join(request.methods).encode()))
    return response


def _protocol_error(request: Request, fault: Fault, *, logflare_errors: bool) -> Response | None:
    """Return the error in the format of the route's clients, or None for routes that use problem documents."""
    render = _ERROR_RENDERERS.get(request.route)
    if render is not None:
        return render(fault, request)
    status = _LOGFLARE_STATUS.get(request.route) if logflare_errors else None
    return None if status is None else logflare_error(fault, status)


def _complete(request: Request, response: Response) -> None:
    """Add the headers that every response has. A pre-rendered block of headers already has the CORS headers."""
    response.headers.append((b"x-request-id", request.id.encode()))
    if isinstance(response.body, bytes) and response.status not in (204, 304):
        response.headers.append((b"content-length", b"%d" % len(response.body)))
    if not response.block:
        response.headers += CORS_HEADERS


def _log_request(observer: Observer, request: Request, status: int, seconds: float) -> None:
    observer.note(
        Requested(
            request_id=request.id,
            method=request.method,
            route=request.route,
            status=status,
            seconds=round(seconds, 6),
            **request.facts,
        )
    )


def _request_id_generator() -> Callable[[], str]:
    """Return a function that makes request ids: a random prefix of the process, and a counter."""
    prefix = os.urandom(8).hex()
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers):08x}"
