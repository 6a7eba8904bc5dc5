"""A fake ClickHouse server: ClickHouse's HTTP interface on loopback, with chDB as the engine."""

import base64
import importlib
import re
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import chdb

USER, PASSWORD = "cordwood", "open sesame"

# Parameters of a request that are not settings of the query.
_REQUEST_PARAMETERS = frozenset(
    {
        *("query", "database", "query_id", "session_id", "compress", "decompress", "default_format", "role"),
        *("client_protocol_version", "wait_end_of_query", "send_progress_in_http_headers", "buffer_size"),
        *(
            "http_headers_progress_interval_ms",
            "enable_http_compression",
            "cancel_http_readonly_queries_on_client_close",
        ),
    }
)
# The end of an INSERT statement, after which its data begins.
_DATA_SEPARATOR = b"FORMAT Native\n"
# The limit of a real server for the length of one value (`http_max_field_value_size`).
_MAX_FIELD_LENGTH = 128 << 10
_CODE_PATTERN = re.compile(r"Code: (\d+)")


@dataclass
class ServerControl:
    """Settings of the fake server, and a record of its requests.

    The server delays each answer by `seconds_late`. `statements` are the received statements with their settings. If
    `loses_answers` is set, the server runs an INSERT and then closes the connection without an answer.
    """

    seconds_late: float = 0.0
    loses_answers: bool = False
    statements: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def delay_answer(self) -> None:
        """Sleep for the configured delay, which a test may change during the sleep."""
        began = time.monotonic()
        while time.monotonic() - began < self.seconds_late:
            time.sleep(0.02)


class ClickHouseHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: ClassVar[str]
    control: ClassVar[ServerControl]

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def _respond(self) -> None:
        body = _decompressed(self._body(), self.headers.get("Content-Encoding"))
        if urlsplit(self.path).path == "/ping":
            return self._send(200, b"Ok.\n")
        if not self._is_authenticated():
            return self._fail(
                "Code: 516. DB::Exception: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)"
            )
        try:
            parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            kind = self.headers.get("Content-Type", "")
            if kind.startswith("multipart/form-data"):
                parameters, body = {**parameters, **_form_fields(kind, body)}, b""
            answer = self._run(parameters, body)
            if self.control.loses_answers and self.control.statements[-1][0].startswith("INSERT"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return None
            return self._send(200, answer)
        except Exception as problem:  # noqa: BLE001 - every error of chDB is sent to the client
            return self._fail(str(problem))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _is_authenticated(self) -> bool:
        if isinstance(self.connection, ssl.SSLSocket) and self.connection.getpeercert():
            return self.headers.get("X-ClickHouse-User") == USER
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {expected}"

    def _run(self, parameters: dict[str, str], body: bytes) -> bytes:
        values = {name.removeprefix("param_"): value for name, value in parameters.items() if name.startswith("param_")}
        settings = {
            name: value
            for name, value in parameters.items()
            if name not in _REQUEST_PARAMETERS and not name.startswith("param_")
        }
        text, _, data = body.partition(_DATA_SEPARATOR)
        sql = parameters.get("query") or text.decode()
        self.control.statements.append((sql, settings))
        self.control.delay_answer()
        connection: Any = chdb.connect(self.folder)  # type: ignore[no-untyped-call]
        try:
            if "database" in parameters:
                connection.query(f"USE {parameters['database']}")
            for name, value in settings.items():
                connection.query(f"SET {name} = {_text_literal(value)}")
            if data:
                return _insert(connection, sql, data)
            shape = "Native" if sql.endswith("FORMAT Native") else "TabSeparated"
            return bytes(connection.query(sql, shape, params=values).bytes())
        finally:
            connection.close()

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Timezone", "UTC")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, text: str) -> None:
        code = _CODE_PATTERN.search(text)
        self._send(500, text.encode(), X_ClickHouse_Exception_Code=code[1] if code else "1001")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's word
        """Log nothing."""


def _form_fields(kind: str, body: bytes) -> Mapping[str, str]:
    """Return the fields of a multipart form, in which the client sends long queries."""
    form = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    fields = {}
    for part in form.walk():
        name, value = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(value, bytes):
            if len(value) > _MAX_FIELD_LENGTH:
                raise ValueError("Code: 1000. DB::Exception: HTML Form Exception: Field value too long")
            fields[name] = value.decode()
    return fields


def _decompressed(body: bytes, encoding: str | None) -> bytes:
    """Decompress the body of a request, because the client compresses inserts."""
    if encoding == "lz4":
        return bytes(importlib.import_module("lz4.frame").decompress(body))
    return body


def _insert(connection: Any, sql: str, body: bytes) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".native") as file:
        Path(file.name).write_bytes(body)
        connection.query(f"{sql} FROM INFILE '{file.name}' FORMAT Native")
    return b""


class _Server(ThreadingHTTPServer):
    """An HTTP server that can close its open connections, which would otherwise outlive the server."""

    daemon_threads = True

    def process_request(self, request: Any, client_address: Any) -> None:
        self.__dict__.setdefault("live", []).append(request)
        super().process_request(request, client_address)

    def close_connections(self) -> None:
        for request in self.__dict__.get("live", []):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


@dataclass
class ClickHouseServer:
    """A server that can stop and restart on the same port.

    With a `certificate`, whose file includes the private key, the server uses TLS. `client_authority` signs the
    certificates of the clients that the server accepts.
    """

    folder: str
    database: str
    port: int = 0
    control: ServerControl = field(default_factory=ServerControl)
    certificate: Path | None = None
    client_authority: Path | None = None
    _server: _Server | None = None

    def start_listening(self) -> None:
        handler = type("ServerHandler", (ClickHouseHandler,), {"folder": self.folder, "control": self.control})
        self._server = _Server(("127.0.0.1", self.port), handler)
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            if self.client_authority is not None:
                context.load_verify_locations(self.client_authority)
                context.verify_mode = ssl.CERT_OPTIONAL
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.close_connections()
            self._server = None

    def address(self, password: str = PASSWORD) -> str:
        return f"clickhouse://{USER}:{password.replace(' ', '%20')}@127.0.0.1:{self.port}/{self.database}"


@contextmanager
def serve_clickhouse(
    chdb_address: str, certificate: Path | None = None, client_authority: Path | None = None
) -> Iterator[ClickHouseServer]:
    """Run a server for the database of a chdb:// address during the block."""
    address = urlsplit(chdb_address)
    server = ClickHouseServer(
        address.path,
        dict(parse_qsl(address.query))["database"],
        certificate=certificate,
        client_authority=client_authority,
    )
    server.start_listening()
    try:
        yield server
    finally:
        server.stop_listening()


def _text_literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
