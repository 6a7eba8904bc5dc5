"""A client that calls an ASGI application directly, without an HTTP server."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cordwood.web.asgi import Message, Scope
from cordwood.web.http_application import HttpApplication


@dataclass
class Response:
    """The response of an application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def http_scope(method: str, address: str, headers: dict[str, str] | None = None) -> Scope:
    path, _, query = address.partition("?")
    lines = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": lines,
    }


def call(application: HttpApplication, method: str, address: str, **headers: str) -> Response:
    response = Response()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            response.body += message.get("body", b"")

    asyncio.run(application(http_scope(method, address, headers), receive, send))
    return response
