"""All followed queries of the service: a feed for each distinct request, its followers, and limits on followers.

A follower sends the stored rows since its position, then those of the feed, as Server-Sent Events.
"""

import asyncio
import time
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import msgspec

from cordwood.errors import BugFault, Draining, Fault, NotOffered, OutOfTime, TooManyFollowers
from cordwood.observe.observation import BugFound, Note, note_nothing
from cordwood.serve.answer import Answers
from cordwood.serve.jobs import notices_of
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.tail_feed import BLOCK_BYTES, Block, Cursor, Feed, Frames, Page, Pages, Position
from cordwood.sql.compile import FOLLOWED_PAGE_ROWS

HEARTBEAT_SECONDS: Final = 15.0
# The interval of the checks that the key may still follow the query.
CHECK_SECONDS: Final = 5.0
# After how many milliseconds a client reconnects when the connection has ended.
_RETRY_MS: Final = 1000
# The range of receive times of the first page of stored rows. The next ranges are adapted to the number of rows found.
_FIRST_WINDOW_US: Final = 1_000_000
_MIN_WINDOW_US, _MAX_WINDOW_US = 1_000, 10 * 366 * 86_400 * 1_000_000
_FEW_ROWS: Final = 100
# The factor by which a range is shortened if its page took too long.
_RANGE_REDUCTION: Final = 16
_POLL_SECONDS: Final = 0.02


