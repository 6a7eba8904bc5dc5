"""Download a backup, with a private key: all events, keys and definitions as a tar archive."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator

from cordwood.observe.observation import Observer
from cordwood.web.asgi import Request, Response
from cordwood.web.audit import audit_backup
from cordwood.web.credentials import unrestricted_caller
from cordwood.web.lifecycle import Services
from cordwood.web.responses import NO_STORE


async def back_up(request: Request, services: Services, observer: Observer) -> Response:
    unrestricted_caller(request, services, "This key is restricted, and a backup contains everything.")
    headers = [(b"content-type", b"application/x-tar"), NO_STORE]
    chunks = _ClosableChunks(services.backups.archive())
    first = await asyncio.to_thread(chunks.next)
    audit_backup(observer, request)
    return Response(200, headers, _outgoing(first, chunks))


class _ClosableChunks:
    """An iterator over chunks that may be closed while another thread reads from it."""

    def __init__(self, chunks: Generator[bytes, None, None]) -> None:
        self._chunks = chunks
        self._turn = threading.Lock()

    def next(self) -> bytes | None:
        with self._turn:
            return next(self._chunks, None)

    def close(self) -> None:
        with self._turn:
            self._chunks.close()


async def _outgoing(first: bytes | None, chunks: _ClosableChunks) -> AsyncGenerator[bytes, None]:
    """Yield the chunks, and delete the snapshot's files however the download ends."""
    try:
        chunk = first
        while chunk is not None:
            yield chunk
            chunk = await asyncio.to_thread(chunks.next)
    finally:
        await asyncio.to_thread(chunks.close)
