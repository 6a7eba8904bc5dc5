"""OTLP over gRPC: a server that passes each call on to the HTTP route of the same signal (logs, traces or metrics).

So the same keys, limits, errors, log entries and metrics apply to gRPC calls as to HTTP requests. This module is
imported only when it is needed, because grpcio is an optional dependency.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import grpc
import msgspec

from cordwood.errors import BacklogFull, BadSetting
from cordwood.ingest.formats.protobuf import (
    BadProtobuf,
    decode_text,
    encode_retry_info,
    encode_rpc_status,
    iterate_fields,
)
from cordwood.ingest.limits import BodyMemoryBudget, MemoryReservation
from cordwood.listeners.address import read_otlp_grpc_addresses
from cordwood.settings.settings import ListenSettings, Settings
from cordwood.web.asgi import Application, Header, Message, Scope
from cordwood.web.ingest import GRPC_CODES_BY_HTTP_STATUS

HTTP_PATHS_BY_GRPC_METHOD: Final = {
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": b"/v1/logs",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": b"/v1/traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": b"/v1/metrics",
}
# The maximum size of a message as it is sent, which is also the default limit of gRPC servers. gRPC keeps a whole
# message in memory before it passes the message on. The size of a message is not known in advance, so this many bytes
# are reserved for each.
MAX_MESSAGE_BYTES: Final = 4 * 2**20
# The pauses between a call's attempts to reserve memory for its message. If the last attempt fails, the call is
# refused.
RESERVATION_RETRY_PAUSES_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0)
# The memory that is assumed for each connection, to compute how many connections are allowed. A connection may hold
# some hundred KiB of unread data.
_ASSUMED_BYTES_PER_CONNECTION: Final = 2**20
_MAX_CONNECTIONS: Final = 1000
_MAX_CONCURRENT_CALLS: Final = 1000
_MAX_CONCURRENT_CALLS_PER_CONNECTION: Final = 100
_HANDSHAKE_TIMEOUT_MS: Final = 10_000
_MAX_CONNECTION_IDLE_MS: Final = 120_000
_MAX_READ_CHUNK_BYTES: Final = 64 * 1024
_MAX_METADATA_BYTES: Final = 16 * 1024
_COMPRESSION_ALGORITHMS_BITSET: Final = 0b101

# The first bytes of gzip data. No protobuf message begins with them: the first byte would stand for wire type 7, which
# does not exist.
_GZIP_MAGIC: Final = b"\x1f\x8b"
# The names of gRPC metadata that are not passed on as HTTP headers. gRPC itself uses these names, and as headers they
# would change how the request is read.
_UNFORWARDED_METADATA_NAMES: Final = frozenset(
    {"content-type", "content-length", "content-encoding", "transfer-encoding"}
)
_STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
# OpenTelemetry's SDK for Python reads the retry delay from this metadata. Other SDKs read it from the details of the
# status.
_RETRY_INFO_KEY: Final = "google.rpc.retryinfo-bin"

_GRPC_STATUS_BY_CODE: Final = {code.value[0]: code for code in grpc.StatusCode}
_CANCELLED, _INVALID_ARGUMENT, _INTERNAL, _UNAVAILABLE = 1, 3, 13, 14
_MAX_STATUS_MESSAGE_LENGTH: Final = 300


class TlsCredentials(msgspec.Struct, frozen=True):
    """The server's certificate chain and key in PEM, and the certificates of the CAs that issue client certificates.

    If `client_authorities` is None, clients need no certificate.
    """

    certificate_chain_pem: bytes
    private_key_pem: bytes
    client_authorities: bytes | None = None


async def start_otlp_grpc_server(settings: Settings, application: Application) -> "OtlpGrpcServer":
    """Start the gRPC server, which listens at all addresses in the setting `listen.otlp_grpc`."""
    addresses = read_otlp_grpc_addresses(settings.listen)
    ceiling = settings.limits.memory_ceiling
    connections = settings.listen.connections or max(
        16, min(_MAX_CONNECTIONS, ceiling // _ASSUMED_BYTES_PER_CONNECTION)
    )
    server = OtlpGrpcServer(application, ceiling // 16, connections)
    tls = _read_tls(settings.listen) if any(address.scheme == "tls" for address in addresses) else None
    for address in addresses:
        host_and_port = str(address).removeprefix(f"{address.scheme}://")
        port = server.listen(host_and_port, tls if address.scheme == "tls" else None)
        server.listener_names.append(f"OTLP over gRPC {msgspec.structs.replace(address, port=port)}")
    await server.start()
    return server


def _read_tls(listen: ListenSettings) -> TlsCredentials:
    if not listen.tls_certificate:
        raise BadSetting("A tls:// address needs a certificate.", hint="Set listen.tls_certificate.")
    try:
        certificate = Path(listen.tls_certificate).read_bytes()
        key = Path(listen.tls_key).read_bytes() if listen.tls_key else certificate
        authorities = Path(listen.tls_client_ca).read_bytes() if listen.tls_client_ca else None
    except OSError as problem:
        raise BadSetting(f"{problem.filename} cannot be read: {problem.strerror}.") from problem
    return TlsCredentials(certificate, key, authorities)


class OtlpGrpcServer:
    """The gRPC server, which passes calls to the ASGI application `application` as HTTP requests.

    All messages that are being read may take `max_bytes` of memory together. `listener_names` are the addresses of the
    server, as they are shown to the operator. Create the server on the event loop.
    """

    def __init__(self, application: Application, max_bytes: int, connections: int) -> None:
        self.listener_names: list[str] = []
        self.max_connections = connections
        self._asgi_application = application
        self._body_memory_budget = BodyMemoryBudget(max(max_bytes, 2 * MAX_MESSAGE_BYTES))
        self._running_call_tasks: set[asyncio.Task[None]] = set()
        self._grpc_server = grpc.aio.server(
            options=[
                # Without this option, another process could listen on the same port and receive a part of the
                # connections.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                # Do not let gRPC decompress messages: the HTTP route decompresses them within the limits of bodies.
                ("grpc.per_message_decompression", 0),
                ("grpc.compression_enabled_algorithms_bitset", _COMPRESSION_ALGORITHMS_BITSET),
                ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
                ("grpc.max_concurrent_streams", _MAX_CONCURRENT_CALLS_PER_CONNECTION),
                ("grpc.max_allowed_incoming_connections", connections),
                ("grpc.max_connection_idle_ms", _MAX_CONNECTION_IDLE_MS),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
                # Without this option, a connection may hold buffers of several megabytes.
                ("grpc.experimental.tcp_max_read_chunk_size", _MAX_READ_CHUNK_BYTES),
                ("grpc.http2.bdp_probe", 0),
            ]
        )
        self._grpc_server.add_generic_rpc_handlers((_ExportMethods(self),))

    def listen(self, address: str, tls: TlsCredentials | None = None) -> int:
        """Listen at host:port and return the port; raise BadSetting if the address cannot be bound."""
        try:
            if tls is None:
                return int(self._grpc_server.add_insecure_port(address))
            return int(self._grpc_server.add_secure_port(address, _grpc_credentials(tls)))
        except (RuntimeError, ValueError) as problem:
            raise BadSetting(
                f"The service cannot listen on {address} for gRPC.",
                hint="The port must be free, and a certificate must be valid and belong to its key.",
            ) from problem

    async def start(self) -> None:
        await self._grpc_server.start()

    async def stop(self, seconds: float) -> None:
        """Refuse new calls, and give running calls `seconds` to finish."""
        await self._grpc_server.stop(seconds)
        if self._running_call_tasks:
            # A running call stores its events even if its client has given up, so wait for it as well.
            await asyncio.wait(self._running_call_tasks, timeout=seconds)

    async def handle_export_call(self, path: bytes, context: Any) -> bytes:
        """Answer a call: return the export response, or end the call with an error status."""
        if len(self._running_call_tasks) >= _MAX_CONCURRENT_CALLS:
            await _abort_call(context, 503, encode_rpc_status(_UNAVAILABLE, "Too many calls are being answered."), 1)
        exchange = _GrpcAsgiExchange(path, context, self._body_memory_budget)
        call = asyncio.ensure_future(self._asgi_application(exchange.scope, exchange.receive, exchange.send))
        self._running_call_tasks.add(call)
        call.add_done_callback(self._running_call_tasks.discard)
        try:
            # Shield the task, so that the storing of events is completed even if the client disconnects.
            await asyncio.shield(call)
        except asyncio.CancelledError:
            exchange.disconnected_event.set()
            raise
        if exchange.http_status != 200:
            await _abort_call(context, exchange.http_status, bytes(exchange.response_body), exchange.retry_seconds)
        return bytes(exchange.response_body)


def _grpc_credentials(tls: TlsCredentials) -> Any:
    return grpc.ssl_server_credentials(
        [(tls.private_key_pem, tls.certificate_chain_pem)],
        root_certificates=tls.client_authorities,
        require_client_auth=tls.client_authorities is not None,
    )


class _ExportMethods(grpc.GenericRpcHandler):  # type: ignore[misc] # grpcio has no types
    """The export methods of the three signals.

    The methods are declared as client-streaming methods, so that a call begins before its message is read. A caller
    without a key is then refused without reading the message. Clients do not notice the difference.
    """

    def __init__(self, server: OtlpGrpcServer) -> None:
        self._otlp_grpc_server = server

    def service(self, handler_call_details: Any) -> Any:
        path = HTTP_PATHS_BY_GRPC_METHOD.get(handler_call_details.method)
        if path is None:
            return None

        async def export(_: Any, context: Any) -> bytes:
            return await self._otlp_grpc_server.handle_export_call(path, context)

        return grpc.stream_unary_rpc_method_handler(export)


class _GrpcAsgiExchange:
    """A gRPC call, presented to an ASGI application as an HTTP request with its response."""

    def __init__(self, path: bytes, context: Any, budget: BodyMemoryBudget) -> None:
        self._grpc_context = context
        self._body_memory_budget = budget
        self._is_message_read = False
        self.disconnected_event = asyncio.Event()
        self._request_headers = list(_asgi_headers(context.invocation_metadata() or ()))
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "raw_path": path,
            "query_string": b"",
            "headers": self._request_headers,
            "client": _peer_address(context.peer()),
        }
        self.http_status = 0
        self.retry_seconds: int | None = None
        self.response_body = bytearray()

    async def receive(self) -> Message:
        """Return the message of the call as the body of the request.

        A second call waits until the client disconnects.
        """
        if self._is_message_read:
            await self.disconnected_event.wait()
        self._is_message_read = True
        message = None if self.disconnected_event.is_set() else await self._read_message()
        if message is None:
            return {"type": "http.disconnect"}
        if message.startswith(_GZIP_MAGIC):
            # The header for compression is added only here, because only the bytes of the message show whether it is
            # compressed. This is early enough: the route reads the header after the body.
            self._request_headers.append((b"content-encoding", b"gzip"))
        return {"type": "http.request", "body": message}

    async def _read_message(self) -> bytes | None:
        """Return the message, or None if the call has none. Memory is reserved before gRPC reads the message."""
        owner = str(
            hash(tuple(value for name, value in self._request_headers if name in {b"x-api-key", b"authorization"}))
        )
        loop = asyncio.get_running_loop()
        with self._body_memory_budget.open_reservation(owner) as reservation:
            await _reserve_message_memory(reservation)
            try:
                async with asyncio.timeout(None) as limit:
                    reservation.set_revoke_callback(lambda: limit.reschedule(loop.time()))
                    # Read the message from the context. The iterator of requests would keep the message in memory until
                    # the call ends.
                    message = await self._grpc_context.read()
                    return None if message is grpc.aio.EOF else message
            except TimeoutError:
                raise reservation.refusal_fault() from None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.http_status = message["status"]
            headers: Mapping[bytes, bytes] = dict(message["headers"])
            retry_after = headers.get(b"retry-after")
            self.retry_seconds = None if retry_after is None else int(retry_after)
        else:
            self.response_body += message.get("body", b"")


async def _reserve_message_memory(reservation: MemoryReservation) -> None:
    """Reserve memory for a message; raise BacklogFull if none is free after several attempts.

    The wait is rarely long, because most messages are read within a millisecond.
    """
    for seconds in RESERVATION_RETRY_PAUSES_SECONDS:
        with suppress(BacklogFull):
            return reservation.reserve(MAX_MESSAGE_BYTES)
        await asyncio.sleep(seconds)
    return reservation.reserve(MAX_MESSAGE_BYTES)


def _asgi_headers(metadata: Any) -> "list[Header]":
    headers = [(b"content-type", b"application/x-protobuf")]
    for name, value in metadata:
        if isinstance(value, str) and name not in _UNFORWARDED_METADATA_NAMES:
            headers.append((name.encode("latin-1"), value.encode("latin-1", "replace")))
    return headers


def _peer_address(peer: str) -> tuple[str, int] | None:
    """Return the host and port of a peer from gRPC's notation: ipv4:127.0.0.1:4000 or ipv6:%5B::1%5D:4000."""
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if family in {"ipv4", "ipv6"} and port.isdecimal() else None


