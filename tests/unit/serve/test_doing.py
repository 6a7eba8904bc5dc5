"""What is at the engine now, and what took longest: for people who look at the service."""

import asyncio

import msgspec
import pytest

from cordwood.errors import OutOfTime
from cordwood.serve.active_queries import MAX_SLOW_QUERIES, ActiveQueries
from cordwood.serve.query_request import Language, SandboxText
from tests.unit.serve.kitchen import CALLER, WARMED, ask


def test_a_run_is_under_way_until_it_is_over() -> None:
    active = ActiveQueries()
    with active.run(ask()):
        (run,) = active.running()
        assert (run.endpoint, run.key_id, run.outcome) == (WARMED.name, CALLER.key_id, "")
    assert active.running() == []
    assert [one.outcome for one in active.slowest()] == ["ok"]


def test_a_run_says_how_it_ended() -> None:
    active = ActiveQueries()
    with pytest.raises(OutOfTime), active.run(ask()):
        raise OutOfTime("Too long.")
    with pytest.raises(asyncio.CancelledError), active.run(ask()):
        raise asyncio.CancelledError
    assert sorted(one.outcome for one in active.slowest()) == ["abandoned", "limit.time"]


def test_a_query_of_the_caller_s_own_is_told_in_its_words() -> None:
    active = ActiveQueries()
    own = msgspec.structs.replace(ask(), sandbox=SandboxText(Language.LQL, "f:numbers"))
    with active.run(own):
        assert [(run.language, run.text) for run in active.running()] == [("lql", "f:numbers")]


def test_only_the_slowest_are_kept() -> None:
    active = ActiveQueries()
    for _ in range(MAX_SLOW_QUERIES * 3):
        with active.run(ask()):
            pass
    seconds = [one.seconds for one in active.slowest()]
    assert len(seconds) == MAX_SLOW_QUERIES
    assert seconds == sorted(seconds, reverse=True)
