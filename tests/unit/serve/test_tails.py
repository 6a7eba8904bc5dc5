"""Followed queries over a scripted engine: one evaluation for all followers, limits and refusals."""

import asyncio
from collections.abc import Iterator
from datetime import datetime

import msgspec
import pytest

from cordwood.errors import FeatureUnavailable, TooManyFollowedQueries
from cordwood.model.datatype import Column, Datatype, Kind, Row
from cordwood.model.key import Caller
from cordwood.observe.observation import BugFound
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.tails import (
    FeedFollower,
    FeedPosition,
    OnEventsStored,
    TailLimits,
    TailService,
    parse_feed_position,
)
from cordwood.web.query import FEED_ROWS_FORMAT
from tests.fakes.engines import COLUMNS
from tests.unit.serve.harness import UNCACHED_ENDPOINT, ServeHarness, run_with_harness, until

ENDPOINT = msgspec.structs.replace(UNCACHED_ENDPOINT, sql="select event_message from `s`", parameters=())
TAIL_LIMITS = TailLimits(max_followers=1000, max_account_followers=400)


HIDDEN_COLUMNS = tuple(Column(name, Datatype(Kind.STRING)) for name in ("receipt", "time", "key"))


class StoredSignal:
    """A replacement of the engine's notification of stored events. A test calls `stored` to notify."""

    def __init__(self) -> None:
        self.tell: OnEventsStored | None = None

    def set_events_stored_callback(self, tell: OnEventsStored | None) -> None:
        self.tell = tell

    def stored(self, newest_us: int, stream: str = "s") -> None:
        assert self.tell is not None
        self.tell(frozenset([stream]), newest_us)


def make_request_of_key(key: str = "k") -> QueryRequest:
    return QueryRequest(ENDPOINT, Caller(key, frozenset({"private"})), FEED_ROWS_FORMAT)


async def follow(
    tails: TailService, key: str = "k", position: FeedPosition | None = None, address: str = ""
) -> FeedFollower:
    return await tails.follow(make_request_of_key(key), position, lambda: None, address=address)


def answer_one_row_each(harness: ServeHarness) -> None:
    """Let each question return one row, whose receive time is the end of the question's range."""

    def rows(number: int) -> Iterator[list[Row]]:
        question = harness.engine.questions[number - 1]
        last_receipt = question.values["cordwood_last_receipt"]
        assert isinstance(last_receipt, datetime)
        yield [(f"row {number}", int(last_receipt.timestamp() * 1e6), 0, "key")]

    harness.engine.rows, harness.engine.columns = rows, (*COLUMNS, *HIDDEN_COLUMNS)


async def read_texts(follower: FeedFollower, count: int) -> list[bytes]:
    chunks = follower.chunks()
    chunks_read = [await anext(chunks) for _ in range(count)]
    await chunks.aclose()
    return chunks_read


def test_followers_share_one_evaluation() -> None:
    async def test(harness: ServeHarness) -> None:
        signal = StoredSignal()
        tails = TailService(harness.answers, signal, TAIL_LIMITS)
        harness.engine.rows = lambda _: []
        followers = [await follow(tails) for _ in range(300)]
        assert (tails.follower_count, harness.engine.question_count) == (300, 1)
        answer_one_row_each(harness)
        reading = [asyncio.ensure_future(read_texts(follower, 2)) for follower in followers]
        await asyncio.sleep(0)
        signal.stored(1_000_000)
        chunks_of_readers = await asyncio.gather(*reading)
        assert harness.engine.question_count == 2
        assert {chunk for chunks in chunks_of_readers for chunk in chunks[1:]} == {
            b'id: 1000000-1\ndata: {"n":"row 2"}\n\n',
        }
        assert tails.follower_count == 0
        assert signal.tell is None

    run_with_harness(test)


def test_followers_that_reconnect_together_share_one_read_of_stored_events() -> None:
    async def test(harness: ServeHarness) -> None:
        tails = TailService(harness.answers, StoredSignal(), TAIL_LIMITS)
        harness.engine.rows = lambda _: []
        followers = [await follow(tails, position=FeedPosition(0, 0)) for _ in range(50)]
        assert harness.engine.question_count == 1
        harness.engine.hold()
        streams = [follower.chunks() for follower in followers]
        for stream in streams:
            await anext(stream)
        reading = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await until(lambda: harness.engine.question_count == 2)
        await asyncio.sleep(0.05)
        harness.engine.release()
        await asyncio.sleep(0.05)
        assert harness.engine.question_count == 2
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    run_with_harness(test)


def test_events_of_other_streams_run_no_query() -> None:
    async def test(harness: ServeHarness) -> None:
        signal = StoredSignal()
        tails = TailService(harness.answers, signal, TAIL_LIMITS)
        harness.engine.rows = lambda _: []
        follower = await follow(tails)
        signal.stored(1_000_000, "another")
        await asyncio.sleep(0.2)
        assert harness.engine.question_count == 1
        # The position from which a follower resumes is nevertheless after these events.
        assert follower._feed.end_position == FeedPosition(1_000_001, 0)
        await read_texts(follower, 1)

    run_with_harness(test)


def test_keys_and_addresses_have_separate_limits() -> None:
    async def test(harness: ServeHarness) -> None:
        tails = TailService(harness.answers, StoredSignal(), TailLimits(max_followers=6, max_account_followers=2))
        harness.engine.rows = lambda _: []
        await follow(tails, "a", address="one")
        await follow(tails, "a", address="two")
        with pytest.raises(TooManyFollowedQueries, match="follows 2 queries"):
            await follow(tails, "a", address="three")
        await follow(tails, "b", address="one")
        await follow(tails, "c", address="one")
        with pytest.raises(TooManyFollowedQueries, match="follows 3 queries"):
            await follow(tails, "d", address="one")
        await follow(tails, "d", address="two")
        await follow(tails, "d", address="two")
        with pytest.raises(TooManyFollowedQueries, match="this service allows"):
            await follow(tails, "e", address="four")

    run_with_harness(test)


def test_an_engine_without_receipt_order_cannot_be_followed() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.newest_receipt_us = lambda: None  # type: ignore[method-assign] # an engine without an order
        signal = StoredSignal()
        tails = TailService(harness.answers, signal, TAIL_LIMITS)
        with pytest.raises(FeatureUnavailable):
            await follow(tails)
        assert (tails.follower_count, signal.tell) == (0, None)
        await until(lambda: tails.follower_count == 0)

    run_with_harness(test)


def test_an_internal_error_ends_the_feed_and_is_logged_with_its_incident_id() -> None:
    async def test(harness: ServeHarness) -> None:
        notes: list[object] = []
        signal = StoredSignal()
        tails = TailService(harness.answers, signal, TAIL_LIMITS, notes.append)
        harness.engine.rows = lambda _: []
        follower = await follow(tails)
        # The rows lack the columns with their position, so that the evaluation fails.
        harness.engine.rows = lambda _: [[("row",)]]
        reading = asyncio.ensure_future(read_texts(follower, 2))
        await asyncio.sleep(0)
        signal.stored(1_000_000)
        end = (await reading)[1]
        (bug,) = notes
        assert isinstance(bug, BugFound)
        assert b"event: end" in end
        assert bug.incident.encode() in end

    run_with_harness(test)


@pytest.mark.parametrize("text", ["0-0", "1767225600000000-12", "253402300799999999-999999999"])
def test_a_position_is_parsed_as_it_was_written(text: str) -> None:
    assert str(parse_feed_position(text)) == text
