"""The feed of one followed query: pages of its rows in order of receipt, encoded once, in a ring that all followers read."""

import asyncio
import re
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

import msgspec

from cordwood.errors import BadParameter, Busy, Cancelled, EngineUnreachable, Fault, OutOfMemory, TooManyBytes
from cordwood.model.timestamps import format_time
from cordwood.serve.jobs import Finished
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.singleflight import SingleFlight
from cordwood.sql.compile import FOLLOWED_PAGE_ROWS
from cordwood.sql.follow import AFTER_KEY, AFTER_TIME, FIRST_RECEIPT, LAST_RECEIPT

_POSITION_TEXT: Final = re.compile(r"(\d{1,18})-(\d{1,9})", re.ASCII)
# The end of the year 9999.
_LAST_US: Final = 253_402_300_799_999_999
_LENGTH: Final = struct.Struct("<I")

_encode = msgspec.msgpack.Encoder().encode
# The earliest event time that can be stored, in the year 1.
_FIRST_TIME_US: Final = -62_135_596_800_000_000
# A run that fails with a temporary error is repeated after these pauses.
_TEMPORARY_FAULTS: Final = (EngineUnreachable, Busy, Cancelled, OutOfMemory)
_RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, *[1.0] * 30)
# The factor by which the number of rows is reduced if those of a page are too large.
_ROWS_REDUCTION: Final = 8
RunPage = Callable[[QueryRequest], Awaitable[Finished]]


class Position(NamedTuple):
    """A place between two rows: after all rows with an earlier receive time, and after `rows` rows of `receipt_us`."""

    receipt_us: int
    rows: int

    def __str__(self) -> str:
        return f"{self.receipt_us}-{self.rows}"


def read_position(text: str) -> Position:
    """Parse the position in an event id; raise BadParameter for any other text."""
    match = _POSITION_TEXT.fullmatch(text.strip())
    if match is None or int(match[1]) > _LAST_US:
        raise BadParameter(
            f"The Last-Event-ID is {text[:60]!r}, which is not an id of this service.",
            hint="Send the id of the last event that arrived, or none.",
        )
    return Position(int(match[1]), int(match[2]))


class FollowedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a followed query as JSON, and its place: receive time, event time, and digest of the event's id."""

    receipt_us: int
    time_us: int
    key: str
    data: bytes

    @property
    def place(self) -> tuple[int, int, str]:
        return self.receipt_us, self.time_us, self.key


_decode = msgspec.msgpack.Decoder(list[FollowedRow]).decode


def pack_rows(rows: Sequence[FollowedRow]) -> bytes:
    data = _encode(rows)
    return _LENGTH.pack(len(data)) + data


def unpack_rows(body: bytes) -> list[FollowedRow]:
    """Return the rows of a page. Rows of the same event are in an order that depends only on their values."""
    rows = [row for part in _split_parts(body) for row in _decode(part)]
    for place, row in enumerate(rows[1:], start=1):
        if row.place == rows[place - 1].place:
            return sorted(rows, key=lambda row: (row.place, _canonical(row.data)))
    return rows


def _split_parts(body: bytes) -> Iterator[memoryview]:
    view, start = memoryview(body), 0
    while start < len(view):
        end = start + _LENGTH.size + _LENGTH.unpack_from(view, start)[0]
        yield view[start + _LENGTH.size : end]
        start = end


def _canonical(data: bytes) -> bytes:
    """Return the JSON with sorted keys, because the engine does not preserve their order."""
    return msgspec.json.encode(msgspec.json.decode(data), order="deterministic")


class Cursor(NamedTuple):
    """The start of a page: the first receive time, and the last event of that time before the page."""

    first_us: int
    time_us: int = _FIRST_TIME_US
    key: str = ""


class Page(NamedTuple):
    """Rows in order, and the start of the next page; `is_last` is true if the range has no further rows."""

    rows: Sequence[FollowedRow]
    following: Cursor
    is_last: bool


class Pages:
    """The runs of one followed query. Followers that need the same page share a run."""

    def __init__(self, request: QueryRequest, run: RunPage) -> None:
        self._request = request
        self._run = run
        self._runs: SingleFlight[Page] = SingleFlight()

    async def page(self, cursor: Cursor, last_us: int) -> Page:
        """Return the rows from the cursor to a receive time, inclusive. Waits while the engine is being replaced."""
        return await self._runs.join(
            (cursor, last_us), self._request.account, lambda *_: self._page_with_retries(cursor, last_us)
        )

    async def _page_with_retries(self, cursor: Cursor, last_us: int) -> Page:
        for pause in _RETRY_SECONDS:
            try:
                return await self._page(cursor, last_us)
            except _TEMPORARY_FAULTS:
                await asyncio.sleep(pause)
        return await self._page(cursor, last_us)

    async def _page(self, cursor: Cursor, last_us: int) -> Page:
        rows = FOLLOWED_PAGE_ROWS
        while True:
            try:
                finished = await self._run(self._page_request(cursor, last_us, rows))
            except TooManyBytes:
                if rows == 1:
                    raise
                rows = max(1, rows // _ROWS_REDUCTION)
            else:
                return _page_of(finished, last_us)

    def _page_request(self, cursor: Cursor, last_us: int, rows: int) -> QueryRequest:
        range_values = {
            FIRST_RECEIPT: format_time(cursor.first_us),
            LAST_RECEIPT: format_time(last_us),
            AFTER_TIME: format_time(cursor.time_us),
            AFTER_KEY: cursor.key,
        }
        parameters = {**self._request.parameters, **range_values}
        return msgspec.structs.replace(self._request, parameters=parameters, page_rows=rows)


def _page_of(finished: Finished, last_us: int) -> Page:
    rows = unpack_rows(finished.body)
    if finished.receipt.truncated is None:
        return Page(rows, Cursor(last_us + 1), is_last=True)
    # The rows of the last event may be incomplete, so they are left to the next page, unless the page has no others.
    last = rows[-1]
    complete = [row for row in rows if row.place != last.place] or rows
    return Page(complete, Cursor(*complete[-1].place), is_last=False)


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
