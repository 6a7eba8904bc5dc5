"""The steps around every request: its id, errors as problem documents, common headers, and the request log."""

import itertools
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from cordwood.errors import BadMethod, BugFault, Busy, EngineFailed, Fault, Malformed, NoKey
from cordwood.observe.observation import BugFound, Observer, Requested
from cordwood.web import otlp, shippers
from cordwood.web.asgi import Message, Receive, Request, Response, Scope, Send, cut_of, marked_fault
from cordwood.web.audit import audit_refusal
from cordwood.web.credentials import account_of_key, how_to_present
from cordwood.web.loki_api import handlers as loki_api
from cordwood.web.problems import masked, refusal
from cordwood.web.receiving import CallerLeftError, pieces_while_connected
from cordwood.web.responses import ON_EVERY_ANSWER
from cordwood.web.send_budget import SendBudget, nothing_moved

# The headers that decide the caller, the stream, and how the body is parsed. List headers (Accept, Content-Encoding)
# may be repeated; a repeated LF-ENDPOINT-REDACT-PII is refused when it is parsed.
_SINGLE = (b"authorization", b"host", b"content-type", b"content-length", b"x-source", b"x-collection")


def check_repeated(request: Request) -> None:
    """Raise Malformed for a unique header that was sent with two values."""
    sent = request.scope["headers"]
    if len(request.headers) == len(sent):
        return
    for single in _SINGLE:
        if len({value for name, value in sent if name == single}) > 1:
            raise Malformed(f"The header {single.decode().title()} was sent twice, with different values.")


Respond = Callable[[Request], Awaitable[Response]]
RespondAtOnce = Callable[[Request], Response | None]

REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
# The status of a failed query by route, where Logflare's error format is enabled.
_MASKED = {"query": 200, "ad_hoc": 400}
# The error format of a protocol's clients, by route.
_FAILED = {"otlp": otlp.failed, "loki_read": loki_api.failed, **shippers.FAILED}
# The logged status of a request whose client disconnected; nothing is sent.
CALLER_LEFT_STATUS = 499


class HttpApplication:
    """The ASGI application, with a synchronous fast path for cached answers."""

    def __init__(
        self,
        respond: Respond,
        respond_at_once: RespondAtOnce,
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
        self._new_id = _ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request = self._received(scope, receive)
        status = await self._served(request, send)
        _note(self._observer, request, status, time.perf_counter() - began)

    def at_once(self, scope: Scope) -> Response | None:
        """Return the cached answer to a repeated request; None (also for errors) if it has to take the full path."""
        began = time.perf_counter()
        request = self._received(scope, _nothing_to_receive)
        try:
            response = self._respond_at_once(request)
        except Fault:
            return None
        if response is not None:
            _complete(request, response)
            _note(self._observer, request, response.status, time.perf_counter() - began)
        return response

    async def _served(self, request: Request, send: Send) -> int:
        """Send the response and return its status.

        A streamed answer that fails is left incomplete, so that the client cannot take it for complete: the server then
        closes the connection.
        """
        try:
            response = await _answered(request, self._respond, self._observer, logflare_errors=self._logflare_errors)
            with ExitStack() as held:
                if isinstance(response.body, bytes):
                    response, moved = self._held(request, response, response.body, held)
                    _complete(request, response)
                    await response.send_to(request.scope, send, moved)
                else:
                    _complete(request, response)
                    response.body = pieces_while_connected(request, response.body)
                    await response.send_to(request.scope, send)
        except CallerLeftError:
            return CALLER_LEFT_STATUS
        except Fault as fault:
            _log_failure(self._observer, request, fault)
            request.facts["fault"] = fault.code
        return response.status

    def _held(
        self, request: Request, response: Response, body: bytes, held: ExitStack
    ) -> tuple[Response, Callable[[], None]]:
        """Reserve memory for the body; return the response, or a refusal, and the callback for its progress."""
        account = account_of_key(request, request.facts.get("key", ""))
        try:
            return response, held.enter_context(self._send_budget.held(body, account, cut_of(request.scope)))
        except Busy as fault:
            return _refused(request, fault, logflare_errors=self._logflare_errors), nothing_moved

    def _received(self, scope: Scope, receive: Receive) -> Request:
        request = Request(scope, receive)
        asked_id = request.headers.get(b"x-request-id")
        request.id = asked_id.decode() if asked_id and REQUEST_ID.fullmatch(asked_id) else self._new_id()
        return request


async def _nothing_to_receive() -> Message:
    return {"type": "http.disconnect"}


async def _answered(request: Request, respond: Respond, observer: Observer, *, logflare_errors: bool) -> Response:
    marked = marked_fault(request.scope)
    if marked is not None:
        return _refused(request, marked, logflare_errors=False)
    try:
        check_repeated(request)
        return await respond(request)
    except Fault as fault:
        if isinstance(fault, NoKey):
            fault.hint = how_to_present(request) or fault.hint
        audit_refusal(observer, request, fault)
        _log_failure(observer, request, fault)
        return _refused(request, fault, logflare_errors=logflare_errors)
    except CallerLeftError:
        raise
    except Exception:  # noqa: BLE001 - the last catch-all of HTTP
        observer.note(BugFound(incident=request.id, trace=traceback.format_exc()))
        bug = BugFault("An internal error occurred.", hint=_to_report(request))
        return _refused(request, bug, logflare_errors=logflare_errors)


def _log_failure(observer: Observer, request: Request, fault: Fault) -> None:
    """Log the engine's error under the request id, because the caller is only told that id."""
    if isinstance(fault, EngineFailed) and fault.__cause__ is not None:
        observer.note(BugFound(incident=request.id, trace="".join(traceback.format_exception(fault))))
        fault.hint = fault.hint or _to_report(request)


def _to_report(request: Request) -> str:
    return f"Report the incident {request.id}."


def _refused(request: Request, fault: Fault, *, logflare_errors: bool) -> Response:
    request.facts["fault"] = fault.code
    response = _in_dialect(request, fault, logflare_errors=logflare_errors) or refusal(fault, request.id)
    if isinstance(fault, BadMethod):
        response.headers.append((b"allow", ", ".join(request.methods).encode()))
    return response


def _in_dialect(request: Request, fault: Fault, *, logflare_errors: bool) -> Response | None:
    """Return the error in the format that the route's clients expect; None for a problem document."""
    in_protocol = _FAILED.get(request.route)
    if in_protocol is not None:
        return in_protocol(fault, request)
    failed = _MASKED.get(request.route) if logflare_errors else None
    return None if failed is None else masked(fault, failed)


def _complete(request: Request, response: Response) -> None:
    """Add the headers of every response. A pre-rendered block already has the others."""
    response.headers.append((b"x-request-id", request.id.encode()))
    if isinstance(response.body, bytes) and response.status not in (204, 304):
        response.headers.append((b"content-length", b"%d" % len(response.body)))
    if not response.block:
        response.headers += ON_EVERY_ANSWER


def _note(observer: Observer, request: Request, status: int, seconds: float) -> None:
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


def _ids() -> Callable[[], str]:
    """Return a generator of request ids: a random prefix for the process, and a counter."""
    prefix = os.urandom(8).hex()
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers):08x}"
