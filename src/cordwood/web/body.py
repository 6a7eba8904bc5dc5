"""A request's body, read only when somebody wants it and never beyond its bounds."""

import asyncio

from cordwood.errors import TooLarge
from cordwood.web.asgi import Request
from cordwood.web.inflate import Take, inflate, uncounted
from cordwood.web.options import WebOptions


class CallerLeftError(Exception):
    """The caller hung up before the request was whole; there is nobody to answer."""


async def read_body(request: Request, options: WebOptions, take: Take = uncounted) -> bytes:
    """The plain body; TooLarge beyond what may be sent or what it may inflate to.

    `take` is told of its bytes as they come, packed and plain, and may refuse them.
    """
    body = await _as_sent(request, options.body_bytes, take)
    codings = request.header(b"content-encoding")
    if not codings or not body:
        return body
    return await asyncio.to_thread(inflate, body, codings, options.inflated_bytes, take)


async def _as_sent(request: Request, max_bytes: int, take: Take) -> bytes:
    announced = request.headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    pieces: list[bytes] = []
    received = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CallerLeftError
        pieces.append(message.get("body", b""))
        received += len(pieces[-1])
        if received > max_bytes:
            raise _too_large(max_bytes)
        take(len(pieces[-1]))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The body is larger than {max_bytes // 2**20} MiB.", hint="Send less at once, or compress it.")
