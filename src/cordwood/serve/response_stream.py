"""Response streams: a bounded queue of chunks from the engine's thread to the HTTP response."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import closing

from cordwood.engines.engine import CancelToken, Engine
from cordwood.serve.jobs import Finished, Job, Receipt, receipt, start

# An answer that is complete within these limits is sent as a whole, with a complete receipt; a longer one is streamed.
BUFFERED_WITHIN_SECONDS = 0.05
BUFFERED_BELOW_BYTES = 256 * 1024
MAX_QUEUED_CHUNKS = 8


class ReaderLeftError(Exception):
    """The client has stopped reading the response."""


class ResponseStream:
    """A queue of chunks from the engine's thread to the event loop. A full queue blocks the engine's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED_CHUNKS)
        self._pending_put: Future[None] | None = None
        self._has_begun = False
        self._closed = False

    def has_begun(self) -> bool:
        return self._has_begun

    def fill(self, job: Job, engine: Engine, cancel: CancelToken) -> Receipt:
        """Run the job in the engine's thread. Cancellation also ends a wait for a client that does not read."""
        cancel.on_cancel(self._stop_waiting)
        run = start(job, engine, cancel)
        with closing(run.chunks()) as chunks:
            for chunk in chunks:
                self._pending_put = asyncio.run_coroutine_threadsafe(self._put(chunk, cancel), self._loop)
                if cancel.is_cancelled:
                    self._pending_put.cancel()
                try:
                    self._pending_put.result()
                except CancelledError:
                    raise ReaderLeftError from None
        return receipt(job, run.stats())

    def _stop_waiting(self) -> None:
        if self._pending_put is not None:
            self._pending_put.cancel()

    async def mark_end(self, run_task: Awaitable[Receipt]) -> Receipt:
        """Wait for the end of the run, and put the end mark into the queue however the run ends."""
        try:
            return await run_task
        finally:
            if not self._closed:
                await self._chunks.put(None)

    async def next_chunk(self) -> bytes | None:
        return await self._chunks.get()

    async def head(self) -> tuple[list[bytes], bool]:
        """Return the chunks within the limits of time and size, and whether the response is complete."""
        chunks: list[bytes] = []
        first_chunk = await self._chunks.get()
        if first_chunk is None:
            return chunks, True
        chunks.append(first_chunk)
        try:
            async with asyncio.timeout(BUFFERED_WITHIN_SECONDS):
                return chunks, await self._gather(chunks)
        except TimeoutError:
            return chunks, False

    async def _gather(self, chunks: list[bytes]) -> bool:
        gathered_bytes = len(chunks[0])
        while gathered_bytes < BUFFERED_BELOW_BYTES:
            chunk = await self._chunks.get()
            if chunk is None:
                return True
            chunks.append(chunk)
            gathered_bytes += len(chunk)
        return False

    def close(self) -> None:
        """Discard the queue and unblock the engine's thread."""
        self._closed = True
        while not self._chunks.empty():
            self._chunks.get_nowait()

    async def _put(self, chunk: bytes, cancel: CancelToken) -> None:
        """Put a chunk into the queue. Chunks of a cancelled run are dropped, because the run may be restarted."""
        if self._closed or cancel.is_cancelled:
            raise ReaderLeftError
        self._has_begun = True
        await self._chunks.put(chunk)
        if self._closed:
            raise ReaderLeftError


class StreamedAnswer:
    """An answer whose run continues. `receipt` is set after the last chunk was read."""

    def __init__(
        self, head: list[bytes], stream: ResponseStream, run_task: "asyncio.Task[Receipt]", cancel_token: CancelToken
    ) -> None:
        self._head = head
        self._stream = stream
        self._run_task = run_task
        self._cancel_token = cancel_token
        self.receipt: Receipt | None = None

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the run has ended."""
        self._run_task.add_done_callback(lambda _: callback())

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks. Closing the generator early cancels the run."""
        try:
            for head_chunk in self._head:
                yield head_chunk
            while (chunk := await self._stream.next_chunk()) is not None:
                yield chunk
            self.receipt = await self._run_task
        finally:
            if not self._run_task.done():
                _abandon(self._stream, self._run_task, self._cancel_token)


async def begin(
    stream: ResponseStream, run_task: "asyncio.Task[Receipt]", cancel_token: CancelToken
) -> "Finished | StreamedAnswer":
    """Return the complete answer if all of it arrives within a moment, otherwise a streamed one."""
    try:
        chunks, is_complete = await stream.head()
        if is_complete:
            return Finished(b"".join(chunks), await run_task)
    except asyncio.CancelledError:
        _abandon(stream, run_task, cancel_token)
        raise
    return StreamedAnswer(chunks, stream, run_task, cancel_token)


def _abandon(stream: ResponseStream, run_task: "asyncio.Task[Receipt]", cancel_token: CancelToken) -> None:
    stream.close()
    cancel_token.cancel()
    run_task.cancel()
