"""Log queries of Loki's documentation and of Grafana, compared with filters in Python over the same entries."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.unit.logql.conftest import LogqlEngine
from tests.unit.logql.entries import APP_EVENTS, EDGE_EVENTS, START_US

Event = dict[str, Any]
KeepEvent = Callable[[Event], bool]


def line(event: Event) -> str:
    return str(event["event_message"] or "")


def metadata(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = event["metadata"]
    return fields


def labels(event: Event) -> dict[str, str]:
    decoded: dict[str, str] = metadata(event).get("labels", {})
    return decoded


def is_app(event: Event) -> bool:
    return event in APP_EVENTS


def is_job(event: Event, job: str) -> bool:
    return labels(event).get("job") == job


def status(event: Event) -> float:
    return float(metadata(event).get("status", "nan"))


SELECTORS_AND_FILTERS: Final[dict[str, KeepEvent]] = {
    '{source_name="app_logs"}': is_app,
    '{source_name="edge_logs"}': lambda event: not is_app(event),
    '{job="mysql"}': lambda event: is_job(event, "mysql"),
    '{job="mysql", host="db1"}': lambda event: is_job(event, "mysql") and labels(event)["host"] == "db1",
    '{job!="mysql"}': lambda event: not is_job(event, "mysql"),
    '{job=~"my.+"}': lambda event: is_job(event, "mysql"),
    # The pattern of a matcher must match the whole value, and here it matches only a part.
    '{job=~"my"}': lambda _: False,
    "{job !~ `mysq\\w`}": lambda event: not is_job(event, "mysql"),
    '{job=~"mysql|nginx"}': lambda event: bool(labels(event).get("job")),
    '{job=""}': lambda event: "job" not in labels(event),
    '{region=~".+"}': lambda event: "region" in labels(event),
    '{nothing=~".*"}': lambda _: True,
    '{nothing!=""}': lambda _: False,
    '{service_name="mysql"}': lambda event: labels(event).get("service_name") == "mysql",
    '{service_name=~"edge_.*|nginx"}': lambda event: not is_app(event) or is_job(event, "nginx"),
    # The sender wrote this level in capitals, but the label has lower case.
    '{level="warn"}': lambda event: str(metadata(event).get("level")).lower() == "warn",
    '{detected_level="unknown"}': lambda event: "level" not in metadata(event),
}
LINE_FILTERS: Final[dict[str, KeepEvent]] = {
    '{job="mysql"} |= "error"': lambda event: is_job(event, "mysql") and "error" in line(event),
    '{job="mysql"} |= "error" != "timeout"': lambda event: (
        is_job(event, "mysql") and "error" in line(event) and "timeout" not in line(event)
    ),
    '{source_name="edge_logs"} |~ "^GET /[ab]"': lambda event: (
        not is_app(event) and bool(re.search("^GET /[ab]", line(event)))
    ),
    '{source_name="edge_logs"} |~ "(?i)get /B"': lambda event: not is_app(event) and "GET /b" in line(event),
    '{source_name="edge_logs"} !~ "GET /a|GET /b"': lambda event: (
        not is_app(event) and "GET /a" not in line(event) and "GET /b" not in line(event)
    ),
    '{source_name="app_logs"} |= "plain" or "GET"': lambda event: (
        is_app(event) and ("plain" in line(event) or "GET" in line(event))
    ),
    # In a line filter, a dot also matches a line break.
    '{source_name="app_logs"} |~ "line.of"': lambda event: line(event) == "plain line\nof two",
    # This is the query with which Grafana's query builder begins.
    '{source_name="edge_logs"} |= ``': lambda event: not is_app(event),
    '{source_name="edge_logs"} != ``': lambda _: False,
}


def app_entries(*numbers: int) -> KeepEvent:
    """Return a filter that keeps the entries at these positions of `app`."""
    chosen = [APP_EVENTS[number] for number in numbers]
    return lambda event: event in chosen


LABEL_FILTERS: Final[dict[str, KeepEvent]] = {
    '{job="mysql"} | logfmt | duration > 1m and bytes_consumed > 20MB': app_entries(2),
    '{job="mysql"} | logfmt | duration > 1m or bytes_consumed = 20KB': app_entries(2, 3),
    '{job="mysql"} | logfmt | duration >= 20ms or bytes_consumed == 20KB and method!~"2.."': app_entries(2),
    '{job="mysql"} | logfmt | duration >= 20ms or (bytes_consumed == 20KB and method!~"2..")': app_entries(2, 3),
    '{job="mysql"} | logfmt | duration >= 20ms , method!~"2.."': app_entries(2),
    '{job="mysql"} | logfmt | duration >= 20ms method!~"2.."': app_entries(2),
    '{job="mysql"} | logfmt | duration >= 20ms | method!~"2.."': app_entries(2),
    '{job="mysql"} | logfmt | method="a b"': app_entries(2),
    '{job="mysql"} | logfmt took="duration" | took < 1s': app_entries(3),
    '{job="mysql"} |= "error" != "timeout" | json | duration > 10s': app_entries(5, 7),
    '{job="mysql"} | json | path="/home"': app_entries(5, 6),
    '{job="mysql"} | json | request_time > 1': app_entries(6, 7),
    '{job="mysql"} | json | request_time != 0.5': app_entries(6, 7),
    '{job="mysql"} | json | path=~"/log.*"': app_entries(7),
    '{job="mysql"} | json | path="" | logfmt | level="warn"': app_entries(3),
    '{job="nginx"} | json first_server="servers[0]", ua="request.headers[\\"User-Agent\\"]" | first_server="129.0.1.1"'
    ' | ua="curl/7.68.0"': app_entries(0),
    '{job="nginx"} | json request_headers="request.headers" | request_headers=~".*curl.*"': app_entries(0),
    '{job="nginx"} | json | request_headers_Accept="*/*" | response_status=401 | protocol="HTTP/2.0"': app_entries(0),
    # LogQL's JSON parser skips arrays, so that `servers` has no label.
    '{job="nginx"} | json | servers!=""': lambda _: False,
    '{job="nginx"} | logfmt | service=8ms': app_entries(1),
    # The text `host=` is not a field here: it occurs only in the value of `msg`.
    '{job="nginx"} | logfmt | host="x"': lambda _: False,
    '{job="nginx"} | logfmt | msg="say \\"host=x\\" twice"': app_entries(1),
    '{source_name="app_logs"} | trace_id="t1"': app_entries(8),
    '{source_name="app_logs"} | user_id=7': app_entries(8),
    '{source_name="edge_logs"} | status >= 404': lambda event: not is_app(event) and status(event) >= 404,
    '{source_name="edge_logs"} | status = "500"': lambda event: not is_app(event) and status(event) == 500,
    '{source_name="edge_logs"} | request_path="/b"': lambda event: "GET /b" in line(event),
    '{source_name="edge_logs"} | request_host_name="x"': lambda event: event is EDGE_EVENTS[0],
    '{source_name="edge_logs"} | project="p"': lambda event: event in EDGE_EVENTS[:2],
    '{source_name="edge_logs"} | drop status | status >= 404': lambda _: False,
    '{source_name="edge_logs"} | keep level | status=""': lambda event: not is_app(event),
    # This is a query that Grafana's Logs Drilldown sends.
    '{source_name="edge_logs"} | json | logfmt | drop __error__, __error_details__ | status!=""': lambda event: (
        not is_app(event) and "status" in metadata(event)
    ),
    '{job="mysql"} | json | __error__="" | path="/home"': app_entries(5, 6),
    # The value has a unit, so it is not a number, and no entry matches.
    '{job="mysql"} | logfmt | bytes_consumed > -1 # a comment': lambda _: False,
}


@pytest.mark.parametrize("query", [*SELECTORS_AND_FILTERS, *LINE_FILTERS, *LABEL_FILTERS])
def test_a_query_returns_the_lines_that_match(logql: LogqlEngine, query: str) -> None:
    keep_event = {**SELECTORS_AND_FILTERS, **LINE_FILTERS, **LABEL_FILTERS}[query]
    events = sorted([*APP_EVENTS, *EDGE_EVENTS], key=lambda event: int(str(event["timestamp"])))
    expected = sorted(str(event["event_message"]) for event in events if keep_event(event))
    assert sorted(logql.lines(query)) == expected


def test_lines_are_newest_first_up_to_the_limit(logql: LogqlEngine) -> None:
    newest = logql.lines('{source_name="edge_logs"} |= "GET"', is_oldest_first=False, limit=2)
    assert newest == ["GET /c 500", "GET /b 500"]
    assert logql.lines('{source_name=~".+"} |= "GET"', limit=2)[-1] == line(APP_EVENTS[0])


def test_the_range_includes_its_start_and_excludes_its_end(logql: LogqlEngine) -> None:
    first_us, second_us = START_US, START_US + 60_000_000
    query = '{source_name="edge_logs"}'
    assert logql.lines(query, start_us=first_us, end_us=second_us) == ["GET /a 200"]
    assert logql.lines(query, start_us=first_us + 1, end_us=second_us + 1) == ["GET /b 404"]
