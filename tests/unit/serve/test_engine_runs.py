"""The list of queries that run on the engine, and the list of the slowest queries."""

import asyncio

import msgspec
import pytest

from cordwood.errors import QueryOutOfTime
from cordwood.serve.query_executor import MAX_LISTED_SLOW_RUNS, EngineRunTracker
from cordwood.serve.query_request import QueryLanguage, SandboxQuery
from tests.unit.serve.harness import CALLER, WARMED_ENDPOINT, make_request


def test_a_run_is_listed_until_it_ends() -> None:
    runs = EngineRunTracker()
    with runs.track(make_request()):
        (run,) = runs.current_runs()
        assert (run.endpoint_name, run.key_id, run.outcome) == (WARMED_ENDPOINT.name, CALLER.key_id, "")
    assert runs.current_runs() == []
    assert [item.outcome for item in runs.slowest_runs()] == ["ok"]


def test_the_outcome_of_a_run_is_recorded() -> None:
    runs = EngineRunTracker()
    with pytest.raises(QueryOutOfTime), runs.track(make_request()):
        raise QueryOutOfTime("Too long.")
    with pytest.raises(asyncio.CancelledError), runs.track(make_request()):
        raise asyncio.CancelledError
    assert sorted(run.outcome for run in runs.slowest_runs()) == ["abandoned", "limit.time"]


def test_a_sandbox_query_is_listed_with_its_text() -> None:
    runs = EngineRunTracker()
    own = msgspec.structs.replace(make_request(), sandbox=SandboxQuery(QueryLanguage.LQL, "f:numbers"))
    with runs.track(own):
        assert [(run.language, run.query_text) for run in runs.current_runs()] == [("lql", "f:numbers")]


def test_only_the_slowest_runs_are_kept() -> None:
    runs = EngineRunTracker()
    for _ in range(MAX_LISTED_SLOW_RUNS * 3):
        with runs.track(make_request()):
            pass
    seconds = [run.duration_seconds for run in runs.slowest_runs()]
    assert len(seconds) == MAX_LISTED_SLOW_RUNS
    assert seconds == sorted(seconds, reverse=True)
