"""The feed of one followed query: its rows, encoded once as they arrive, in a bounded ring that all followers read."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Protocol

import msgspec

from cordwood.errors import Fault
from cordwood.serve.tail.pages import Cursor, FollowedRow, Pages, Position

# The pause between two runs, in which events accumulate. Half of it delays rows under load: with ten feeds at 5,000
# events a second, the runs take the CPU time that sending the rows needs.
PAUSE_SECONDS: Final = 0.1
# The most bytes of frames that are joined into one write.
BLOCK_BYTES: Final = 32 * 1024
# The bytes that a frame takes in memory besides its text.
_FRAME_OVERHEAD_BYTES: Final = 160


class Block(msgspec.Struct, frozen=True):
    """Consecutive frames: their text, their ids and the end of each. `first` is the number of the first frame."""

    first: int
    text: bytes
    ids: Sequence[Position]
    ends: Sequence[int]

    @property
    def size(self) -> int:
        """The approximate bytes in memory."""
        return len(self.text) + _FRAME_OVERHEAD_BYTES * len(self.ids)

    @property
    def end(self) -> int:
        """The number that follows the last frame."""
        return self.first + len(self.ids)

    def text_from(self, number: int) -> bytes:
        """Return the text of the frames from a number on."""
        return self.text if number <= self.first else self.text[self.ends[number - self.first - 1] :]


class Frames:
    """Builds frames from rows, which are numbered within their receive time."""

    def __init__(self, position: Position) -> None:
        self.position = position

    def blocks(self, rows: Sequence[FollowedRow], first: int) -> list[Block]:
        """Return the frames of rows in blocks; `first` is the number of the first frame."""
        blocks: list[Block] = []
        frames: list[bytes] = []
        ids: list[Position] = []
        size = 0
        for row in rows:
            ids.append(self._advance(row.receipt_us))
            frames.append(b"id: %d-%d\ndata: %b\n\n" % (*ids[-1], row.data))
            size += len(frames[-1])
            if size >= BLOCK_BYTES:
                blocks.append(_block(first, frames, ids))
                first, frames, ids, size = first + len(ids), [], [], 0
        return [*blocks, _block(first, frames, ids)] if frames else blocks

    def _advance(self, receipt_us: int) -> Position:
        rows = self.position.rows + 1 if receipt_us == self.position.receipt_us else 1
        self.position = Position(receipt_us, rows)
        return self.position


def _block(first: int, frames: Sequence[bytes], ids: Sequence[Position]) -> Block:
    return Block(first, b"".join(frames), tuple(ids), tuple(accumulate(map(len, frames))))


class FeedReader(Protocol):
    """The interface of a follower that has read the whole ring, and is sent new frames at once."""

    def push(self, block: Block) -> bool:
        """Send a new block; return False if the client does not read fast enough, so that the follower reads the ring."""

    def wake(self) -> None:
        """Tell the follower that the feed has ended."""


class Feed:
    """The rows of one query that are received after `newest_us`, the newest receive time when the feed begins.

    Use it on the event loop only. `on_grown` is called when the ring has grown; `log_bug` logs an unexpected error, and
    returns the error for the followers.
    """

    def __init__(
        self,
        pages: Pages,
        streams: frozenset[str],
        newest_us: int,
        on_grown: Callable[[], None],
        log_bug: Callable[[Exception], Fault],
    ) -> None:
        self.pages = pages
        self.streams = streams
        self.followers = 0
        # The followers that wait for the next block. Others are behind and read the ring.
        self.readers: set[FeedReader] = set()
        self.notices: tuple[str, ...] = ()
        # The error with which the feed has ended.
        self.fault: Fault | None = None
        self.ring_bytes = 0
        # The ring has all rows after this position, up to `evaluated_us`.
        self.start = Position(newest_us + 1, 0)
        self.evaluated_us = newest_us
        self.next_number = 0
        self._newest_us = newest_us
        self._on_grown = on_grown
        self._log_bug = log_bug
        self._ring: deque[Block] = deque()
        self._frames = Frames(self.start)
        self._arrived = asyncio.Event()
        self._is_idle = True
        self._task: asyncio.Task[None] | None = None

    @property
    def end(self) -> Position:
        """The position after everything that was evaluated."""
        return max(Position(self.evaluated_us + 1, 0), self._frames.position)

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def advance(self, streams: frozenset[str], newest_us: int) -> None:
        """Evaluate the query up to a receive time, unless the events are of streams that it does not read."""
        if newest_us <= self.evaluated_us:
            return
        self._newest_us = newest_us
        if not streams.isdisjoint(self.streams):
            self._is_idle = False
            self._arrived.set()
        elif self._is_idle:
            self.evaluated_us = newest_us

    def finish(self, fault: Fault) -> None:
        """End the feed for all followers."""
        self.fault = fault
        for reader in list(self.readers):
            reader.wake()

    # The ring

    def number_after(self, position: Position) -> int:
        """Return the number of the first frame after a position, which must not be before the start of the ring."""
        for block in self._ring:
            if block.ids[-1] > position:
                return block.first + bisect_right(block.ids, position)
        return self.next_number

    @property
    def first_number(self) -> int:
        """The number of the first frame in the ring."""
        return self._ring[0].first if self._ring else self.next_number

    def block_at(self, number: int) -> Block | None:
        """Return the block with a frame number, or None if there is no such frame yet."""
        if number >= self.next_number:
            return None
        newest = self._ring[-1]
        # Nearly all followers read the newest block, so it is looked up first.
        if number >= newest.first:
            return newest
        return self._ring[bisect_right(self._ring, number, key=lambda block: block.first) - 1]

    def drop_oldest(self) -> None:
        block = self._ring.popleft()
        self.ring_bytes -= block.size
        self.start = block.ids[-1]

    def _add(self, rows: Sequence[FollowedRow]) -> None:
        for block in self._frames.blocks(rows, self.next_number):
            self._ring.append(block)
            self.ring_bytes += block.size
            self.next_number = block.end
            self.readers = {reader for reader in self.readers if reader.push(block)}
        self._on_grown()

    # The evaluation

    async def _run(self) -> None:
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                await self._evaluate(self._newest_us)
                self._is_idle = not self._arrived.is_set()
                await asyncio.sleep(PAUSE_SECONDS)
        except Fault as fault:
            self.finish(fault)
        except Exception as problem:  # noqa: BLE001 - the followers must be told
            self.finish(self._log_bug(problem))

    async def _evaluate(self, newest_us: int) -> None:
        cursor = Cursor(self.evaluated_us + 1)
        while True:
            page = await self.pages.page(cursor, newest_us)
            if page.rows:
                self._add(page.rows)
            cursor = page.following
            if page.is_last:
                self.evaluated_us = newest_us
                return
