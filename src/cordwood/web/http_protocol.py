"""The HTTP/1.1 protocol of the server, with limits on connections and on request heads (request line and headers).

It changes the protocol of uvicorn, its base class, in these points:

The base class answers malformed requests, and URLs over 64 KiB, with status 400 in plain text. Here, a head that is too
long becomes an error that the application reports, and malformed requests are answered with a problem document.

Requests for an upgrade of the protocol (`Upgrade: h2c`, which `curl --http2` and the JDK's client send) are answered as
if they had no such header. The base class ignores the header as well, but its parser then takes the body for the start
of the next request.

A connection *waits* while none of its requests is being answered: it has sent nothing or only a part of a request head,
or is idle between two requests. A waiting connection is closed when it waits too long, when all unfinished heads
together take too much memory, or when a new connection needs its place. A connection is also closed if its peer does
not read an answer.
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
    set_abort_callback,
    set_chunk_writer,
    set_fault,
    set_response_writer,
    set_trailers_writer,
)
from cordwood.web.problems import problem_response, status_of

# The maximum time for a head. It counts from the opening of the connection or, for later requests, from the first byte
# of the head.
MAX_HEAD_RECEIVE_SECONDS: Final = 20.0
# The maximum time from the end of a response to the first byte of the next request.
MAX_IDLE_SECONDS: Final = 75.0
# The maximum size of all unfinished heads together, over all connections.
MAX_UNFINISHED_HEADS_BYTES: Final = 16 * 2**20
# If the peer reads nothing of an answer for this time, the connection is closed.
MAX_WRITE_STALL_SECONDS: Final = 30.0
OVERDUE_CHECK_INTERVAL_SECONDS: Final = 1.0
# The number of file descriptors that are not available to connections. They are for the engine, the log, the files of a
# backup, and the listener.
RESERVED_FILE_DESCRIPTORS: Final = 128
# If the limit is reached and no connection can be closed, this many further connections are accepted. So health probes
# and some callers are served even when all other connections are in use.
MAX_CONNECTIONS_BEYOND_LIMIT: Final = 64


class Connection(Protocol):
    """The interface through which a `ConnectionTable` sees a connection."""

    @property
    def peer_address(self) -> str:
        """The IP address of the peer."""

    @property
    def waiting_since(self) -> float | None:
        """The monotonic time since which the connection waits, or None while a request is being answered."""

    @property
    def is_reading_head(self) -> bool:
        """Whether the connection waits for the rest of a request head, or for its first request."""

    @property
    def write_stalled_since(self) -> float | None:
        """The monotonic time since which the peer has read nothing of an answer; None if no answer waits to be read."""

    def abort(self) -> None:
        """Close the connection now."""


class ConnectionTable:
    """All open connections of the process, and the limits on them. Not thread-safe: use it on the event loop."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_connections = limit
        self._clock = clock
        # The keys are the open connections, in the order in which they were opened.
        self._open_connections: dict[Connection, None] = {}
        self._connection_count_by_address: Counter[str] = Counter()
        # The bytes of each connection's unfinished head. Their sum is `unfinished_heads_bytes`.
        self._head_bytes_by_connection: dict[Connection, int] = {}
        self.unfinished_heads_bytes = 0
        self._overdue_check_timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection) -> bool:
        """Add a connection. If the limit is reached, try to close another; return False if there is still no place.

        At the limit, a waiting connection is closed. If none waits, and one address has more than half of all
        connections, its newest connection is closed, unless the new connection comes from the same address. If no
        connection was closed, the new one may still use one of `MAX_CONNECTIONS_BEYOND_LIMIT` reserved places.
        """
        if len(self._open_connections) >= self.max_connections:
            self._evict_waiting_connection(connection.peer_address)
        if len(self._open_connections) >= self.max_connections + MAX_CONNECTIONS_BEYOND_LIMIT:
            return False
        self._open_connections[connection] = None
        self._connection_count_by_address[connection.peer_address] += 1
        if self._overdue_check_timer is None:
            self._schedule_overdue_check()
        return True

    def discard(self, connection: Connection) -> None:
        if connection in self._open_connections:
            del self._open_connections[connection]
            self._connection_count_by_address[connection.peer_address] -= 1
            if not self._connection_count_by_address[connection.peer_address]:
                del self._connection_count_by_address[connection.peer_address]
        self.release_head_bytes(connection)

    def head_bytes_of(self, connection: Connection) -> int:
        """Return how many bytes of the connection's unfinished head have been counted."""
        return self._head_bytes_by_connection.get(connection, 0)

    def add_head_bytes(self, connection: Connection, more_bytes: int) -> None:
        """Count more bytes of a connection's unfinished head.

        If all heads together exceed the limit, connections are closed, largest head first, until half of the limit is
        free. `connection` may be among them.
        """
        self._head_bytes_by_connection[connection] = self.head_bytes_of(connection) + more_bytes
        self.unfinished_heads_bytes += more_bytes
        if self.unfinished_heads_bytes > MAX_UNFINISHED_HEADS_BYTES:
            for one in sorted(
                self._head_bytes_by_connection, key=self._head_bytes_by_connection.__getitem__, reverse=True
            ):
                if self.unfinished_heads_bytes <= MAX_UNFINISHED_HEADS_BYTES // 2:
                    break
                self._abort_connection(one)

    def release_head_bytes(self, connection: Connection) -> None:
        """Stop counting the connection's head, because it is complete or the connection is closed."""
        self.unfinished_heads_bytes -= self._head_bytes_by_connection.pop(connection, 0)

    def close_overdue_connections(self) -> None:
        """Close connections that have waited too long, and connections whose peer does not read its answer."""
        now = self._clock()
        for connection in list(self._open_connections):
            since = connection.write_stalled_since
            if since is not None and now - since > MAX_WRITE_STALL_SECONDS:
                self._abort_connection(connection)
        for connection in list(self._waiting_connections()):
            max_seconds = MAX_HEAD_RECEIVE_SECONDS if connection.is_reading_head else MAX_IDLE_SECONDS
            if connection.waiting_since is not None and now - connection.waiting_since > max_seconds:
                self._abort_connection(connection)

    def _schedule_overdue_check(self) -> None:
        self._overdue_check_timer = asyncio.get_running_loop().call_later(
            OVERDUE_CHECK_INTERVAL_SECONDS, self._close_overdue_and_reschedule
        )

    def _close_overdue_and_reschedule(self) -> None:
        self._overdue_check_timer = None
        self.close_overdue_connections()
        if self._open_connections:
            self._schedule_overdue_check()

    def _evict_waiting_connection(self, new_address: str) -> None:
        """Close a waiting connection of the address that has most of the waiting connections.

        Of these connections, those that wait for the rest of a head or for their first request are closed before those
        that are idle between two requests, and the longest-waiting one first. If no connection waits, close a busy
        one, as described at `_evict_from_busiest_address`.
        """
        waiting = list(self._waiting_connections())
        if not waiting:
            self._evict_from_busiest_address(new_address)
            return
        held = Counter(one.peer_address for one in waiting)
        self._abort_connection(
            max(waiting, key=lambda one: (held[one.peer_address], one.is_reading_head, -(one.waiting_since or 0.0)))
        )

    def _evict_from_busiest_address(self, new_address: str) -> None:
        """If one address has more than half of all connections, close its newest connection.

        Do nothing if the new connection comes from this address.
        """
        ((crowd, count),) = self._connection_count_by_address.most_common(1)
        if crowd != new_address and count > len(self._open_connections) // 2:
            self._abort_connection(next(one for one in reversed(self._open_connections) if one.peer_address == crowd))

    def _waiting_connections(self) -> Iterable[Connection]:
        return (one for one in self._open_connections if one.waiting_since is not None)

    def _abort_connection(self, connection: Connection) -> None:
        self.discard(connection)
        connection.abort()