class Follower:
    """One reader of a feed. Without a position, it begins with the rows that arrive from now on.

    `access_fault` returns the reason if the caller may no longer follow the query; `on_end` is called once. `write`
    writes a chunk at once and returns whether it did. Without it, and while the client reads too slowly, chunks are
    yielded.
    """

    def __init__(
        self,
        feed: Feed,
        position: Position | None,
        access_fault: Callable[[], Fault | None],
        on_end: Callable[[], None],
        write: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._feed = feed
        self._position = feed.end if position is None else min(position, feed.end)
        self._number = feed.next_number
        self._access_fault = access_fault
        self._on_end = on_end
        self._write = write
        # Set when a chunk could not be written at once, or the feed has ended.
        self._is_behind = asyncio.Event()
        self._sent_at = self._checked_at = time.monotonic()

    @property
    def notices(self) -> tuple[str, ...]:
        return self._feed.notices

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the event stream until the feed ends or the caller may no longer follow the query."""
        try:
            yield b"retry: %d\nid: %b\n\n" % (_RETRY_MS, str(self._position).encode())
            async for chunk in self._from_store():
                yield chunk
            async for chunk in self._from_feed():
                yield chunk
        except Fault as fault:
            yield _end_event(fault)
        finally:
            self._feed.readers.discard(self)
            self._on_end()

    def push(self, block: Block) -> bool:
        if self._number == block.first and self._write is not None and self._write(block.text):
            self._number = block.end
            self._sent_at = time.monotonic()
            return True
        self._is_behind.set()
        return False

    def wake(self) -> None:
        self._is_behind.set()

    def _check(self) -> None:
        """Raise the error of an ended feed once everything was sent, or of a caller who may no longer follow it."""
        if self._feed.fault is not None and self._number >= self._feed.next_number:
            raise self._feed.fault
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            fault = self._access_fault()
            if fault is not None:
                raise fault

    # From the store

    async def _from_store(self) -> AsyncGenerator[bytes, None]:
        """Yield the rows from the position to the start of the feed's ring, which may move meanwhile."""
        feed, begin = self._feed, self._position
        frames = Frames(Position(begin.receipt_us, 0))
        cursor, window_us = Cursor(begin.receipt_us), _FIRST_WINDOW_US
        while self._position < feed.start:
            self._check()
            last_us = min(cursor.first_us + window_us, max(feed.evaluated_us, feed.start.receipt_us))
            try:
                page = await feed.pages.page(cursor, last_us)
            except OutOfTime:
                if window_us <= _MIN_WINDOW_US:
                    raise
                window_us = max(_MIN_WINDOW_US, window_us // _RANGE_REDUCTION)
                continue
            for block in frames.blocks(page.rows, 0):
                # The rows of the first receive time that were already sent are read again, so that they can be counted
                # and skipped.
                sent = bisect_right(block.ids, begin)
                for chunk in _split(block.text_from(block.first + sent) if sent < len(block.ids) else b""):
                    yield self._note_sent(chunk)
            self._position = max(self._position, Position(last_us + 1, 0) if page.is_last else frames.position)
            window_us = _next_window(window_us, page, cursor)
            cursor = page.following
            if time.monotonic() > self._due_at():
                yield self._heartbeat(self._position)
        while self._position > feed.end:
            # The feed has not read all events of the last receive time yet.
            self._check()
            await asyncio.sleep(_POLL_SECONDS)

    # From the feed

    async def _from_feed(self) -> AsyncGenerator[bytes, None]:
        feed = self._feed
        self._number = feed.number_after(self._position)
        while True:
            self._check()
            if self._number < feed.next_number:
                for chunk in self._next_chunks():
                    yield chunk
            elif await self._is_quiet():
                yield self._heartbeat(feed.end)

    def _next_chunks(self) -> Iterator[bytes]:
        """Yield the next frames of the ring, after a gap event if the ring has already dropped some of them."""
        lost = self._feed.first_number - self._number
        if lost > 0:
            self._number += lost
            yield self._note_sent(b'event: gap\ndata: {"lost":%d}\n\n' % lost)
        block = self._feed.block_at(self._number)
        if block is not None:
            text, self._number = block.text_from(self._number), block.end
            for chunk in _split(text):
                yield self._note_sent(chunk)

    async def _is_quiet(self) -> bool:
        """Wait until frames cannot be pushed; return whether there were none until the next heartbeat is due."""
        self._is_behind.clear()
        self._feed.readers.add(self)
        try:
            async with asyncio.timeout(max(0.0, min(self._due_at() - time.monotonic(), CHECK_SECONDS))):
                await self._is_behind.wait()
        except TimeoutError:
            return time.monotonic() >= self._due_at()
        finally:
            self._feed.readers.discard(self)
        return False

    def _due_at(self) -> float:
        return self._sent_at + HEARTBEAT_SECONDS

    def _note_sent(self, chunk: bytes) -> bytes:
        self._sent_at = time.monotonic()
        return chunk

    def _heartbeat(self, position: Position) -> bytes:
        """Return a comment and an id, so that a client that reconnects need not begin at an old position."""
        return self._note_sent(b": heartbeat\nid: %b\n\n" % str(position).encode())


def _split(text: bytes) -> Iterator[bytes]:
    """Yield a large frame in parts, so that little of it is held in memory for a slow client."""
    if len(text) <= 2 * BLOCK_BYTES:
        if text:
            yield text
        return
    for begin in range(0, len(text), BLOCK_BYTES):
        yield text[begin : begin + BLOCK_BYTES]


def _next_window(window_us: int, page: Page, cursor: Cursor) -> int:
    """Return the length of the next range, adapted to the number of rows that this page found."""
    if not page.is_last:
        return max(_MIN_WINDOW_US, page.following.first_us - cursor.first_us)
    return min(_MAX_WINDOW_US, window_us * 4) if len(page.rows) < _FEW_ROWS else window_us


def _end_event(fault: Fault) -> bytes:
    hint = {"hint": fault.hint} if fault.hint else {}
    fields = {"status": fault.code, "message": fault.message, **hint}
    return b"event: end\ndata: %b\n\n" % msgspec.json.encode(fields)


OnStored = Callable[[frozenset[str], int], None]


class TailLimits(msgspec.Struct, frozen=True):
    """The limits on followers: in all, for one key or address, and the bytes of rows that feeds hold for slow readers."""

    followers: int = 1000
    key_followers: int = 100
    ring_bytes: int = 16 * 2**20


def _followed(request: QueryRequest) -> QueryRequest:
    """Return the request for pages in the order of receipt, to which cursors and sizes of other pages do not apply."""
    return msgspec.structs.replace(request, follows=True, page_rows=FOLLOWED_PAGE_ROWS, position=None, is_paged=False)


class _LimitedBy(NamedTuple):
    """The key and the address whose limits a follower counts against."""

    account: str
    address: str


class StoredSignal(Protocol):
    """The interface of the source that signals when events were stored."""

    def on_stored(self, notify: OnStored | None) -> None:
        """Register a callback for the streams of stored events and their last receive time, from any thread."""


class Tails:
    """The feeds by request. Use it on the event loop only, except for the signal of stored events."""

    def __init__(self, answers: Answers, stored: StoredSignal, limits: TailLimits, note: Note = note_nothing) -> None:
        self._answers = answers
        self._stored = stored
        self._limits = limits
        self._note = note
        self._feeds: dict[bytes, Feed] = {}
        self._by_account: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._newest_us = 0
        # The number of feeds that are being started.
        self._beginning = 0
        self._is_closed = False

    @property
    def followers(self) -> int:
        """The number of connections that follow a query."""
        return sum(feed.followers for feed in self._feeds.values())

    async def follow(
        self,
        request: QueryRequest,
        position: Position | None,
        access_fault: Callable[[], Fault | None],
        write: Callable[[bytes], bool] | None = None,
        address: str = "",
    ) -> Follower:
        """Return a new follower of a query; raise the error of a query that cannot be followed.

        `address` is the client's address, whose followers are limited whatever their keys.
        """
        if self._is_closed:
            raise Draining("The service is stopping.", retry_after=5)
        charged = _LimitedBy(request.account, address)
        self._admit(charged)
        try:
            feed = await self._feed(_followed(request))
        except BaseException:
            self._release(charged)
            raise
        return Follower(feed, position, access_fault, lambda: self._leave(feed, charged), write)

    def close(self) -> None:
        """End all feeds, so that clients reconnect to the next process."""
        self._is_closed = True
        for feed in self._feeds.values():
            feed.finish(Draining("The service is stopping."))

    # Limits

    def _admit(self, charged: "_LimitedBy") -> None:
        limits = self._limits
        if self._by_account.total() >= limits.followers:
            raise TooManyFollowers("As many queries are followed as this service allows.", retry_after=10)
        address_followers = max(limits.key_followers, limits.followers // 2)
        for held, holder, limit in (
            (self._by_account, charged.account, limits.key_followers),
            (self._by_address, charged.address, address_followers),
        ):
            if held[holder] >= limit:
                raise TooManyFollowers(
                    f"This key or address follows {limit} queries, which is its limit.",
                    hint="Close one of these connections.",
                    retry_after=10,
                )
        self._by_account[charged.account] += 1
        self._by_address[charged.address] += 1

    def _release(self, charged: "_LimitedBy") -> None:
        self._by_account -= Counter([charged.account])
        self._by_address -= Counter([charged.address])

    # Feeds

    async def _feed(self, request: QueryRequest) -> Feed:
        """Return the feed of a request, with one more follower; start the feed if it does not exist."""
        digest = self._answers.digest_of_followed(request)
        feed = self._feeds.get(digest)
        if feed is None or feed.fault is not None:
            feed = await self._start_feed(digest, request)
        feed.followers += 1
        return feed

    async def _start_feed(self, digest: bytes, request: QueryRequest) -> Feed:
        self._beginning += 1
        try:
            begun = await self._new_feed(request)
            # Another follower of the same query may have started the feed in the meantime.
            feed = self._feeds.get(digest)
            if feed is None or feed.fault is not None:
                feed = self._feeds[digest] = begun
                feed.advance(feed.streams, self._newest_us)
                feed.begin()
            return feed
        finally:
            self._beginning -= 1
            self._stop_listening_if_unused()

    async def _new_feed(self, request: QueryRequest) -> Feed:
        if self._answers.newest_receipt_us() is None:
            raise NotOffered("Queries cannot be followed on this engine.", hint="Run the query again instead.")
        statement = await self._answers.compile_followed(request)
        # Listen before the newest event is looked up, so that no later event is missed.
        self._listen(asyncio.get_running_loop())
        newest_us = self._answers.newest_receipt_us() or 0
        pages = Pages(request, self._answers.page)
        # The first run reports invalid parameters and queries that the engine refuses.
        await pages.page(Cursor(newest_us + 1), newest_us + 1)
        feed = Feed(pages, frozenset(statement.streams), newest_us, self._limit_rings, self._log_bug)
        feed.notices = notices_of(statement)
        return feed

    def _leave(self, feed: Feed, charged: "_LimitedBy") -> None:
        self._release(charged)
        feed.followers -= 1
        if feed.followers:
            return
        feed.stop()
        self._feeds = {digest: other for digest, other in self._feeds.items() if other is not feed}
        self._stop_listening_if_unused()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        def notify(streams: frozenset[str], newest_us: int) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._advance, streams, newest_us)

        self._stored.on_stored(notify)

    def _stop_listening_if_unused(self) -> None:
        if not self._feeds and not self._beginning:
            self._stored.on_stored(None)

    def _advance(self, streams: frozenset[str], newest_us: int) -> None:
        self._newest_us = max(self._newest_us, newest_us)
        for feed in self._feeds.values():
            feed.advance(streams, self._newest_us)

    def _log_bug(self, problem: Exception) -> Fault:
        incident = uuid4().hex
        self._note(BugFound(incident=incident, trace="".join(traceback.format_exception(problem))))
        return BugFault("An internal error occurred.", hint=f"Report the incident {incident}.")

    def _limit_rings(self) -> None:
        """Drop the oldest rows of the largest ring until all rings together are within their limit."""
        while sum(feed.ring_bytes for feed in self._feeds.values()) > self._limits.ring_bytes:
            max(self._feeds.values(), key=lambda feed: feed.ring_bytes).drop_oldest()
