"""The thin typed layer over raw ASGI: a request as the server hands it over, and what goes back."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from cordwood.errors import Fault

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

# Where the wire tells of a request whose bounds were passed before the application saw it.
_FAULT = "cordwood.fault"


def mark_fault(scope: Any, fault: Fault) -> None:
    scope[_FAULT] = fault


def marked_fault(scope: Scope) -> Fault | None:
    found = scope.get(_FAULT)
    return found if isinstance(found, Fault) else None


class Request:
    """One HTTP request; the body is not read until somebody asks for it.

    `route` and `facts` are what is noted of it when it is over.
    """

    __slots__ = ("facts", "headers", "id", "method", "path", "query_string", "receive", "route", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.id = ""
        self.route = "unknown"
        self.facts: dict[str, Any] = {}

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def media_type(self) -> str:
        """The type of the body without its attributes, in small letters."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")

    def announces_body(self) -> bool:
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    def joined(self, name: bytes) -> str:
        """A list header that may be sent on several lines, as one."""
        return b", ".join([value for key, value in self.scope["headers"] if key == name]).decode("latin-1")


class Response:
    """A status, headers, and a body that is either whole or comes in pieces."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: list[Header], body: bytes | AsyncIterator[bytes] = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def send_to(self, send: Send, *, with_body: bool = True) -> None:
        if isinstance(self.body, bytes):
            await self._send_whole(send, self.body, with_body=with_body)
        else:
            await self._send_pieces(send, self.body, with_body=with_body)

    async def _send_whole(self, send: Send, body: bytes, *, with_body: bool) -> None:
        if self.status != 304:
            self.headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": body if with_body else b""})

    async def _send_pieces(self, send: Send, pieces: AsyncIterator[bytes], *, with_body: bool) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        if with_body:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
