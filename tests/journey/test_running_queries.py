"""The list of running queries: which queries a key sees, their progress, and their removal at their end."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from bench.process_family import descendants
from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start, create_key, start_service
from tests.journey.test_engine_process import UNINTERRUPTIBLE_QUERY
from tests.waiting import until, until_flushed

STREAM = "postgres.logs"
EVENT_COUNT = 20_000
# A query that runs for minutes unless it is stopped.
SLOW_QUERY = (
    "select count(*) as n from postgres_logs a cross join postgres_logs b"
    " cross join (select event_message from postgres_logs limit 1000) c"
    " where strpos(concat(a.event_message, b.event_message, c.event_message), 'in no message') > 0"
)
# A query that runs for about twenty seconds. DuckDB processes one block of the events of `a` after the other.
QUERY_WITH_PROGRESS = (
    "select count(*) as n from postgres_logs a cross join (select event_message from postgres_logs limit 3000) b"
    " where strpos(concat(a.event_message, b.event_message, a.event_message, b.event_message, a.event_message,"
    " b.event_message, a.event_message, b.event_message), 'in no message') > 0"
)
_numbers = count(1)


def store_events(service: Service) -> Service:
    for first in range(0, EVENT_COUNT, 5_000):
        events = [
            {"project": "p", "event_message": f"{number:06} {'ab' * 40}"} for number in range(first, first + 5_000)
        ]
        assert service.send(STREAM, events).status_code == 200
    return service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = store_events(start_service(tmp_path_factory.mktemp("running") / "data"))
    yield running
    if running.process.poll() is None:
        running.stop()


def listed_queries(service: Service, key: str = PRIVATE) -> Mapping[str, dict[str, Any]]:
    answer = httpx.get(f"{service.url}/api/queries", headers={"X-API-KEY": key})
    assert answer.status_code == 200, answer.text
    return {query["id"]: query for query in answer.json()["queries"]}


@contextmanager
def run_slow_query(service: Service, request_id: str, key: str = PRIVATE, query: str = SLOW_QUERY) -> Iterator[str]:
    """Send a slow query that is listed under this id. At the end of the block, disconnect, which stops the query."""
    # The number makes each query distinct, because equal queries would share a run.
    body = {"project": "p", "sql": f"{query} and {next(_numbers)} > 0"}
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"))
    headers = {"X-API-KEY": key, "X-Request-Id": request_id, "Content-Type": "application/json"}
    connection.request("POST", "/api/endpoints/query/logs.all", json.dumps(body), headers)
    try:
        until(lambda: request_id in listed_queries(service))
        yield request_id
    finally:
        connection.close()


def test_a_key_sees_its_own_queries_and_an_unrestricted_private_key_all(service: Service) -> None:
    own_only = [
        create_key(service, "query"),
        create_key(service, "query:endpoint:logs.all", pins={"project": "p"}),
        create_key(service, "private", pins={"project": "p"}),
    ]
    with ExitStack() as queries:
        ids = [queries.enter_context(run_slow_query(service, f"own-{at}", key)) for at, key in enumerate(own_only)]
        assert [set(listed_queries(service, key)) for key in own_only] == [{event_id} for event_id in ids]
        assert set(listed_queries(service, create_key(service, "query"))) == set()
        assert set(listed_queries(service, create_key(service, "private", redact=True))) == set()
        all_queries = listed_queries(service)
        assert list(all_queries) == ids
        first_query = all_queries[ids[0]]
        assert set(first_query) == {"id", "endpoint", "seconds", "rows_read", "rows_total", "part"}
        assert first_query["endpoint"] == "logs.all"
        assert first_query["seconds"] > all_queries[ids[1]]["seconds"] > 0
    until(lambda: not listed_queries(service))


def test_a_running_query_has_its_progress(service: Service) -> None:
    # The events are flushed first, because DuckDB reports no progress for events that are all in memory.
    until_flushed(service.data_dir)
    with run_slow_query(service, "told", query=QUERY_WITH_PROGRESS) as request_id:
        until(lambda: listed_queries(service)[request_id]["part"] is not None, 60)
        first_query = listed_queries(service)[request_id]
        assert 0 < first_query["part"] <= 1
        # DuckDB reports no numbers of rows.
        assert (first_query["rows_read"], first_query["rows_total"]) == (None, None)
    until(lambda: not listed_queries(service))


def test_a_query_that_is_killed_with_the_engine_s_process_disappears(start: Start) -> None:
    service = store_events(start(env={"CORDWOOD_LIMITS_QUERY_TIME": "2s"}))
    engine = descendants(service.process.pid)[-1]
    with run_slow_query(service, "killed", query=UNINTERRUPTIBLE_QUERY):
        until(lambda: not listed_queries(service))
    until(lambda: descendants(service.process.pid)[-1] != engine)


def test_keys_that_may_not_query_are_refused_and_others_are_counted(service: Service) -> None:
    assert httpx.get(f"{service.url}/api/queries").status_code == 401
    assert httpx.get(f"{service.url}/api/queries", headers={"X-API-KEY": PUBLIC}).status_code == 403
    counted = create_key(service, "query", rate="1/h")
    headers = {"X-API-KEY": counted}
    assert [httpx.get(f"{service.url}/api/queries", headers=headers).status_code for _ in range(2)] == [200, 429]
