"""Receivers of notifications on loopback: an HTTP server, an SMTP server, and raw sockets for invalid answers."""

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from cordwood.alerts.notification import Notification, NotifiedState, StateChange
from cordwood.model.definitions import Severity


def change(**fields: Any) -> StateChange:
    default = StateChange(
        fingerprint="f1",
        state=NotifiedState.FIRING,
        labels={"project": "shop"},
        text="12 errors",
        value=12.0,
        started_us=1_700_000_000_000_000,
    )
    return msgspec.structs.replace(default, **fields)


def notification(*changes: StateChange, **fields: Any) -> Notification:
    default = Notification(
        id="0b5e0f6e-1f0a-7c3b-9d8e-3f1b2a4c5d6e",
        alert_name="too-many-errors",
        endpoint_name="errors.by-project",
        severity=Severity.CRITICAL,
        changes=changes or (change(),),
        created_us=1_700_000_060_000_000,
        expires_us=1_700_000_600_000_000,
    )
    return msgspec.structs.replace(default, **fields)


@dataclass
class ReceivedRequest:
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class HttpReceiver:
    port: int
    received: list[ReceivedRequest] = field(default_factory=list)


Answer = tuple[int, Mapping[str, str], bytes]


@contextmanager
def http_receiver(
    answer: Callable[[int], Answer] = lambda _: (200, {}, b"ok"),
    *,
    certificate: Path | None = None,
    version: str = "HTTP/1.1",
) -> Iterator[HttpReceiver]:
    """Start an HTTP server whose answer is `answer(number)`, where `number` counts the previous requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = version
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append(ReceivedRequest(self.path, dict(self.headers), body))
            status, headers, body_text = answer(len(receiver.received) - 1)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body_text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body_text)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver = HttpReceiver(server.server_address[1])
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join(5)


@contextmanager
def raw_receiver(script: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Start a TCP server that runs `script` for each connection. At the end of the block, the script's event is set."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=run, args=[connection], daemon=True))
                threads[-1].start()

        def run(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                script(connection, ended)

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            # Unlike a close, a shutdown wakes the thread that waits in accept.
            server.shutdown(socket.SHUT_RDWR)
            for thread in (acceptor, *threads):
                thread.join(5)


@dataclass
class SmtpReceiver:
    port: int
    commands: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def smtp_receiver(
    *,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
    password: str | None = None,
    replies: Mapping[str, bytes] | None = None,
    refused: Sequence[str] = (),
) -> Iterator[SmtpReceiver]:
    """Start a minimal SMTP server. `replies` replace its usual replies to commands."""
    own_replies = dict(replies or {})

    def script(connection: socket.socket, _: threading.Event) -> None:
        connection.settimeout(5)
        secured = tls.wrap_socket(connection, server_side=True) if tls else connection
        with secured:
            _SmtpSession(secured, receiver, starttls, password, own_replies, refused).run()

    with raw_receiver(script) as port:
        receiver = SmtpReceiver(port)
        yield receiver


class _SmtpSession:
    def __init__(
        self,
        connection: socket.socket,
        receiver: SmtpReceiver,
        starttls: ssl.SSLContext | None,
        password: str | None,
        replies: Mapping[str, bytes],
        refused: Sequence[str],
    ) -> None:
        self._connection = connection
        self._receiver = receiver
        self._starttls = starttls
        self._password = password
        self._replies = replies
        self._refused = refused

    def run(self) -> None:
        self._connection.sendall(self._replies.get("CONNECT", b"220 mail.test ESMTP\r\n"))
        file = self._connection.makefile("rb")
        with contextlib.ExitStack() as opened:
            opened.enter_context(file)
            while line := file.readline().decode().strip():
                self._receiver.commands.append(line)
                word = line.upper().split(":")[0].split()[0]
                if word == "STARTTLS" and self._starttls:
                    self._connection.sendall(b"220 go\r\n")
                    self._connection = self._starttls.wrap_socket(self._connection, server_side=True)
                    opened.enter_context(self._connection)
                    self._starttls = None
                    file = opened.enter_context(self._connection.makefile("rb"))
                    continue
                self._connection.sendall(self._replies.get(word) or self._reply(word, line))
                if word == "DATA" and word not in self._replies:
                    self._receive(file)
                if word == "QUIT":
                    return

    def _reply(self, word: str, line: str) -> bytes:
        if word == "EHLO":
            offers = [
                "mail.test",
                *(["STARTTLS"] if self._starttls else []),
                *(["AUTH PLAIN"] if self._password else []),
            ]
            lines = [f"250-{offer}" for offer in offers[:-1]] + [f"250 {offers[-1]}"]
            return ("\r\n".join(lines) + "\r\n").encode()
        if word == "AUTH":
            _, user, password = base64.b64decode(line.split()[2]).decode().split("\0")
            self._receiver.logins.append((user, password))
            return b"235 ok\r\n" if password == self._password else b"535 wrong " + line.split()[2].encode() + b"\r\n"
        if word == "RCPT" and any(address in line for address in self._refused):
            return b"550 no such user\r\n"
        return {"DATA": b"354 go on\r\n", "QUIT": b"221 bye\r\n"}.get(word, b"250 ok\r\n")

    def _receive(self, file: Iterable[bytes]) -> None:
        lines: list[bytes] = []
        for line in file:
            if line == b".\r\n":
                break
            lines.append(line[1:] if line.startswith(b".") else line)
        self._receiver.mails.append(b"".join(lines))
        self._connection.sendall(b"250 taken\r\n")
