"""What is at the engine now, and what took longest: for people who look at the service."""

import asyncio

import msgspec
import pytest

from cordwood.errors import OutOfTime
from cordwood.serve.ask import Language, SandboxText
from cordwood.serve.doing import MOST_SLOW, Doing
from tests.unit.serve.kitchen import CALLER, WARMED, ask


def test_a_run_is_under_way_until_it_is_over() -> None:
    doing = Doing()
    with doing.run(ask()):
        (run,) = doing.under_way()
        assert (run.endpoint, run.key_id, run.outcome) == (WARMED.name, CALLER.key_id, "")
    assert doing.under_way() == []
    assert [one.outcome for one in doing.slowest()] == ["ok"]


def test_a_run_says_how_it_ended() -> None:
    doing = Doing()
    with pytest.raises(OutOfTime), doing.run(ask()):
        raise OutOfTime("Too long.")
    with pytest.raises(asyncio.CancelledError), doing.run(ask()):
        raise asyncio.CancelledError
    assert sorted(one.outcome for one in doing.slowest()) == ["abandoned", "limit.time"]


def test_a_query_of_the_caller_s_own_is_told_in_its_words() -> None:
    doing = Doing()
    own = msgspec.structs.replace(ask(), sandbox=SandboxText(Language.LQL, "f:numbers"))
    with doing.run(own):
        assert [(run.language, run.text) for run in doing.under_way()] == [("lql", "f:numbers")]


def test_only_the_slowest_are_kept() -> None:
    doing = Doing()
    for _ in range(MOST_SLOW * 3):
        with doing.run(ask()):
            pass
    seconds = [one.seconds for one in doing.slowest()]
    assert len(seconds) == MOST_SLOW
    assert seconds == sorted(seconds, reverse=True)
