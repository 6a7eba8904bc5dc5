"""Followed queries over an engine that is told what to answer: one evaluation for all, bounds, and what is refused."""

import asyncio
from collections.abc import Iterator
from datetime import datetime

import msgspec
import pytest

from cordwood.errors import NotOffered, TooManyFollowers
from cordwood.model.datatype import Datatype, Kind
from cordwood.model.key import Caller
from cordwood.model.rows import Column, Row
from cordwood.observe.observation import BugFound
from cordwood.serve.query_request import QueryRequest
from cordwood.serve.tail.follower import Follower
from cordwood.serve.tail.position import Position, read_position
from cordwood.serve.tail.tails import OnStored, TailLimits, Tails
from cordwood.web.encode.followed import FOLLOWED
from tests.fakes.engines import COLUMNS
from tests.unit.serve.kitchen import UNCACHED, Kitchen, run, until

ENDPOINT = msgspec.structs.replace(UNCACHED, sql="select event_message from `s`", parameters=())
LIMITS = TailLimits(followers=1000, key_followers=400)


HIDDEN = tuple(Column(name, Datatype(Kind.STRING)) for name in ("receipt", "time", "key"))


class Signal:
    """Tells that events were stored when the test says so."""

    def __init__(self) -> None:
        self.tell: OnStored | None = None

    def on_stored(self, tell: OnStored | None) -> None:
        self.tell = tell

    def stored(self, newest_us: int, stream: str = "s") -> None:
        assert self.tell is not None
        self.tell(frozenset([stream]), newest_us)


def request(key: str = "k") -> QueryRequest:
    return QueryRequest(ENDPOINT, Caller(key, frozenset({"private"})), FOLLOWED)


async def follow(tails: Tails, key: str = "k", position: Position | None = None, address: str = "") -> Follower:
    return await tails.follow(request(key), position, lambda: None, address=address)


def one_row_each_time(kitchen: Kitchen) -> None:
    """Answer each question with one row, received at the last receive time of its range."""

    def rows(number: int) -> Iterator[list[Row]]:
        question = kitchen.engine.questions[number - 1]
        last = question.values["cordwood_last_receipt"]
        assert isinstance(last, datetime)
        yield [(f"row {number}", int(last.timestamp() * 1e6), 0, "key")]

    kitchen.engine.rows, kitchen.engine.columns = rows, (*COLUMNS, *HIDDEN)


async def texts(follower: Follower, count: int) -> list[bytes]:
    pieces = follower.pieces()
    found = [await anext(pieces) for _ in range(count)]
    await pieces.aclose()
    return found


def test_any_number_of_followers_costs_one_evaluation() -> None:
    async def test(kitchen: Kitchen) -> None:
        signal = Signal()
        tails = Tails(kitchen.answers, signal, LIMITS)
        kitchen.engine.rows = lambda _: []
        followers = [await follow(tails) for _ in range(300)]
        assert (tails.followers, kitchen.engine.asked) == (300, 1)
        one_row_each_time(kitchen)
        reading = [asyncio.ensure_future(texts(follower, 2)) for follower in followers]
        await asyncio.sleep(0)
        signal.stored(1_000_000)
        got = await asyncio.gather(*reading)
        assert kitchen.engine.asked == 2
        assert {piece for pieces in got for piece in pieces[1:]} == {
            b'id: 1000000-1\ndata: {"n":"row 2"}\n\n',
        }
        assert tails.followers == 0
        assert signal.tell is None

    run(test)


def test_followers_that_connect_again_together_share_what_is_read_from_the_store() -> None:
    async def test(kitchen: Kitchen) -> None:
        tails = Tails(kitchen.answers, Signal(), LIMITS)
        kitchen.engine.rows = lambda _: []
        followers = [await follow(tails, position=Position(0, 0)) for _ in range(50)]
        assert kitchen.engine.asked == 1
        kitchen.engine.hold()
        streams = [follower.pieces() for follower in followers]
        for stream in streams:
            await anext(stream)
        reading = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await until(lambda: kitchen.engine.asked == 2)
        await asyncio.sleep(0.05)
        kitchen.engine.release()
        await asyncio.sleep(0.05)
        assert kitchen.engine.asked == 2
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    run(test)


def test_events_of_other_streams_run_nothing() -> None:
    async def test(kitchen: Kitchen) -> None:
        signal = Signal()
        tails = Tails(kitchen.answers, signal, LIMITS)
        kitchen.engine.rows = lambda _: []
        follower = await follow(tails)
        signal.stored(1_000_000, "another")
        await asyncio.sleep(0.2)
        assert kitchen.engine.asked == 1
        # What is said as the place to go on from is after them all the same.
        assert follower._feed.end == Position(1_000_001, 0)
        await texts(follower, 1)

    run(test)


def test_one_key_and_one_address_have_their_bounds_whatever_the_other_is() -> None:
    async def test(kitchen: Kitchen) -> None:
        tails = Tails(kitchen.answers, Signal(), TailLimits(followers=6, key_followers=2))
        kitchen.engine.rows = lambda _: []
        await follow(tails, "a", address="one")
        await follow(tails, "a", address="two")
        with pytest.raises(TooManyFollowers, match="follows 2 queries"):
            await follow(tails, "a", address="three")
        await follow(tails, "b", address="one")
        await follow(tails, "c", address="one")
        with pytest.raises(TooManyFollowers, match="follows 3 queries"):
            await follow(tails, "d", address="one")
        await follow(tails, "d", address="two")
        await follow(tails, "d", address="two")
        with pytest.raises(TooManyFollowers, match="this service allows"):
            await follow(tails, "e", address="four")

    run(test)


def test_an_engine_that_does_not_order_its_events_is_not_followed() -> None:
    async def test(kitchen: Kitchen) -> None:
        kitchen.engine.newest_receipt_us = lambda: None  # type: ignore[method-assign] # an engine without an order
        signal = Signal()
        tails = Tails(kitchen.answers, signal, LIMITS)
        with pytest.raises(NotOffered):
            await follow(tails)
        assert (tails.followers, signal.tell) == (0, None)
        await until(lambda: tails.followers == 0)

    run(test)


def test_an_internal_error_ends_the_feed_and_is_in_the_log_under_the_incident_that_is_told() -> None:
    async def test(kitchen: Kitchen) -> None:
        notes: list[object] = []
        signal = Signal()
        tails = Tails(kitchen.answers, signal, LIMITS, notes.append)
        kitchen.engine.rows = lambda _: []
        follower = await follow(tails)
        # Rows without the columns of their place.
        kitchen.engine.rows = lambda _: [[("row",)]]
        reading = asyncio.ensure_future(texts(follower, 2))
        await asyncio.sleep(0)
        signal.stored(1_000_000)
        end = (await reading)[1]
        (bug,) = notes
        assert isinstance(bug, BugFound)
        assert b"event: end" in end
        assert bug.incident.encode() in end

    run(test)


@pytest.mark.parametrize("text", ["0-0", "1767225600000000-12", "253402300799999999-999999999"])
def test_an_id_is_read_as_it_was_written(text: str) -> None:
    assert str(read_position(text)) == text