def limit_connections_by_file_descriptors(requested: int) -> int:
    """Return how many connections the file descriptors of the process allow, but at most the requested number.

    The soft limit of file descriptors is raised as far as necessary and permitted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    beside = MAX_CONNECTIONS_BEYOND_LIMIT + RESERVED_FILE_DESCRIPTORS
    needed = requested + beside
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return requested if soft == resource.RLIM_INFINITY else max(16, min(requested, soft - beside))


MAX_REQUEST_LINE_BYTES = 64 * 1024
MAX_HEADERS_BYTES = 64 * 1024
MAX_HEADER_COUNT = 500
# If a peer has read at least this many bytes of an answer since the last check, it is not stalled.
MIN_READ_PROGRESS_BYTES = 32 * 1024
# After a refused head, up to this many bytes are still read and dropped. If the connection were closed at once, the
# client might not be able to read the response.
MAX_DROPPED_BODY_BYTES = 4 * 1024 * 1024
REFUSED_CLOSE_DELAY_SECONDS = 2.0


@runtime_checkable
class FastPath(Protocol):
    """The interface of an application that can answer some requests synchronously."""

    def cached_response(self, scope: Scope) -> Response | None: ...


class NoFastPath:
    """Replaces the fast path of an application that has none, and answers no request."""

    def cached_response(self, scope: Scope) -> Response | None:
        return None


class HttpProtocol(HttpToolsProtocol):
    """The HTTP protocol of one connection, which is limited by `table` together with all other connections.

    Bind the table with `functools.partial`, and pass the result to the server as its option `http`.
    """

    def __init__(self, table: ConnectionTable, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        application = self.config.loaded_app
        self._fast_path = application if isinstance(application, FastPath) else NoFastPath()
        self._connection_table = table
        self._pending_fast_path_responses: list[bytes] = []
        self._pending_fast_path_bytes = 0
        # If the peer is slow: the number of bytes that it has not read yet, and the time of its last progress.
        # Otherwise None.
        self._unread_bytes_and_progress_time: tuple[int, float] | None = None
        self._chunk_bytes = self._head_bytes = 0
        self._header_count = 0
        self._dropped_body_bytes: int | None = None
        self._is_in_head = self._is_answered = False
        self._head_without_upgrade_header: bytes | None = None
        self._last_activity_time: float = time.monotonic()
        self._has_received_head = False

    @property
    def peer_address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def waiting_since(self) -> float | None:
        is_busy = self.cycle is not None and not self.cycle.response_complete
        return None if is_busy or self.pipeline else self._last_activity_time

    @property
    def is_reading_head(self) -> bool:
        return self._is_in_head or not self._has_received_head

    @property
    def write_stalled_since(self) -> float | None:
        if not self.flow.write_paused:
            return None
        left = self.transport.get_write_buffer_size()
        if (
            self._unread_bytes_and_progress_time is None
            or left <= self._unread_bytes_and_progress_time[0] - MIN_READ_PROGRESS_BYTES
        ):
            self._unread_bytes_and_progress_time = left, time.monotonic()
        return self._unread_bytes_and_progress_time[1]

    def resume_writing(self) -> None:
        self._unread_bytes_and_progress_time = None
        super().resume_writing()

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the stock protocol
        super().connection_made(transport)
        if not self._connection_table.add(self):
            fault = ServiceBusy("All connections are in use.", retry_after=1)
            self._refuse_request(fault)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection_table.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._dropped_body_bytes is not None:
            self._drop_body(data)
            return
        self._chunk_bytes = len(data)
        if self._is_in_head:
            # The head began in an earlier chunk and is still incomplete, so this chunk belongs to the head.
            self._head_bytes += self._chunk_bytes
            self._connection_table.add_head_bytes(self, self._chunk_bytes)
            if self.transport.is_closing():
                return
        self._unset_keepalive_if_required()
        self._parse_or_refuse(memoryview(data))
        self._write_pending_responses()
        if self._is_in_head and (
            self._connection_table.head_bytes_of(self) > MAX_REQUEST_LINE_BYTES + MAX_HEADERS_BYTES
            or self._header_count > MAX_HEADER_COUNT
        ):
            self._refuse_request(self._head_limit_fault())

    def _head_limit_fault(self) -> Fault:
        """Return the error for an incomplete head that is already too long or has too many headers."""
        return (
            _headers_fault() if self._header_count or len(self.url) <= MAX_REQUEST_LINE_BYTES else _request_line_fault()
        )

    def _refuse_request(self, fault: Fault) -> None:
        """Send an error response although the request is incomplete, and close the connection after a delay.

        The delay gives the client time to read the response.
        """
        self._connection_table.release_head_bytes(self)
        if self.waiting_since is None:
            # An earlier request is still being answered. The client would take an error response for the answer to
            # that request, so close the connection without one.
            self.transport.abort()
            return
        self._dropped_body_bytes = 0
        self.url, self.headers = b"", []
        self.transport.write(_render_error_response(problem_response(fault, uuid4().hex), status_of(fault)))
        self.loop.call_later(REFUSED_CLOSE_DELAY_SECONDS, self.transport.close)

    def _drop_body(self, data: bytes) -> None:
        self._dropped_body_bytes = (self._dropped_body_bytes or 0) + len(data)
        if self._dropped_body_bytes > MAX_DROPPED_BODY_BYTES:
            self.transport.abort()

    def _parse_or_refuse(self, data: memoryview) -> None:
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")

    def _parse(self, data: memoryview) -> None:
        """Pass data to the parser, which calls the `on_…` methods.

        The parser stops after a head with an Upgrade header. Then a new parser gets the same head without this header,
        and after it the remaining data.
        """
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                head, self._head_without_upgrade_header = self._head_without_upgrade_header, None
                if head is None:
                    raise httptools.HttpParserError from stop
                self.parser = _new_parser(self)
                self._chunk_bytes = len(head)
                self.parser.feed_data(head)
                data = data[stop.args[0] :]
            else:
                return

    def _write_pending_responses(self) -> None:
        """Write the collected responses to pipelined requests together, in one system call."""
        if self._pending_fast_path_responses and not self.transport.is_closing():
            together, self._pending_fast_path_responses = self._pending_fast_path_responses, []
            self._pending_fast_path_bytes = 0
            self.transport.write(together[0] if len(together) == 1 else b"".join(together))
            self.on_response_complete()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_bytes = self._chunk_bytes
        self._header_count = 0
        self._is_in_head, self._is_answered = True, False
        self._last_activity_time = time.monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count <= MAX_HEADER_COUNT:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._has_received_head = True
        self._connection_table.release_head_bytes(self)
        if self.parser.should_upgrade() and self._header_count <= MAX_HEADER_COUNT:
            self._head_without_upgrade_header = self._render_head_without_upgrade()
            self._is_answered = True
            return
        is_long = self._head_bytes > MAX_HEADERS_BYTES or self._header_count > MAX_HEADER_COUNT
        fault = self._exceeded_limit_fault() if is_long else None
        if fault is None and self._try_fast_path():
            self._is_answered = True
            return
        # On the full path, the application writes the response. So first write the collected responses of the fast
        # path, to keep the order.
        self._write_pending_responses()
        self._create_scope()
        if fault is not None:
            set_fault(self.scope, fault)
            self.url = b"/"
        super().on_headers_complete()
        set_response_writer(self.scope, partial(_write_whole_response, self.cycle))
        set_chunk_writer(self.scope, partial(_write_framed_chunk, self.cycle))
        set_trailers_writer(self.scope, partial(_write_trailers, self.cycle))
        set_abort_callback(self.scope, self.abort)

    def _create_scope(self) -> None:
        """Create the ASGI scope of the request.

        The base class creates it at the beginning of each request. Here it is created later, because the fast path does
        not need it.
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

    def _render_head_without_upgrade(self) -> bytes | None:
        """Return the head without its Upgrade header. Return None for CONNECT, which is an upgrade in any case."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            return None
        kept = [(name, value) for name, value in self.headers if name != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, render_headers(kept))

    def _try_fast_path(self) -> bool:
        """Try to answer the request from the cache, without a task and an ASGI scope; return whether this succeeded."""
        if not self._is_keep_alive_get() or self._is_busy():
            return False
        response = self._fast_path.cached_response(self._minimal_scope())
        if response is None or not isinstance(response.body, bytes) or len(response.body) > WRITE_CHUNK_BYTES:
            return False
        self._pending_fast_path_bytes += len(response.body)
        self._pending_fast_path_responses.append(
            _render_response(response, self.server_state.default_headers, response.body)
        )
        return True

    def _is_keep_alive_get(self) -> bool:
        return self.parser.get_method() == b"GET" and self.parser.should_keep_alive()

    def _is_busy(self) -> bool:
        """Return whether an earlier request is still being answered, or the client reads too slowly."""
        if self._pending_fast_path_bytes > WRITE_CHUNK_BYTES:
            # The responses to pipelined requests can be a thousand times as large as the requests. To limit memory,
            # write the collected responses as soon as they exceed a limit.
            self._write_pending_responses()
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
        if self._header_count > MAX_HEADER_COUNT:
            return _headers_fault()
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADERS_BYTES:
            return _headers_fault()
        return None

    def on_response_complete(self) -> None:
        self._last_activity_time = time.monotonic()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._write_pending_responses()
        fault = MalformedHttpRequest(
            "This is not a valid HTTP/1.1 request.",
            hint="Encode non-ASCII characters of a URL as UTF-8, then percent-encode them.",
        )
        self.transport.write(_render_error_response(problem_response(fault, uuid4().hex), 400))
        self.transport.close()


def _request_line_fault() -> Fault:
    return RequestLineTooLong("The request line is longer than 64 KiB.", hint="Send the query in the body of a POST.")


def _headers_fault() -> Fault:
    return HeadersTooLarge(f"The headers are longer than 64 KiB together, or more than {MAX_HEADER_COUNT}.")


def _new_parser(protocol: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """Create a parser with the same options as the base class does."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _write_whole_response(cycle: RequestResponseCycle, response: Response, body: bytes) -> bool:
    """Write the head and body of a response at once.

    Return False if that is not possible now, for example because the client reads too slowly.
    """
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


def _write_framed_chunk(cycle: RequestResponseCycle, framed: bytes) -> bool:
    """Write a framed part of a chunked body at once.

    Return False if that is not possible now, for example because the client reads too slowly.
    """
    if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
        return False
    cycle.transport.write(framed)
    return True


def _write_trailers(cycle: RequestResponseCycle, trailers: list[Header]) -> bool:
    """End a chunked body with trailers. Return False if the body is not chunked and so cannot have trailers."""
    if cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
        return False
    cycle.transport.write(b"0\r\n%b\r\n" % render_headers(trailers))
    _finish_cycle(cycle)
    return True


def _finish_cycle(cycle: RequestResponseCycle) -> None:
    """Finish a response, with the steps of the base class after the last byte of a response."""
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def _render_response(response: Response, defaults: list[Header], body: bytes) -> bytes:
    head = render_headers(defaults), render_headers(response.headers), response.extra_rendered_headers
    return b"".join((STATUS_LINE[response.status], *head, b"\r\n", body))


def _render_error_response(response: Response, status: int) -> bytes:
    body = response.body if isinstance(response.body, bytes) else b""
    headers = [*response.headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    return STATUS_LINE[status] + render_headers(headers) + b"\r\n" + body
