"""Followed queries: one feed of rows for all equal requests, the followers of a feed, and limits on followers.

A feed runs its query on new events as they arrive, and encodes each row once. It keeps the newest rows, in order of
receipt, in a ring buffer that all its followers read. A follower sends Server-Sent Events: first the stored rows after
its position, and then the rows of the feed.
"""

import asyncio
import re
import struct
import time
import traceback
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import msgspec

from cordwood.errors import (
    AnswerTooLarge,
    BadParameter,
    BugFault,
    EngineUnreachable,
    Fault,
    FeatureUnavailable,
    OutOfMemory,
    QueryCancelled,
    QueryOutOfTime,
    ServiceBusy,
    ServiceDraining,
    TooManyFollowedQueries,
)
from cordwood.model.timestamps import format_timestamp
from cordwood.observe.observation import BugFound, RecordObservation, ignore_observation
from cordwood.serve.answer import QueryService
from cordwood.serve.jobs import CompleteAnswer, statement_notices
from cordwood.serve.query_executor import SingleFlight
from cordwood.serve.query_request import QueryRequest
from cordwood.sql.compile import MAX_FOLLOWED_PAGE_ROWS
from cordwood.sql.follow import (
    AFTER_EVENT_KEY_PARAMETER,
    AFTER_EVENT_TIME_PARAMETER,
    FIRST_RECEIPT_TIME_PARAMETER,
    LAST_RECEIPT_TIME_PARAMETER,
)

_FEED_POSITION_REGEX: Final = re.compile(r"(\d{1,18})-(\d{1,9})", re.ASCII)
# The latest time that a position may have: the end of the year 9999.
_MAX_RECEIPT_US: Final = 253_402_300_799_999_999
_LENGTH_PREFIX_FORMAT: Final = struct.Struct("<I")

_encode_feed_rows = msgspec.msgpack.Encoder().encode
# The earliest event time that can be stored, in the year 1.
_MIN_EVENT_TIME_US: Final = -62_135_596_800_000_000
# If a run fails with one of these temporary errors, it is tried again after each pause in _PAGE_RETRY_PAUSES_SECONDS.
_TEMPORARY_FAULTS: Final = (EngineUnreachable, ServiceBusy, QueryCancelled, OutOfMemory)
_PAGE_RETRY_PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, *[1.0] * 30)
# If a page has too many bytes, its maximum number of rows is divided by this number.
_PAGE_ROWS_REDUCTION_FACTOR: Final = 8
RunPage = Callable[[QueryRequest], Awaitable[CompleteAnswer]]


class FeedPosition(NamedTuple):
    """A position between two rows of a feed.

    The rows before the position are all rows received before `receipt_us`, and the first `row_count` rows received at
    `receipt_us`.
    """

    receipt_us: int
    row_count: int

    def __str__(self) -> str:
        return f"{self.receipt_us}-{self.row_count}"


def parse_feed_position(text: str) -> FeedPosition:
    """Parse the id of a Server-Sent Event, which is a position in a feed; raise BadParameter if it is invalid."""
    match = _FEED_POSITION_REGEX.fullmatch(text.strip())
    if match is None or int(match[1]) > _MAX_RECEIPT_US:
        raise BadParameter(
            f"The Last-Event-ID is {text[:60]!r}, which is not an id of this service.",
            hint="Send the id of the last event that arrived, or none.",
        )
    return FeedPosition(int(match[1]), int(match[2]))


class FeedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a followed query as JSON, and its sort key: receive time, event time, and digest of the event's id."""

    receipt_us: int
    time_us: int
    event_key: str
    row_json: bytes

    @property
    def sort_key(self) -> tuple[int, int, str]:
        return self.receipt_us, self.time_us, self.event_key


_decode_feed_rows = msgspec.msgpack.Decoder(list[FeedRow]).decode


def pack_rows(rows: Sequence[FeedRow]) -> bytes:
    data = _encode_feed_rows(rows)
    return _LENGTH_PREFIX_FORMAT.pack(len(data)) + data


def unpack_rows(body: bytes) -> list[FeedRow]:
    """Return the rows of a page in order.

    Rows of the same event have equal sort keys. They are ordered by their values, so that their order is always the
    same.
    """
    rows = [row for part in _split_length_prefixed_parts(body) for row in _decode_feed_rows(part)]
    for place, row in enumerate(rows[1:], start=1):
        if row.sort_key == rows[place - 1].sort_key:
            return sorted(rows, key=lambda row: (row.sort_key, _canonical_json(row.row_json)))
    return rows


