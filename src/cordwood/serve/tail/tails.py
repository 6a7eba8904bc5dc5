"""All followed queries of the service: one feed for each distinct request, and limits on followers."""

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import uuid4

import msgspec

from cordwood.errors import BugFault, Draining, Fault, NotOffered, TooManyFollowers
from cordwood.observe.observation import BugFound, Note, note_nothing
from cordwood.serve.answer import Answers
from cordwood.serve.jobs import notices_of
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.tail.feed import Feed
from cordwood.serve.tail.follower import Follower
from cordwood.serve.tail.pages import Cursor, Pages, Position
from cordwood.sql.compile import FOLLOWED_PAGE_ROWS

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
        statement = await self._answers.followed(request)
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
