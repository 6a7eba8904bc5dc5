"""The server's HTTP protocol, with our bounds on what stands before a body and our words where it is broken.

The stock protocol answers an address over 64 KiB, or a request it cannot read, with a bare text of 400. Here the
application is told of what was too long, and what cannot be read at all gets the body that every error has.
"""

from functools import partial
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from cordwood.errors import AddressTooLong, Fault, HeadersTooLarge, Malformed
from cordwood.web.asgi import Header, Response, Scope, mark_fault, offer_whole, rendered
from cordwood.web.problems import refusal

MAX_REQUEST_LINE_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
# A head that goes on for longer than this is not waited for: nobody is there to read an answer.
HOPELESS_BYTES = 4 * 1024 * 1024


@runtime_checkable
class AtOnce(Protocol):
    """An application that can answer some requests without waiting."""

    def at_once(self, scope: Scope) -> Response | None: ...


class NothingAtOnce:
    """For any other application."""

    def at_once(self, scope: Scope) -> Response | None:
        return None


class Wire(HttpToolsProtocol):
    """Give it to the server as its `http` protocol."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        application = self.config.loaded_app
        self._site = application if isinstance(application, AtOnce) else NothingAtOnce()
        self._written_together: list[bytes] = []
        self._piece_bytes = self._head_bytes = 0
        self._is_in_head = self._is_answered = False

    def data_received(self, data: bytes) -> None:
        self._piece_bytes = len(data)
        if self._is_in_head:
            self._head_bytes += self._piece_bytes
            if self._head_bytes > HOPELESS_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        self._write_together()

    def _write_together(self) -> None:
        """Kept answers to requests that came together leave together."""
        if self._written_together and not self.transport.is_closing():
            together, self._written_together = self._written_together, []
            self.transport.write(together[0] if len(together) == 1 else b"".join(together))
            self.on_response_complete()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_bytes = self._piece_bytes
        self._is_in_head, self._is_answered = True, False

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        fault = self._bound_passed() if self._head_bytes > MAX_HEADER_BYTES else None
        if fault is None and self._answered_at_once():
            self._is_answered = True
            return
        # What follows writes by itself, after what was answered before it.
        self._write_together()
        self._begin_scope()
        if fault is not None:
            mark_fault(self.scope, fault)
            self.url = b"/"
        super().on_headers_complete()
        offer_whole(self.scope, partial(_write_whole, self.cycle))

    def _begin_scope(self) -> None:
        """What the stock protocol does when a message begins; most kept answers never need it."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers

    def on_body(self, body: bytes) -> None:
        if not self._is_answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_answered:
            super().on_message_complete()

    def _answered_at_once(self) -> bool:
        """A kept answer leaves the moment its request is read: no task, no scope, no second look at its headers."""
        if not self._is_plain_get() or self._is_busy():
            return False
        response = self._site.at_once(self._short_scope())
        if response is None or not isinstance(response.body, bytes):
            return False
        self._written_together.append(_whole(response, self.server_state.default_headers, response.body))
        return True

    def _is_plain_get(self) -> bool:
        parser = self.parser
        return parser.get_method() == b"GET" and parser.should_keep_alive() and not parser.should_upgrade()

    def _is_busy(self) -> bool:
        """An earlier request is still being answered, or the reader is behind."""
        return self.flow.write_paused or (self.cycle is not None and not self.cycle.response_complete)

    def _short_scope(self) -> Scope:
        path, _, query = self.url.partition(b"?")
        return {"method": "GET", "raw_path": path, "query_string": query, "headers": self.headers}

    def _bound_passed(self) -> Fault | None:
        request_line = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1")
        if request_line > MAX_REQUEST_LINE_BYTES:
            return AddressTooLong(
                "The request line is longer than 64 KiB.", hint="Send the query in the body of a POST."
            )
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            return HeadersTooLarge("The headers are longer than 64 KiB together.")
        return None

    def send_400_response(self, msg: str) -> None:
        self._write_together()
        fault = Malformed(
            "This is not a request of HTTP/1.1 that can be read.",
            hint="Letters beyond ASCII in an address are encoded as UTF-8, then percent-encoded.",
        )
        response = refusal(fault, uuid4().hex)
        self.transport.write(_as_written(response))
        self.transport.close()


def _write_whole(cycle: RequestResponseCycle, response: Response, body: bytes) -> bool:
    """Head and body in one write, without looking at each header again; False where the reader is behind."""
    if cycle.flow.write_paused or cycle.response_started:
        return False
    if cycle.disconnected:
        return True
    if not cycle.keep_alive:
        response.headers.append((b"connection", b"close"))
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(_whole(response, cycle.default_headers, body))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


def _whole(response: Response, defaults: list[Header], body: bytes) -> bytes:
    head = rendered(defaults), rendered(response.headers), response.block
    return b"".join((STATUS_LINE[response.status], *head, b"\r\n", body))


def _as_written(response: Response) -> bytes:
    body = response.body if isinstance(response.body, bytes) else b""
    headers = [*response.headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    return STATUS_LINE[400] + rendered(headers) + b"\r\n" + body