def _split_length_prefixed_parts(body: bytes) -> Iterator[memoryview]:
    view, start = memoryview(body), 0
    while start < len(view):
        end = start + _LENGTH_PREFIX_FORMAT.size + _LENGTH_PREFIX_FORMAT.unpack_from(view, start)[0]
        yield view[start + _LENGTH_PREFIX_FORMAT.size : end]
        start = end


def _canonical_json(data: bytes) -> bytes:
    """Return the JSON with sorted keys, because the engine does not preserve the order of keys."""
    return msgspec.json.encode(msgspec.json.decode(data), order="deterministic")


class FeedCursor(NamedTuple):
    """The start of a page: a receive time, and the last event of the previous page that has this receive time.

    The event is identified by its time (`after_event_time_us`) and the digest of its id (`after_event_key`). Their
    default values come before all events.
    """

    first_receipt_us: int
    after_event_time_us: int = _MIN_EVENT_TIME_US
    after_event_key: str = ""


class FeedPage(NamedTuple):
    """The rows of one page, in order, and the start of the next page.

    `is_last` is true if the requested range of receive times has no rows after this page.
    """

    rows: Sequence[FeedRow]
    next_cursor: FeedCursor
    is_last: bool


class FeedPageReader:
    """Reads the pages of one followed query. Followers that need the same page at the same time share one run."""

    def __init__(self, request: QueryRequest, run: RunPage) -> None:
        self._request = request
        self._run_page = run
        self._shared_page_runs: SingleFlight[FeedPage] = SingleFlight()

    async def fetch_page(self, cursor: FeedCursor, last_us: int) -> FeedPage:
        """Return a page of the rows from `cursor` to the receive time `last_us`, inclusive.

        If a run fails with a temporary error, such as a restart of the engine, the run is tried again.
        """
        return await self._shared_page_runs.join_or_start_run(
            (cursor, last_us), self._request.account, lambda *_: self._fetch_page_with_retries(cursor, last_us)
        )

    async def _fetch_page_with_retries(self, cursor: FeedCursor, last_us: int) -> FeedPage:
        for pause in _PAGE_RETRY_PAUSES_SECONDS:
            try:
                return await self._fetch_page_once(cursor, last_us)
            except _TEMPORARY_FAULTS:
                await asyncio.sleep(pause)
        return await self._fetch_page_once(cursor, last_us)

    async def _fetch_page_once(self, cursor: FeedCursor, last_us: int) -> FeedPage:
        rows = MAX_FOLLOWED_PAGE_ROWS
        while True:
            try:
                finished = await self._run_page(self._page_request(cursor, last_us, rows))
            except AnswerTooLarge:
                if rows == 1:
                    raise
                rows = max(1, rows // _PAGE_ROWS_REDUCTION_FACTOR)
            else:
                return _create_feed_page(finished, last_us)

    def _page_request(self, cursor: FeedCursor, last_us: int, rows: int) -> QueryRequest:
        range_values = {
            FIRST_RECEIPT_TIME_PARAMETER: format_timestamp(cursor.first_receipt_us),
            LAST_RECEIPT_TIME_PARAMETER: format_timestamp(last_us),
            AFTER_EVENT_TIME_PARAMETER: format_timestamp(cursor.after_event_time_us),
            AFTER_EVENT_KEY_PARAMETER: cursor.after_event_key,
        }
        parameters = {**self._request.parameters, **range_values}
        return msgspec.structs.replace(self._request, parameters=parameters, page_size=rows)


def _create_feed_page(finished: CompleteAnswer, last_us: int) -> FeedPage:
    rows = unpack_rows(finished.body)
    if finished.receipt.truncated_by is None:
        return FeedPage(rows, FeedCursor(last_us + 1), is_last=True)
    # The page may have been cut off between the rows of its last event. Therefore all rows of this event are left to
    # the next page, unless the page has no other rows.
    last = rows[-1]
    complete = [row for row in rows if row.sort_key != last.sort_key] or rows
    return FeedPage(complete, FeedCursor(*complete[-1].sort_key), is_last=False)


# The pause between two runs of a feed, so that one run can process several events. With a pause half as long, ten feeds
# and 5,000 events a second, the runs would take CPU time that is needed for sending rows, so rows would be delayed.
EVALUATION_PAUSE_SECONDS: Final = 0.1
# Frames are joined into blocks of about this many bytes. Each block is sent in one write.
TARGET_FRAME_BLOCK_BYTES: Final = 32 * 1024
# The estimated bytes that a frame takes in memory besides its text.
_FRAME_OVERHEAD_BYTES: Final = 160


class FrameBlock(msgspec.Struct, frozen=True):
    """Consecutive frames, each of which is one row as a Server-Sent Event.

    `text` has all frames, and `frame_end_offsets` the offset at which each frame ends. The frames of a feed are
    numbered; `first_frame_number` is the number of the first frame in the block.
    """

    first_frame_number: int
    text: bytes
    frame_ids: Sequence[FeedPosition]
    frame_end_offsets: Sequence[int]

    @property
    def memory_bytes(self) -> int:
        """The approximate number of bytes that the block takes in memory."""
        return len(self.text) + _FRAME_OVERHEAD_BYTES * len(self.frame_ids)

    @property
    def next_frame_number(self) -> int:
        """The number of the first frame after the block."""
        return self.first_frame_number + len(self.frame_ids)

    def text_from_frame(self, number: int) -> bytes:
        """Return the text of the block's frames, beginning with the frame `number`."""
        return (
            self.text
            if number <= self.first_frame_number
            else self.text[self.frame_end_offsets[number - self.first_frame_number - 1] :]
        )


class FrameBuilder:
    """Builds frames from rows, and gives each frame an id.

    Rows with the same receive time are numbered, so that their ids differ.
    """

    def __init__(self, position: FeedPosition) -> None:
        self.end_position = position

    def build_blocks(self, rows: Sequence[FeedRow], first: int) -> list[FrameBlock]:
        """Return blocks with the frames for `rows`; `first` is the number of the first frame."""
        blocks: list[FrameBlock] = []
        frames: list[bytes] = []
        ids: list[FeedPosition] = []
        size = 0
        for row in rows:
            ids.append(self._next_frame_id(row.receipt_us))
            frames.append(b"id: %d-%d\ndata: %b\n\n" % (*ids[-1], row.row_json))
            size += len(frames[-1])
            if size >= TARGET_FRAME_BLOCK_BYTES:
                blocks.append(_join_frames(first, frames, ids))
                first, frames, ids, size = first + len(ids), [], [], 0
        return [*blocks, _join_frames(first, frames, ids)] if frames else blocks

    def _next_frame_id(self, receipt_us: int) -> FeedPosition:
        rows = self.end_position.row_count + 1 if receipt_us == self.end_position.receipt_us else 1
        self.end_position = FeedPosition(receipt_us, rows)
        return self.end_position


def _join_frames(first: int, frames: Sequence[bytes], ids: Sequence[FeedPosition]) -> FrameBlock:
    return FrameBlock(first, b"".join(frames), tuple(ids), tuple(accumulate(map(len, frames))))


class FrameReceiver(Protocol):
    """The interface through which a feed sends new frames to a follower that has read the whole ring buffer."""

    def push_block(self, block: FrameBlock) -> bool:
        """Send a new block; return False if the client reads too slowly.

        After False, the follower reads this block and later ones from the ring buffer.
        """

    def notify_feed_ended(self) -> None:
        """Tell the follower that the feed has ended."""


class FollowedQueryFeed:
    """A feed: runs one query on new events, and keeps the resulting rows in a ring buffer.

    The feed begins after `newest_us`, the receive time of the newest stored event. Use it on the event loop only.
    `on_grown` is called when the ring buffer has grown. `log_bug` logs an unexpected error and returns the Fault that
    is sent to the followers.
    """

    def __init__(
        self,
        pages: FeedPageReader,
        streams: frozenset[str],
        newest_us: int,
        on_grown: Callable[[], None],
        log_bug: Callable[[Exception], Fault],
    ) -> None:
        self.page_reader = pages
        self.streams = streams
        self.follower_count = 0
        # The followers that have read the whole ring buffer. Each new block is pushed to them; the other followers read
        # it from the ring buffer.
        self.caught_up_receivers: set[FrameReceiver] = set()
        self.notices: tuple[str, ...] = ()
        # The error with which the feed has ended, or None while the feed runs.
        self.ending_fault: Fault | None = None
        self.ring_bytes = 0
        # The ring buffer has all rows after the position `ring_start`, up to the receive time `evaluated_until_us`.
        self.ring_start = FeedPosition(newest_us + 1, 0)
        self.evaluated_until_us = newest_us
        self.next_frame_number = 0
        self._newest_receipt_us = newest_us
        self._on_ring_grown = on_grown
        self._log_bug = log_bug
        self._ring: deque[FrameBlock] = deque()
        self._frame_builder = FrameBuilder(self.ring_start)
        self._events_arrived = asyncio.Event()
        self._is_idle = True
        self._run_task: asyncio.Task[None] | None = None

    @property
    def end_position(self) -> FeedPosition:
        """The position after all rows that the feed has evaluated."""
        return max(FeedPosition(self.evaluated_until_us + 1, 0), self._frame_builder.end_position)

    def start(self) -> None:
        self._run_task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._run_task is not None:
            self._run_task.cancel()

    def schedule_evaluation(self, streams: frozenset[str], newest_us: int) -> None:
        """Schedule a run of the query on the events up to the receive time `newest_us`.

        `streams` are the streams that have new events. If the query reads none of these streams, no run is scheduled.
        """
        if newest_us <= self.evaluated_until_us:
            return
        self._newest_receipt_us = newest_us
        if not streams.isdisjoint(self.streams):
            self._is_idle = False
            self._events_arrived.set()
        elif self._is_idle:
            self.evaluated_until_us = newest_us

    def end_with_fault(self, fault: Fault) -> None:
        """End the feed, and send the error to all its followers."""
        self.ending_fault = fault
        for reader in list(self.caught_up_receivers):
            reader.notify_feed_ended()

    # The following methods read and fill the ring buffer.

    def frame_number_after(self, position: FeedPosition) -> int:
        """Return the number of the first frame after `position`, which must not be before `ring_start`."""
        for block in self._ring:
            if block.frame_ids[-1] > position:
                return block.first_frame_number + bisect_right(block.frame_ids, position)
        return self.next_frame_number

    @property
    def first_frame_number(self) -> int:
        """The number of the first frame in the ring buffer."""
        return self._ring[0].first_frame_number if self._ring else self.next_frame_number

    def block_with_frame(self, number: int) -> FrameBlock | None:
        """Return the block that contains the frame with this number, or None if this frame does not exist yet."""
        if number >= self.next_frame_number:
            return None
        newest = self._ring[-1]
        # Nearly all followers read the newest block, so it is looked up first.
        if number >= newest.first_frame_number:
            return newest
        return self._ring[bisect_right(self._ring, number, key=lambda block: block.first_frame_number) - 1]

    def drop_oldest_block(self) -> None:
        block = self._ring.popleft()
        self.ring_bytes -= block.memory_bytes
        self.ring_start = block.frame_ids[-1]

    def _append_rows(self, rows: Sequence[FeedRow]) -> None:
        for block in self._frame_builder.build_blocks(rows, self.next_frame_number):
            self._ring.append(block)
            self.ring_bytes += block.memory_bytes
            self.next_frame_number = block.next_frame_number
            self.caught_up_receivers = {reader for reader in self.caught_up_receivers if reader.push_block(block)}
        self._on_ring_grown()

    # The following methods evaluate the query.

    async def _run(self) -> None:
        try:
            while True:
                await self._events_arrived.wait()
                self._events_arrived.clear()
                await self._evaluate_query(self._newest_receipt_us)
                self._is_idle = not self._events_arrived.is_set()
                await asyncio.sleep(EVALUATION_PAUSE_SECONDS)
        except Fault as fault:
            self.end_with_fault(fault)
        except Exception as problem:  # noqa: BLE001 - the followers must be told
            self.end_with_fault(self._log_bug(problem))

    async def _evaluate_query(self, newest_us: int) -> None:
        cursor = FeedCursor(self.evaluated_until_us + 1)
        while True:
            page = await self.page_reader.fetch_page(cursor, newest_us)
            if page.rows:
                self._append_rows(page.rows)
            cursor = page.next_cursor
            if page.is_last:
                self.evaluated_until_us = newest_us
                return


HEARTBEAT_INTERVAL_SECONDS: Final = 15.0
# The number of seconds between two checks whether the caller may still follow the query.
ACCESS_CHECK_INTERVAL_SECONDS: Final = 5.0
# The number of milliseconds that a client should wait before it connects again.
_RECONNECT_DELAY_MS: Final = 1000
# The length of the range of receive times that the first page of stored rows covers. For later pages, it depends on the
# number of rows found.
_FIRST_WINDOW_US: Final = 1_000_000
_MIN_WINDOW_US, _MAX_WINDOW_US = 1_000, 10 * 366 * 86_400 * 1_000_000
# If a page has fewer rows than this, the next page covers a longer range of receive times.
_WINDOW_EXTENSION_ROW_THRESHOLD: Final = 100
# If reading a page took too long, the range of receive times is divided by this number.
_WINDOW_REDUCTION_FACTOR: Final = 16
_FEED_POLL_SECONDS: Final = 0.02


class FeedFollower:
    """A connection that receives the rows of a feed.

    Without a position, it begins with the rows that arrive from now on.

    `access_fault` returns the reason why the caller may no longer follow the query, or None if it may. `on_end` is
    called once, when the follower ends. `write` sends a chunk to the client at once, or returns False if the client
    reads too slowly. After False, or if `write` is None, `chunks` yields the chunks instead.
    """

    def __init__(
        self,
        feed: FollowedQueryFeed,
        position: FeedPosition | None,
        access_fault: Callable[[], Fault | None],
        on_end: Callable[[], None],
        write: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._feed = feed
        self._position = feed.end_position if position is None else min(position, feed.end_position)
        self._next_frame_number = feed.next_frame_number
        self._find_access_fault = access_fault
        self._on_end = on_end
        self._try_write_chunk = write
        # This event is set when a chunk could not be written at once, or when the feed has ended.
        self._wakeup_event = asyncio.Event()
        self._sent_at = self._checked_at = time.monotonic()

    @property
    def notices(self) -> tuple[str, ...]:
        return self._feed.notices

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the event stream until the feed ends or the caller may no longer follow the query."""
        try:
            yield b"retry: %d\nid: %b\n\n" % (_RECONNECT_DELAY_MS, str(self._position).encode())
            async for chunk in self._stored_chunks():
                yield chunk
            async for chunk in self._feed_chunks():
                yield chunk
        except Fault as fault:
            yield _create_end_event(fault)
        finally:
            self._feed.caught_up_receivers.discard(self)
            self._on_end()

    def push_block(self, block: FrameBlock) -> bool:
        if (
            self._next_frame_number == block.first_frame_number
            and self._try_write_chunk is not None
            and self._try_write_chunk(block.text)
        ):
            self._next_frame_number = block.next_frame_number
            self._sent_at = time.monotonic()
            return True
        self._wakeup_event.set()
        return False

    def notify_feed_ended(self) -> None:
        self._wakeup_event.set()

    def _raise_if_ended(self) -> None:
        """Raise a Fault if the feed has ended and all its rows were sent, or if the caller has lost access."""
        if self._feed.ending_fault is not None and self._next_frame_number >= self._feed.next_frame_number:
            raise self._feed.ending_fault
        now = time.monotonic()
        if now - self._checked_at >= ACCESS_CHECK_INTERVAL_SECONDS:
            self._checked_at = now
            fault = self._find_access_fault()
            if fault is not None:
                raise fault

    # The following methods send the stored rows that are older than the ring buffer.

    async def _stored_chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the stored rows from the follower's position to the start of the feed's ring buffer.

        The start of the ring buffer may move while the rows are read.
        """
        feed, begin = self._feed, self._position
        frames = FrameBuilder(FeedPosition(begin.receipt_us, 0))
        cursor, window_us = FeedCursor(begin.receipt_us), _FIRST_WINDOW_US
        while self._position < feed.ring_start:
            self._raise_if_ended()
            last_us = min(cursor.first_receipt_us + window_us, max(feed.evaluated_until_us, feed.ring_start.receipt_us))
            try:
                page = await feed.page_reader.fetch_page(cursor, last_us)
            except QueryOutOfTime:
                if window_us <= _MIN_WINDOW_US:
                    raise
                window_us = max(_MIN_WINDOW_US, window_us // _WINDOW_REDUCTION_FACTOR)
                continue
            for block in frames.build_blocks(page.rows, 0):
                # Rows with the receive time of the follower's position are read again, including those that were
                # already sent. Skip the latter.
                sent = bisect_right(block.frame_ids, begin)
                for chunk in _split_into_write_chunks(
                    block.text_from_frame(block.first_frame_number + sent) if sent < len(block.frame_ids) else b""
                ):
                    yield self._record_send_time(chunk)
            self._position = max(self._position, FeedPosition(last_us + 1, 0) if page.is_last else frames.end_position)
            window_us = _next_page_window_us(window_us, page, cursor)
            cursor = page.next_cursor
            if time.monotonic() > self._heartbeat_due_at():
                yield self._create_heartbeat(self._position)
        while self._position > feed.end_position:
            # Wait until the feed has evaluated all events up to the follower's position.
            self._raise_if_ended()
            await asyncio.sleep(_FEED_POLL_SECONDS)

    # The following methods send the rows in the ring buffer of the feed, and heartbeats.

    async def _feed_chunks(self) -> AsyncGenerator[bytes, None]:
        feed = self._feed
        self._next_frame_number = feed.frame_number_after(self._position)
        while True:
            self._raise_if_ended()
            if self._next_frame_number < feed.next_frame_number:
                for chunk in self._ring_chunks():
                    yield chunk
            elif await self._wait_for_heartbeat():
                yield self._create_heartbeat(feed.end_position)

    def _ring_chunks(self) -> Iterator[bytes]:
        """Yield the next frames from the ring buffer.

        If the ring buffer no longer has some of these frames, yield a gap event first.
        """
        lost = self._feed.first_frame_number - self._next_frame_number
        if lost > 0:
            self._next_frame_number += lost
            yield self._record_send_time(b'event: gap\ndata: {"lost":%d}\n\n' % lost)
        block = self._feed.block_with_frame(self._next_frame_number)
        if block is not None:
            text, self._next_frame_number = block.text_from_frame(self._next_frame_number), block.next_frame_number
            for chunk in _split_into_write_chunks(text):
                yield self._record_send_time(chunk)

    async def _wait_for_heartbeat(self) -> bool:
        """Wait while the feed pushes frames to the client; return whether a heartbeat is due.

        The wait ends when a push fails, the feed ends, a heartbeat is due, or the access of the caller has to be
        checked.
        """
        self._wakeup_event.clear()
        self._feed.caught_up_receivers.add(self)
        try:
            async with asyncio.timeout(
                max(0.0, min(self._heartbeat_due_at() - time.monotonic(), ACCESS_CHECK_INTERVAL_SECONDS))
            ):
                await self._wakeup_event.wait()
        except TimeoutError:
            return time.monotonic() >= self._heartbeat_due_at()
        finally:
            self._feed.caught_up_receivers.discard(self)
        return False

    def _heartbeat_due_at(self) -> float:
        return self._sent_at + HEARTBEAT_INTERVAL_SECONDS

    def _record_send_time(self, chunk: bytes) -> bytes:
        self._sent_at = time.monotonic()
        return chunk

    def _create_heartbeat(self, position: FeedPosition) -> bytes:
        """Return a heartbeat with a position: a comment and an id in the format of Server-Sent Events.

        When the client reconnects, it sends this id, and continues at this position instead of an older one.
        """
        return self._record_send_time(b": heartbeat\nid: %b\n\n" % str(position).encode())


def _split_into_write_chunks(text: bytes) -> Iterator[bytes]:
    """Yield a large text in pieces, so that only one piece is buffered for a slow client."""
    if len(text) <= 2 * TARGET_FRAME_BLOCK_BYTES:
        if text:
            yield text
        return
    for begin in range(0, len(text), TARGET_FRAME_BLOCK_BYTES):
        yield text[begin : begin + TARGET_FRAME_BLOCK_BYTES]


def _next_page_window_us(window_us: int, page: FeedPage, cursor: FeedCursor) -> int:
    """Return the length of the range of receive times for the next page.

    It depends on the number of rows in `page`: few rows make the next range longer.
    """
    if not page.is_last:
        return max(_MIN_WINDOW_US, page.next_cursor.first_receipt_us - cursor.first_receipt_us)
    return min(_MAX_WINDOW_US, window_us * 4) if len(page.rows) < _WINDOW_EXTENSION_ROW_THRESHOLD else window_us


def _create_end_event(fault: Fault) -> bytes:
    hint = {"hint": fault.hint} if fault.hint else {}
    fields = {"status": fault.code, "message": fault.message, **hint}
    return b"event: end\ndata: %b\n\n" % msgspec.json.encode(fields)


OnEventsStored = Callable[[frozenset[str], int], None]


class TailLimits(msgspec.Struct, frozen=True):
    """The maximum number of followers, in total and for one account, and the maximum bytes of all ring buffers."""

    max_followers: int = 1000
    max_account_followers: int = 100
    max_ring_bytes: int = 16 * 2**20


def _feed_request(request: QueryRequest) -> QueryRequest:
    """Return the request with which a feed reads its pages.

    The cursor and the page size of the caller's request are left out.
    """
    return msgspec.structs.replace(
        request, is_feed_page=True, page_size=MAX_FOLLOWED_PAGE_ROWS, position=None, is_paging_requested=False
    )


class _FollowerOwner(NamedTuple):
    """The account and the network address of a follower. Each of them may have only a limited number of followers."""

    account: str
    address: str


class StoredEventsSignal(Protocol):
    """The interface of the object that calls a function when events were stored."""

    def set_events_stored_callback(self, notify: OnEventsStored | None) -> None:
        """Call `notify` whenever events were stored; None removes the current callback.

        The callback may be called from any thread. Its arguments are the streams of the stored events and the newest
        receive time.
        """


class TailService:
    """The service for followed queries. All followers with the same request share one feed.

    Use it on the event loop only. As an exception, stored events may be signalled from any thread.
    """

    def __init__(
        self,
        answers: QueryService,
        stored: StoredEventsSignal,
        limits: TailLimits,
        note: RecordObservation = ignore_observation,
    ) -> None:
        self._query_service = answers
        self._stored_events_signal = stored
        self._tail_limits = limits
        self._record_observation = note
        self._feeds_by_digest: dict[bytes, FollowedQueryFeed] = {}
        self._follower_counts_by_account: Counter[str] = Counter()
        self._follower_counts_by_address: Counter[str] = Counter()
        self._newest_receipt_us = 0
        # The number of feeds whose start has begun but not ended.
        self._starting_feed_count = 0
        self._is_closed = False

    @property
    def follower_count(self) -> int:
        """The number of connections that follow a query."""
        return sum(feed.follower_count for feed in self._feeds_by_digest.values())

    async def follow(
        self,
        request: QueryRequest,
        position: FeedPosition | None,
        access_fault: Callable[[], Fault | None],
        write: Callable[[bytes], bool] | None = None,
        address: str = "",
    ) -> FeedFollower:
        """Return a new follower of a query; raise a Fault if the query cannot be followed.

        `address` is the client's network address. The number of followers of one address is limited, even if they use
        different keys.
        """
        if self._is_closed:
            raise ServiceDraining("The service is stopping.", retry_after=5)
        charged = _FollowerOwner(request.account, address)
        self._count_follower_against_limits(charged)
        try:
            feed = await self._join_feed(_feed_request(request))
        except BaseException:
            self._release_follower(charged)
            raise
        return FeedFollower(feed, position, access_fault, lambda: self._leave_feed(feed, charged), write)

    def close(self) -> None:
        """End all feeds, so that clients reconnect to the next process."""
        self._is_closed = True
        for feed in self._feeds_by_digest.values():
            feed.end_with_fault(ServiceDraining("The service is stopping."))

    # The following methods enforce the limits on followers.

    def _count_follower_against_limits(self, charged: "_FollowerOwner") -> None:
        limits = self._tail_limits
        if self._follower_counts_by_account.total() >= limits.max_followers:
            raise TooManyFollowedQueries("As many queries are followed as this service allows.", retry_after=10)
        address_followers = max(limits.max_account_followers, limits.max_followers // 2)
        for held, holder, limit in (
            (self._follower_counts_by_account, charged.account, limits.max_account_followers),
            (self._follower_counts_by_address, charged.address, address_followers),
        ):
            if held[holder] >= limit:
                raise TooManyFollowedQueries(
                    f"This key or address follows {limit} queries, which is its limit.",
                    hint="Close one of these connections.",
                    retry_after=10,
                )
        self._follower_counts_by_account[charged.account] += 1
        self._follower_counts_by_address[charged.address] += 1

    def _release_follower(self, charged: "_FollowerOwner") -> None:
        self._follower_counts_by_account -= Counter([charged.account])
        self._follower_counts_by_address -= Counter([charged.address])

    # The following methods start, advance and end feeds.

    async def _join_feed(self, request: QueryRequest) -> FollowedQueryFeed:
        """Return the feed for a request, and count one more follower of it. Start the feed if it does not exist."""
        digest = self._query_service.feed_digest(request)
        feed = self._feeds_by_digest.get(digest)
        if feed is None or feed.ending_fault is not None:
            feed = await self._start_feed(digest, request)
        feed.follower_count += 1
        return feed

    async def _start_feed(self, digest: bytes, request: QueryRequest) -> FollowedQueryFeed:
        self._starting_feed_count += 1
        try:
            begun = await self._new_feed(request)
            # Another follower of the same query may have started the feed in the meantime.
            feed = self._feeds_by_digest.get(digest)
            if feed is None or feed.ending_fault is not None:
                feed = self._feeds_by_digest[digest] = begun
                feed.schedule_evaluation(feed.streams, self._newest_receipt_us)
                feed.start()
            return feed
        finally:
            self._starting_feed_count -= 1
            self._stop_listening_if_unused()

    async def _new_feed(self, request: QueryRequest) -> FollowedQueryFeed:
        if self._query_service.newest_receipt_us() is None:
            raise FeatureUnavailable("Queries cannot be followed on this engine.", hint="Run the query again instead.")
        statement = await self._query_service.compile_followed_query(request)
        # Listen for stored events before reading the newest receive time, so that no later event is missed.
        self._listen_for_stored_events(asyncio.get_running_loop())
        newest_us = self._query_service.newest_receipt_us() or 0
        pages = FeedPageReader(request, self._query_service.run_feed_page)
        # Run the query once now. If its parameters are invalid or the engine refuses the query, the caller gets the
        # error at once.
        await pages.fetch_page(FeedCursor(newest_us + 1), newest_us + 1)
        feed = FollowedQueryFeed(pages, frozenset(statement.streams), newest_us, self._limit_ring_bytes, self._log_bug)
        feed.notices = statement_notices(statement)
        return feed

    def _leave_feed(self, feed: FollowedQueryFeed, charged: "_FollowerOwner") -> None:
        self._release_follower(charged)
        feed.follower_count -= 1
        if feed.follower_count:
            return
        feed.stop()
        self._feeds_by_digest = {digest: other for digest, other in self._feeds_by_digest.items() if other is not feed}
        self._stop_listening_if_unused()

    def _listen_for_stored_events(self, loop: asyncio.AbstractEventLoop) -> None:
        def schedule_evaluations_threadsafe(streams: frozenset[str], newest_us: int) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._schedule_feed_evaluations, streams, newest_us)

        self._stored_events_signal.set_events_stored_callback(schedule_evaluations_threadsafe)

    def _stop_listening_if_unused(self) -> None:
        if not self._feeds_by_digest and not self._starting_feed_count:
            self._stored_events_signal.set_events_stored_callback(None)

    def _schedule_feed_evaluations(self, streams: frozenset[str], newest_us: int) -> None:
        self._newest_receipt_us = max(self._newest_receipt_us, newest_us)
        for feed in self._feeds_by_digest.values():
            feed.schedule_evaluation(streams, self._newest_receipt_us)

    def _log_bug(self, problem: Exception) -> Fault:
        incident = uuid4().hex
        self._record_observation(BugFound(incident=incident, trace="".join(traceback.format_exception(problem))))
        return BugFault("An internal error occurred.", hint=f"Report the incident {incident}.")

    def _limit_ring_bytes(self) -> None:
        """Drop the oldest rows of the largest ring buffer while all ring buffers together exceed their limit."""
        while sum(feed.ring_bytes for feed in self._feeds_by_digest.values()) > self._tail_limits.max_ring_bytes:
            max(self._feeds_by_digest.values(), key=lambda feed: feed.ring_bytes).drop_oldest_block()
