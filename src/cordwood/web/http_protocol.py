"""The HTTP/1.1 protocol of the server, with limits on connections and request heads.

The base class answers malformed requests, and URLs over 64 KiB, with status 400 in plain text. Here a head that is too
long is passed to the application as an error, and malformed requests are answered with a problem document.

Protocol upgrades (`Upgrade: h2c`, which `curl --http2` and the JDK's client request) are ignored. The base class
ignores them as well, but its parser then parses the body as the start of the next request.

A connection *waits* while none of its requests is being answered: it has sent nothing or only a part of a request head,
or is idle between two requests. A waiting connection is closed when it waits too long, when all unfinished heads
together take too much memory, or when a new connection needs its file descriptor. A connection whose peer does not
read its answer is closed as well.
"""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable
from uuid import uuid4

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from cordwood.errors import Fault, HeadersTooLarge, MalformedHttpRequest, RequestLineTooLong, ServiceBusy
from cordwood.web.asgi import (
    WRITE_CHUNK_BYTES,
    Header,
    Response,
    Scope,
    render_headers,
    set_abort,
    set_fault,
    set_write_part,
    set_write_trailers,
    set_write_whole,
)
from cordwood.web.problems import problem_response, status_of

# The maximum time from the opening of a connection, or from the first byte of a later head, to the end of the head.
MAX_HEAD_SECONDS: Final = 20.0
# The maximum time from the end of a response to the first byte of the next request.
MAX_IDLE_SECONDS: Final = 75.0
# The maximum bytes of all unfinished heads together.
MAX_UNFINISHED_HEADS_BYTES: Final = 16 * 2**20
# The time after which a connection is closed if the peer reads nothing of its answer.
MAX_WRITE_STALL_SECONDS: Final = 30.0
OVERDUE_CHECK_INTERVAL_SECONDS: Final = 1.0
# File descriptors reserved for the engine, the log, the files of a backup, and the listener.
RESERVED_DESCRIPTORS: Final = 128
# The number of connections that are accepted beyond the limit if no other connection can be closed. They serve health
# probes and callers when all other connections are in use.
RESERVED_CONNECTIONS: Final = 64


class Connection(Protocol):
    """The interface of a connection in a `ConnectionTable`."""

    @property
    def address(self) -> str:
        """The peer's host."""

    @property
    def waiting_since(self) -> float | None:
        """The monotonic time at which the current wait began, or None while a request is being answered."""

    @property
    def is_reading_head(self) -> bool:
        """Whether a part of a head has arrived, or the connection waits for its first request."""

    @property
    def stalled_since(self) -> float | None:
        """The monotonic time since which the peer reads nothing of a pending answer; None without a pending answer."""

    def abort(self) -> None:
        """Close the connection now."""


