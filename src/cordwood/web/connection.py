"""Cancel work whose client disconnects."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, TypeVar

from cordwood.web.asgi import Receive, Request
from cordwood.web.body import CallerLeftError

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; if the client disconnects first, cancel it and raise CallerLeftError."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise CallerLeftError
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def pieces_while_connected(request: Request, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks until the client disconnects, then raise CallerLeftError."""
    leaving = asyncio.ensure_future(_left(request.receive))
    try:
        while True:
            coming = asyncio.ensure_future(anext(pieces, None))
            await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})
                raise CallerLeftError
            piece = coming.result()
            if piece is None:
                return
            yield piece
    finally:
        leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
