"""Sinks of observations: the log as lines of JSON, and the metrics for Prometheus."""

import io
import json

import pytest

from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import (
    AdmissionAwaited,
    BugFound,
    CachedAnswerRefreshed,
    EngineQueried,
    EventsIngested,
    IsolationBreachRefused,
    JsonLineLog,
    Observer,
    OperatorMessage,
    PartialAnswersUsed,
    RequestAnswered,
)


def request_observation(**facts: object) -> RequestAnswered:
    required_facts: dict[str, object] = {
        "request_id": "r1",
        "method": "GET",
        "route": "query",
        "status": 200,
        "seconds": 0.004,
        "endpoint": "logs.all",
        "cache": "hit",
    }
    return RequestAnswered(**(required_facts | facts))  # type: ignore[arg-type]


class BrokenOutput(io.BytesIO):
    def write(self, _: object) -> int:
        raise OSError


def lines(log: JsonLineLog, out: io.BytesIO) -> list[dict[str, object]]:
    log.flush()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_has_time_level_event_and_the_fields_that_are_set() -> None:
    out = io.BytesIO()
    log = JsonLineLog(out)
    log.record(request_observation())
    [line] = lines(log, out)
    assert list(line)[:3] == ["time", "level", "event"]
    assert str(line["time"]).endswith("Z")
    assert (line["level"], line["event"], line["endpoint"]) == ("info", "request", "logs.all")
    assert "truncated" not in line


@pytest.mark.parametrize(("level", "written"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_lines_below_the_level_are_not_written(level: str, written: int) -> None:
    out = io.BytesIO()
    log = JsonLineLog(out, level)
    log.record(EngineQueried(endpoint="a", engine="duckdb", outcome="ok", seconds=0.1))
    log.record(request_observation())
    log.record(OperatorMessage(message="careful", level="warning"))
    assert len(lines(log, out)) == written


def test_the_level_of_an_observation_is_written_once() -> None:
    out = io.BytesIO()
    JsonLineLog(out).record(OperatorMessage(message="careful", level="error"))
    assert out.getvalue().count(b'"level":"error"') == 1


def test_errors_are_written_at_once_and_other_lines_are_buffered() -> None:
    out = io.BytesIO()
    log = JsonLineLog(out)
    log.record(request_observation())
    assert out.getvalue() == b""
    log.record(BugFound(incident="i", trace="t"))
    assert out.getvalue().count(b"\n") == 2


def test_an_output_that_fails_raises_nothing() -> None:
    log = JsonLineLog(BrokenOutput())
    log.record(BugFound(incident="i", trace="t"))
    log.flush()


def test_values_that_are_not_observations_are_ignored() -> None:
    out = io.BytesIO()
    JsonLineLog(out, "debug").record("a text")
    assert out.getvalue() == b""


def test_metrics_count_observations() -> None:
    metrics = Metrics("1.2.3", {"cordwood_memory_bytes": lambda: 12.0, "cordwood_share": lambda: 0.5})
    observer = Observer([metrics])
    observer.record(request_observation())
    observer.record(request_observation(seconds=0.02, cache="miss"))
    observer.record(request_observation(endpoint="", cache="", route="ingest", status=404))
    observer.record(EngineQueried(endpoint="logs.all", engine="duckdb", outcome="ok", seconds=0.1))
    observer.record(CachedAnswerRefreshed(endpoint="logs.all", outcome="engine.unreachable"))
    observer.record(AdmissionAwaited(places="compile", lane="unknown", outcome="refused", seconds=0.2))
    observer.record(IsolationBreachRefused(incident="i", engine="duckdb", breach="the table x", sql="SELECT"))
    observer.record(PartialAnswersUsed(outcome="reused"))
    observer.record(EventsIngested(stream='a"b\\c\nd', accepted=3, duplicates=1))
    text = metrics.format_text().decode()
    for line in (
        'cordwood_cache_requests_total{endpoint="logs.all",outcome="hit"} 1',
        'cordwood_cache_requests_total{endpoint="logs.all",outcome="miss"} 1',
        'cordwood_requests_seconds_bucket{route="query",status="200",le="0.005"} 1',
        'cordwood_requests_seconds_bucket{route="query",status="200",le="+Inf"} 2',
        'cordwood_requests_seconds_sum{route="query",status="200"} 0.024000',
        'cordwood_requests_seconds_count{route="ingest",status="404"} 1',
        'cordwood_engine_queries_total{endpoint="logs.all",engine="duckdb",outcome="ok"} 1',
        'cordwood_cache_refreshes_total{endpoint="logs.all",outcome="engine.unreachable"} 1',
        'cordwood_ingest_events_total{stream="a\\"b\\\\c\\nd",outcome="accepted"} 3',
        'cordwood_ingest_events_total{stream="a\\"b\\\\c\\nd",outcome="duplicate"} 1',
        'cordwood_isolation_refusals_total{engine="duckdb"} 1',
        'cordwood_partial_answers_total{outcome="reused"} 1',
        'cordwood_places_claims_total{places="compile",lane="unknown",outcome="refused"} 1',
        'cordwood_places_wait_seconds_count{places="compile",lane="unknown"} 1',
        "cordwood_memory_bytes 12",
        "cordwood_share 0.5",
        'cordwood_build_info{version="1.2.3"} 1',
    ):
        assert line in text.splitlines()
    assert text.endswith("\n")
    assert 'outcome="quarantined"' not in text