class ConnectionTable:
    """All open connections of the process. Not thread-safe: use it on the event loop."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        # The keys are the open connections, in order of arrival.
        self._open: dict[Connection, None] = {}
        self._by_address: Counter[str] = Counter()
        # Bytes of the unfinished head by connection; `head_bytes` is their sum.
        self._heads: dict[Connection, int] = {}
        self.head_bytes = 0
        self._sweep_timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> bool:
        """Add a connection; at the limit, close another. Return False if the reserved connections are in use too.

        At the limit, a waiting connection is closed. If no connection waits, but one address has more than half of all
        connections, its newest connection is closed, unless the new connection has the same address.
        """
        if len(self._open) >= self.limit:
            self._evict_waiting_connection(connection.address)
        if len(self._open) >= self.limit + RESERVED_CONNECTIONS:
            return False
        self._open[connection] = None
        self._by_address[connection.address] += 1
        if self._sweep_timer is None:
            self._schedule_overdue_check()
        return True

    def discard(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]
        self.release_head_bytes(connection)

    def head_bytes_of(self, connection: Connection) -> int:
        """Return the counted bytes of the connection's unfinished head."""
        return self._heads.get(connection, 0)

    def add_head_bytes(self, connection: Connection, more_bytes: int) -> None:
        """Count more bytes of an unfinished head.

        If all heads together exceed the limit, close the connections with the largest heads, possibly `connection`.
        """
        self._heads[connection] = self.head_bytes_of(connection) + more_bytes
        self.head_bytes += more_bytes
        if self.head_bytes > MAX_UNFINISHED_HEADS_BYTES:
            for one in sorted(self._heads, key=self._heads.__getitem__, reverse=True):
                if self.head_bytes <= MAX_UNFINISHED_HEADS_BYTES // 2:
                    break
                self._abort_connection(one)

    def release_head_bytes(self, connection: Connection) -> None:
        """Release the bytes of the connection's head, if any."""
        self.head_bytes -= self._heads.pop(connection, 0)

    def close_overdue_connections(self) -> None:
        """Close connections that have waited too long, and connections whose peers do not read their answers."""
        now = self._clock()
        for connection in list(self._open):
            since = connection.stalled_since
            if since is not None and now - since > MAX_WRITE_STALL_SECONDS:
                self._abort_connection(connection)
        for connection in list(self._waiting_connections()):
            max_seconds = MAX_HEAD_SECONDS if connection.is_reading_head else MAX_IDLE_SECONDS
            if connection.waiting_since is not None and now - connection.waiting_since > max_seconds:
                self._abort_connection(connection)

    def _schedule_overdue_check(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(
            OVERDUE_CHECK_INTERVAL_SECONDS, self._close_overdue_and_reschedule
        )

    def _close_overdue_and_reschedule(self) -> None:
        self._sweep_timer = None
        self.close_overdue_connections()
        if self._open:
            self._schedule_overdue_check()

    def _evict_waiting_connection(self, new_address: str) -> None:
        """Close a waiting connection of the address that has the most waiting connections.

        Connections that wait for the rest of a head or for their first request are closed before connections that are
        idle between two requests. Of several such connections, the longest-waiting one is closed. If no connection
        waits, close a busy one.
        """
        waiting = list(self._waiting_connections())
        if not waiting:
            self._evict_from_busiest_address(new_address)
            return
        held = Counter(one.address for one in waiting)
        self._abort_connection(
            max(waiting, key=lambda one: (held[one.address], one.is_reading_head, -(one.waiting_since or 0.0)))
        )

    def _evict_from_busiest_address(self, new_address: str) -> None:
        """Close the newest connection of an address with more than half of all connections, if there is one.

        Do nothing if the new connection has this address.
        """
        ((crowd, count),) = self._by_address.most_common(1)
        if crowd != new_address and count > len(self._open) // 2:
            self._abort_connection(next(one for one in reversed(self._open) if one.address == crowd))

    def _waiting_connections(self) -> Iterable[Connection]:
        return (one for one in self._open if one.waiting_since is not None)

    def _abort_connection(self, connection: Connection) -> None:
        self.discard(connection)
        connection.abort()


def fit_connections_to_descriptors(requested: int) -> int:
    """Return the limit on connections: the requested number, or fewer if there are too few file descriptors.

    The soft limit of file descriptors is raised as far as necessary and permitted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    beside = RESERVED_CONNECTIONS + RESERVED_DESCRIPTORS
    needed = requested + beside
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return requested if soft == resource.RLIM_INFINITY else max(16, min(requested, soft - beside))


MAX_REQUEST_LINE_BYTES = 64 * 1024
MAX_HEADERS_BYTES = 64 * 1024
MAX_HEADERS = 500
# A peer that has read this many bytes of an answer since the last check is not stalled.
MIN_READ_PROGRESS_BYTES = 32 * 1024
# After a refused head, at most this many further bytes are read and dropped, so that the client can read the response.
MAX_DROPPED_BODY_BYTES = 4 * 1024 * 1024
REFUSED_CLOSE_DELAY_SECONDS = 2.0


@runtime_checkable
class FastPath(Protocol):
    """The interface of an application with a synchronous fast path."""

    def cached_response(self, scope: Scope) -> Response | None: ...


class NoFastPath:
    """The fast path for an application without one: it answers no request."""

    def cached_response(self, scope: Scope) -> Response | None:
        return None


class HttpProtocol(HttpToolsProtocol):
    """The HTTP protocol of one connection. `table` enforces the limits on all connections of the process.

    Bind the table with `functools.partial`, then pass the result to the server as its `http` protocol.
    """

    def __init__(self, table: ConnectionTable, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        application = self.config.loaded_app
        self._fast_path = application if isinstance(application, FastPath) else NoFastPath()
        self._table = table
        self._written_together: list[bytes] = []
        self._written_bytes = 0
        # The number of bytes that a slow peer has not read yet, and the time of its last progress. Else None.
        self._unsent: tuple[int, float] | None = None
        self._chunk_bytes = self._head_bytes = 0
        self._header_count = 0
        self._dropped_bytes: int | None = None
        self._is_in_head = self._is_answered = False
        self._head_without_upgrade_bytes: bytes | None = None
        self._waits_since: float = time.monotonic()
        self._has_served = False

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def waiting_since(self) -> float | None:
        is_busy = self.cycle is not None and not self.cycle.response_complete
        return None if is_busy or self.pipeline else self._waits_since

    @property
    def is_reading_head(self) -> bool:
        return self._is_in_head or not self._has_served

    @property
    def stalled_since(self) -> float | None:
        if not self.flow.write_paused:
            return None
        left = self.transport.get_write_buffer_size()
        if self._unsent is None or left <= self._unsent[0] - MIN_READ_PROGRESS_BYTES:
            self._unsent = left, time.monotonic()
        return self._unsent[1]

    def resume_writing(self) -> None:
        self._unsent = None
        super().resume_writing()

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the stock protocol
        super().connection_made(transport)
        if not self._table.add(self):
            fault = ServiceBusy("All connections are in use.", retry_after=1)
            self._refuse(fault)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._dropped_bytes is not None:
            self._drop_body(data)
            return
        self._chunk_bytes = len(data)
        if self._is_in_head:
            # The head began in an earlier chunk and is incomplete, so this chunk belongs to it.
            self._head_bytes += self._chunk_bytes
            self._table.add_head_bytes(self, self._chunk_bytes)
            if self.transport.is_closing():
                return
        self._unset_keepalive_if_required()
        self._parse_or_refuse(memoryview(data))
        self._write_pipelined()
        if self._is_in_head and (
            self._table.head_bytes_of(self) > MAX_REQUEST_LINE_BYTES + MAX_HEADERS_BYTES
            or self._header_count > MAX_HEADERS
        ):
            self._refuse(self._head_limit_fault())

    def _head_limit_fault(self) -> Fault:
        """Return the error for an unfinished head that already exceeds a limit."""
        return (
            _headers_fault() if self._header_count or len(self.url) <= MAX_REQUEST_LINE_BYTES else _request_line_fault()
        )

    def _refuse(self, fault: Fault) -> None:
        """Send an error response before the request is complete, and close the connection after a delay.

        During the delay, the client can read the response.
        """
        self._table.release_head_bytes(self)
        if self.waiting_since is None:
            # An earlier request is still being answered, and the error response would be sent before its answer.
            self.transport.abort()
            return
        self._dropped_bytes = 0
        self.url, self.headers = b"", []
        self.transport.write(_render_error_response(problem_response(fault, uuid4().hex), status_of(fault)))
        self.loop.call_later(REFUSED_CLOSE_DELAY_SECONDS, self.transport.close)

    def _drop_body(self, data: bytes) -> None:
        self._dropped_bytes = (self._dropped_bytes or 0) + len(data)
        if self._dropped_bytes > MAX_DROPPED_BODY_BYTES:
            self.transport.abort()

    def _parse_or_refuse(self, data: memoryview) -> None:
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")

    def _parse(self, data: memoryview) -> None:
        """Pass data to the parser.

        If the parser stops at an Upgrade header, pass the head without this header, and then the rest, to a new parser.
        """
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                head, self._head_without_upgrade_bytes = self._head_without_upgrade_bytes, None
                if head is None:
                    raise httptools.HttpParserError from stop
                self.parser = _new_parser(self)
                self._chunk_bytes = len(head)
                self.parser.feed_data(head)
                data = data[stop.args[0] :]
            else:
                return

    def _write_pipelined(self) -> None:
        """Write the responses to pipelined requests in one system call."""
        if self._written_together and not self.transport.is_closing():
            together, self._written_together = self._written_together, []
            self._written_bytes = 0
            self.transport.write(together[0] if len(together) == 1 else b"".join(together))
            self.on_response_complete()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_bytes = self._chunk_bytes
        self._header_count = 0
        self._is_in_head, self._is_answered = True, False
        self._waits_since = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count <= MAX_HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._has_served = True
        self._table.release_head_bytes(self)
        if self.parser.should_upgrade() and self._header_count <= MAX_HEADERS:
            self._head_without_upgrade_bytes = self._head_without_upgrade()
            self._is_answered = True
            return
        is_long = self._head_bytes > MAX_HEADERS_BYTES or self._header_count > MAX_HEADERS
        fault = self._exceeded_limit_fault() if is_long else None
        if fault is None and self._try_fast_path():
            self._is_answered = True
            return
        # The full path writes its response itself, so the collected responses of the fast path are written first.
        self._write_pipelined()
        self._begin_scope()
        if fault is not None:
            set_fault(self.scope, fault)
            self.url = b"/"
        super().on_headers_complete()
        set_write_whole(self.scope, partial(_write_whole, self.cycle))
        set_write_part(self.scope, partial(_write_part, self.cycle))
        set_write_trailers(self.scope, partial(_write_trailers, self.cycle))
        set_abort(self.scope, self.abort)

    def _begin_scope(self) -> None:
        """Create the ASGI scope, which the base class creates at the beginning of each message.

        It is created later here, because the fast path does not need it.
        """
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

    def _head_without_upgrade(self) -> bytes | None:
        """Return the head without its Upgrade header, or None for CONNECT, which cannot be continued."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            return None
        kept = [(name, value) for name, value in self.headers if name != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, render_headers(kept))

    def _try_fast_path(self) -> bool:
        """Answer the request from the cache, without creating a task or a scope; return whether it was answered."""
        if not self._is_plain_get() or self._is_busy():
            return False
        response = self._fast_path.cached_response(self._minimal_scope())
        if response is None or not isinstance(response.body, bytes) or len(response.body) > WRITE_CHUNK_BYTES:
            return False
        self._written_bytes += len(response.body)
        self._written_together.append(_render_response(response, self.server_state.default_headers, response.body))
        return True

    def _is_plain_get(self) -> bool:
        return self.parser.get_method() == b"GET" and self.parser.should_keep_alive()

    def _is_busy(self) -> bool:
        """Return whether an earlier request is still being answered, or the client reads too slowly."""
        if self._written_bytes > WRITE_CHUNK_BYTES:
            # Pipelined responses may be a thousand times as large as the requests. To limit memory, write the collected
            # responses as soon as they exceed a limit.
            self._write_pipelined()
        return self.flow.write_paused or (self.cycle is not None and not self.cycle.response_complete)

    def _minimal_scope(self) -> Scope:
        path, _, query = self.url.partition(b"?")
        return {
            "method": "GET",
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
            "client": self.client,
        }

    def _exceeded_limit_fault(self) -> Fault | None:
        request_line = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1")
        if request_line > MAX_REQUEST_LINE_BYTES:
            return _request_line_fault()
        if self._header_count > MAX_HEADERS:
            return _headers_fault()
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADERS_BYTES:
            return _headers_fault()
        return None

    def on_response_complete(self) -> None:
        self._waits_since = time.monotonic()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._write_pipelined()
        fault = MalformedHttpRequest(
            "This is not a valid HTTP/1.1 request.",
            hint="Encode non-ASCII characters of a URL as UTF-8, then percent-encode them.",
        )
        self.transport.write(_render_error_response(problem_response(fault, uuid4().hex), 400))
        self.transport.close()


def _request_line_fault() -> Fault:
    return RequestLineTooLong("The request line is longer than 64 KiB.", hint="Send the query in the body of a POST.")


def _headers_fault() -> Fault:
    return HeadersTooLarge(f"The headers are longer than 64 KiB together, or more than {MAX_HEADERS}.")


def _new_parser(protocol: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """Create a parser as the base class does for a new connection."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _write_whole(cycle: RequestResponseCycle, response: Response, body: bytes) -> bool:
    """Write a head and a body in one call; return False if the client reads too slowly."""
    if cycle.flow.write_paused or cycle.response_started or len(body) > WRITE_CHUNK_BYTES:
        return False
    if cycle.disconnected:
        return True
    if not cycle.keep_alive:
        response.headers.append((b"connection", b"close"))
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(_render_response(response, cycle.default_headers, body))
    _finish_cycle(cycle)
    return True


def _write_part(cycle: RequestResponseCycle, framed: bytes) -> bool:
    """Write a part of a chunked body at once; return False if the client reads too slowly."""
    if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
        return False
    cycle.transport.write(framed)
    return True


def _write_trailers(cycle: RequestResponseCycle, trailers: list[Header]) -> bool:
    """End a chunked body with trailers; return False if the body is not chunked and thus cannot have trailers."""
    if cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
        return False
    cycle.transport.write(b"0\r\n%b\r\n" % render_headers(trailers))
    _finish_cycle(cycle)
    return True


def _finish_cycle(cycle: RequestResponseCycle) -> None:
    """Finish a response as the base class does after its last byte."""
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def _render_response(response: Response, defaults: list[Header], body: bytes) -> bytes:
    head = render_headers(defaults), render_headers(response.headers), response.block
    return b"".join((STATUS_LINE[response.status], *head, b"\r\n", body))


def _render_error_response(response: Response, status: int) -> bytes:
    body = response.body if isinstance(response.body, bytes) else b""
    headers = [*response.headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    return STATUS_LINE[status] + render_headers(headers) + b"\r\n" + body