async def _abort_call(context: Any, http_status: int, status_body: bytes, retry_seconds: int | None) -> None:
    """End the call with an error.

    `status_body` is the body of the HTTP route's answer, which is normally a google.rpc.Status.
    """
    code, message = _decode_grpc_status(status_body) if http_status else (_CANCELLED, "The call has no message.")
    if code is None:
        code, message = GRPC_CODES_BY_HTTP_STATUS.get(http_status, _INTERNAL), "The request cannot be answered."
    # Shorten the message, because it is contained twice in the headers of the answer, whose size clients limit.
    message = message[:_MAX_STATUS_MESSAGE_LENGTH]
    violation = message if code == _INVALID_ARGUMENT else ""
    trailing = [(_STATUS_DETAILS_KEY, encode_rpc_status(code, message, violation, retry_seconds))]
    if retry_seconds is not None:
        trailing.append((_RETRY_INFO_KEY, encode_retry_info(retry_seconds)))
    await context.abort(_GRPC_STATUS_BY_CODE[code], message, tuple(trailing))


def _decode_grpc_status(status_body: bytes) -> tuple[int | None, str]:
    """Return the code and message of an encoded google.rpc.Status. The code is None for any other body."""
    try:
        members = dict(iterate_fields(status_body))
    except BadProtobuf:
        return None, ""
    code = members.get(1)
    return (
        (code, decode_text(members.get(2, b"")))
        if isinstance(code, int) and code in _GRPC_STATUS_BY_CODE
        else (None, "")
    )
