"""The thin typed layer over raw ASGI: a request as the server hands it over, and what goes back."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


class Request:
    """One HTTP request; the body is not read until somebody asks for it."""

    __slots__ = ("headers", "id", "method", "path", "query_string", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.id = ""

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def joined(self, name: bytes) -> str:
        """A list header that may be sent on several lines, as one."""
        lines = [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]
        return ", ".join(lines)


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
