"""The listening socket of HTTP, and the HTTP server."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn

from cordwood.errors import BadSetting
from cordwood.web.asgi import Application
from cordwood.web.http_protocol import ConnectionTable, HttpProtocol, max_connections

_BACKLOG = 2048
_IDLE_SECONDS = 75


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise BadSetting if the address cannot be bound."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bind_socket(*addresses[0])
    except OSError as problem:
        reason = problem.strerror or str(problem)
        hint = "Choose another address with --host or --port."
        raise BadSetting(f"The service cannot listen on {host}, port {port}: {reason}.", hint=hint) from problem


def _bind_socket(family: int, kind: int, protocol: int, _name: str, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Let "::" accept IPv4 connections as well.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.settimeout(0)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket for clients on this machine."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(host, host)  # noqa: S104 - a name, not a bind
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


class Server(uvicorn.Server):
    """A uvicorn server without signal handlers, because the module `service` handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def request_count(self) -> int:
        return len(self.server_state.tasks)


def server(application: Application, drain_seconds: float, connections: int, other_connections: int = 0) -> Server:
    """Create the server of an application. `connections` limits the open ones, beside `other_connections`."""
    table = ConnectionTable(max(16, max_connections(connections + other_connections) - other_connections))
    config = uvicorn.Config(
        application,
        lifespan="off",
        interface="asgi3",
        http=cast(type[asyncio.Protocol], partial(HttpProtocol, table)),
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    return Server(config)
