"""The list of active queries and of the slowest ones."""

import asyncio

import msgspec
import pytest

from cordwood.errors import OutOfTime
from cordwood.serve.active_queries import MAX_SLOW_QUERIES, ActiveQueries
from cordwood.serve.query_request import Language, SandboxText
from tests.unit.serve.harness import CALLER, WARMED, ask


def test_a_run_is_listed_until_it_ends() -> None:
    active = ActiveQueries()
    with active.run(ask()):
        (run,) = active.running()
        assert (run.endpoint, run.key_id, run.outcome) == (WARMED.name, CALLER.key_id, "")
    assert active.running() == []
    assert [one.outcome for one in active.slowest()] == ["ok"]


def test_the_outcome_of_a_run_is_recorded() -> None:
    active = ActiveQueries()
    with pytest.raises(OutOfTime), active.run(ask()):
        raise OutOfTime("Too long.")
    with pytest.raises(asyncio.CancelledError), active.run(ask()):
        raise asyncio.CancelledError
    assert sorted(one.outcome for one in active.slowest()) == ["abandoned", "limit.time"]


def test_a_sandbox_query_is_listed_with_its_text() -> None:
    active = ActiveQueries()
    own = msgspec.structs.replace(ask(), sandbox=SandboxText(Language.LQL, "f:numbers"))
    with active.run(own):
        assert [(run.language, run.text) for run in active.running()] == [("lql", "f:numbers")]


def test_only_the_slowest_runs_are_kept() -> None:
    active = ActiveQueries()
    for _ in range(MAX_SLOW_QUERIES * 3):
        with active.run(ask()):
            pass
    seconds = [one.seconds for one in active.slowest()]
    assert len(seconds) == MAX_SLOW_QUERIES
    assert seconds == sorted(seconds, reverse=True)
