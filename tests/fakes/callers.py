"""A caller of an ASGI application, without a server between."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cordwood.web.answering import HttpApplication
from cordwood.web.asgi import Message, Scope


@dataclass
class Said:
    """What an application answered."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def scope(method: str, address: str, headers: dict[str, str] | None = None) -> Scope:
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


def call(site: HttpApplication, method: str, address: str, **headers: str) -> Said:
    said = Said()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            said.status = message["status"]
            said.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            said.body += message.get("body", b"")

    asyncio.run(site(scope(method, address, headers), receive, send))
    return said
