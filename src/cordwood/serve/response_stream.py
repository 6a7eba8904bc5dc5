"""Response streams: the bounded queue of chunks between the engine's thread and the HTTP response."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from concurrent.futures import CancelledError, Future
from contextlib import closing

from cordwood.engines.cancel_token import CancelToken
from cordwood.engines.engine import Engine
from cordwood.serve.jobs import Finished, Job, Receipt, receipt, start

# An answer that is complete within these limits is sent with its full receipt; a longer one is streamed.
WHOLE_WITHIN_SECONDS = 0.05
WHOLE_BELOW_BYTES = 256 * 1024
PIECES_AHEAD = 8


class ReaderLeftError(Exception):
    """The client no longer reads the response."""


class ResponseStream:
    """A queue of chunks from the engine's thread to the event loop; a full queue blocks the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_AHEAD)
        self._putting: Future[None] | None = None
        self._begun = False
        self._closed = False

    def has_begun(self) -> bool:
        return self._begun

    def fill(self, job: Job, engine: Engine, cancel: CancelToken) -> Receipt:
        """Run the job in the engine's thread. Cancelling it also ends the wait for a client that does not read."""
        cancel.on_cancel(self._stop_waiting)
        run = start(job, engine, cancel)
        with closing(run.chunks()) as pieces:
            for piece in pieces:
                self._putting = asyncio.run_coroutine_threadsafe(self._put(piece, cancel), self._loop)
                if cancel.is_cancelled:
                    self._putting.cancel()
                try:
                    self._putting.result()
                except CancelledError:
                    raise ReaderLeftError from None
        return receipt(job, run.stats())

    def _stop_waiting(self) -> None:
        if self._putting is not None:
            self._putting.cancel()

    async def ended(self, filling: Awaitable[Receipt]) -> Receipt:
        """Wait for the run and, however it ends, put the end-of-stream mark into the queue."""
        try:
            return await filling
        finally:
            if not self._closed:
                await self._pieces.put(None)

    async def next_piece(self) -> bytes | None:
        return await self._pieces.get()

    async def head(self) -> tuple[list[bytes], bool]:
        """Return the first chunks and whether they are all: those that arrive within the time and size limits."""
        pieces: list[bytes] = []
        first = await self._pieces.get()
        if first is None:
            return pieces, True
        pieces.append(first)
        try:
            async with asyncio.timeout(WHOLE_WITHIN_SECONDS):
                return pieces, await self._gather(pieces)
        except TimeoutError:
            return pieces, False

    async def _gather(self, pieces: list[bytes]) -> bool:
        held_bytes = len(pieces[0])
        while held_bytes < WHOLE_BELOW_BYTES:
            piece = await self._pieces.get()
            if piece is None:
                return True
            pieces.append(piece)
            held_bytes += len(piece)
        return False

    def close(self) -> None:
        """Discard the queue and unblock the engine's thread."""
        self._closed = True
        while not self._pieces.empty():
            self._pieces.get_nowait()

    async def _put(self, piece: bytes, cancel: CancelToken) -> None:
        """Put a chunk into the queue. Output of a cancelled run is dropped, because the run may be restarted."""
        if self._closed or cancel.is_cancelled:
            raise ReaderLeftError
        self._begun = True
        await self._pieces.put(piece)
        if self._closed:
            raise ReaderLeftError


class StreamedAnswer:
    """An answer that is still running; `receipt` is set when all chunks have been read."""

    def __init__(
        self, head: list[bytes], stream: ResponseStream, filling: "asyncio.Task[Receipt]", halt: CancelToken
    ) -> None:
        self._head = head
        self._flow = stream
        self._filling = filling
        self._halt = halt
        self.receipt: Receipt | None = None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks. Closing the generator early cancels the run."""
        try:
            for first in self._head:
                yield first
            while (piece := await self._flow.next_piece()) is not None:
                yield piece
            self.receipt = await self._filling
        finally:
            if not self._filling.done():
                _abandon(self._flow, self._filling, self._halt)


async def begin(
    stream: ResponseStream, filling: "asyncio.Task[Receipt]", halt: CancelToken
) -> "Finished | StreamedAnswer":
    """Return a complete answer if all of it arrives within a moment, otherwise one that streams."""
    try:
        pieces, whole = await stream.head()
        if whole:
            return Finished(b"".join(pieces), await filling)
    except asyncio.CancelledError:
        _abandon(stream, filling, halt)
        raise
    return StreamedAnswer(pieces, stream, filling, halt)


def _abandon(stream: ResponseStream, filling: "asyncio.Task[Receipt]", halt: CancelToken) -> None:
    stream.close()
    halt.cancel()
    filling.cancel()
