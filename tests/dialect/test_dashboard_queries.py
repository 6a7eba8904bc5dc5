"""The calls of dashboards to `logs.all.otel`, over HTTP, on both engines."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from cordwood.app.in_process import InProcessApp, open_service
from cordwood.settings.settings import Serve, Settings
from tests.chdb_databases import fresh_database
from tests.dialect.logs_world import SOURCES, STATUSES_SENT, events_of

ADDRESS = "/api/endpoints/query/logs.all.otel"
# Failures among the events of the project, newest first.
STATUSES = [STATUSES_SENT[at % 8] for at in range(40) if at % 5 != 4 and STATUSES_SENT[at % 8] >= 500]
Answer = tuple[int, Any]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def inside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    engine = fresh_database() if request.param == "clickhouse" else "duckdb"
    folder = tmp_path_factory.mktemp("calls")
    streams = folder / "streams.toml"
    streams.write_text('[[stream]]\nname = "my.app"\n')
    serve = msgspec.structs.replace(Serve(), data_dir=str(folder / "data"), streams=str(streams))
    with open_service(Settings(engine=engine, serve=serve)) as house:
        for source, (stream, _) in SOURCES.items():
            body = json.dumps(events_of(source)).encode()
            path = f"/api/logs?{urlencode({'source_name': stream})}"
            assert house.send("POST", path, body, {"content-type": "application/json"})[0] == 200
        yield house


def get(inside: InProcessApp, **parameters: str) -> Answer:
    status, _, told = inside.send("GET", f"{ADDRESS}?{urlencode(parameters)}", b"", {})
    return status, json.loads(told)


def rows(inside: InProcessApp, sql: str, **parameters: str) -> list[dict[str, Any]]:
    status, told = get(inside, project="default", sql=sql, **parameters)
    assert status == 200, told
    return list(told["result"])


def refusal(inside: InProcessApp, **parameters: str) -> tuple[int, str, str]:
    status, told = get(inside, **{"project": "default", **parameters})
    return status, told["error"]["status"], told["error"]["message"]


def test_a_page_of_logs(inside: InProcessApp) -> None:
    sql = (
        "SELECT id, timestamp, event_message, log_attributes['request.method'] AS method,"
        " toInt32OrZero(log_attributes['response.status_code']) AS status FROM logs"
        " WHERE source = 'edge_logs' AND status >= 500 ORDER BY timestamp DESC LIMIT 100"
    )
    found = rows(inside, sql, key="logs-page")
    assert [row["status"] for row in found] == STATUSES
    assert found[0]["timestamp"] == "2026-06-22T11:24:54.784995"
    assert list(found[0]) == ["id", "timestamp", "event_message", "method", "status"]


def test_the_next_page_begins_where_the_last_one_ended(inside: InProcessApp) -> None:
    shown = "SELECT id, timestamp, toUnixTimestamp64Micro(timestamp) AS us FROM logs"
    order = "ORDER BY timestamp DESC, id DESC LIMIT 7"
    first = rows(inside, f"{shown} {order}")
    last = first[-1]
    moment = f"fromUnixTimestamp64Micro({last['us']})"
    where = f"(timestamp < {moment} OR (timestamp = {moment} AND toString(id) < '{last['id']}'))"
    both = rows(inside, f"{shown} {order.replace('7', '14')}")
    assert rows(inside, f"{shown} WHERE {where} {order}") == both[7:]
    assert both[:7] == first


def test_whole_rows_have_a_plain_object_of_texts(inside: InProcessApp) -> None:
    sql = "SELECT id, source, severity_text, log_attributes FROM logs WHERE source = 'auth_logs' ORDER BY id LIMIT 1"
    assert rows(inside, sql) == [
        {
            "id": "00000003-0000-4000-8000-000000000000",
            "source": "auth_logs",
            "severity_text": "NOTICE",
            "log_attributes": {
                "duration": "0",
                "level": "info",
                "odd": "0",
                "path": "/token",
                "project": "default",
                "severityText": "notice",
                "status": "200",
            },
        }
    ]


def test_pages_of_whole_rows_are_those_of_one_answer(inside: InProcessApp) -> None:
    sql = "SELECT log_attributes, timestamp, toStartOfHour(timestamp) AS hour, id FROM logs ORDER BY timestamp DESC"
    parameters = {"project": "default", "sql": sql}
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {"page_size": "50"}
    while cursor:
        status, headers, told = inside.send("GET", f"{ADDRESS}?{urlencode({**parameters, **cursor})}", b"", {})
        assert status == 200, told
        found += json.loads(told)["result"]
        following = headers.get("cordwood-next")
        cursor = {"page_size": "50", "cursor": following} if following else {}
    # Several events have the same time.
    assert sorted(found, key=str) == sorted(rows(inside, sql), key=str)
    assert len(found) == 192


def test_without_a_query_the_newest_rows_of_all_sources_come(inside: InProcessApp) -> None:
    status, told = get(inside, project="default")
    assert status == 200
    assert len(told["result"]) == 100
    assert {row["source"] for row in told["result"]} == set(SOURCES)
    times = [row["timestamp"] for row in told["result"]]
    assert times == sorted(times, reverse=True)


def test_bounds_apply_inside_the_table(inside: InProcessApp) -> None:
    newest = rows(inside, "SELECT timestamp FROM logs WHERE source = 'edge_logs' ORDER BY timestamp DESC LIMIT 3")
    bounds = {"iso_timestamp_start": f"{newest[2]['timestamp']}Z", "iso_timestamp_end": f"{newest[0]['timestamp']}Z"}
    found = rows(inside, "SELECT count() AS n FROM logs WHERE source = 'edge_logs'", **bounds)
    assert found == [{"n": 2}]
    assert rows(inside, "SELECT count() AS n FROM logs", iso_timestamp_start="", iso_timestamp_end="") == [{"n": 192}]


def test_a_stream_of_a_users_own_is_a_source(inside: InProcessApp) -> None:
    assert rows(inside, "SELECT count() AS n FROM logs WHERE source = 'my.app'") == [{"n": 32}]
    status, told = get(
        inside, project="other", sql="SELECT source, count() AS n FROM logs GROUP BY source ORDER BY source"
    )
    assert status == 200
    assert {row["n"] for row in told["result"]} == {8}


def test_a_body_carries_what_an_address_carries(inside: InProcessApp) -> None:
    body = {"project": "default", "sql": "SELECT count() AS n FROM logs"}
    headers = {"content-type": "application/json"}
    status, _, told = inside.send("POST", ADDRESS, json.dumps(body).encode(), headers)
    assert (status, json.loads(told)) == (200, {"result": [{"n": 192}]})


def test_an_answer_has_the_numbers_of_json(inside: InProcessApp) -> None:
    sql = "SELECT count() AS n, n / 0 AS inf, avgIf(1, source = 'x') AS nan, n > 1 AS many, NULL AS nothing, [1, 2] AS list FROM logs"
    assert rows(inside, sql) == [{"n": 192, "inf": None, "nan": None, "many": 1, "nothing": None, "list": [1, 2]}]


def test_what_cannot_be_asked_is_refused_at_its_place(inside: InProcessApp) -> None:
    assert refusal(inside, sql="SELECT * FROM logs") == (422, "query.refused", '"*" is refused.')
    assert refusal(inside, sql="SELECT id FROM edge_logs")[:2] == (422, "query.refused")
    assert refusal(inside, sql="SELECT nope FROM logs") == (400, "query.unknown-name", 'There is no column "nope".')
    assert refusal(inside, sql="SELECT id FROM")[:2] == (400, "query.syntax")
    assert refusal(inside, lql="error")[:2] == (400, "query.unsupported")
    status, told = get(inside, sql="SELECT 1")
    assert (status, told["error"]["status"]) == (400, "request.bad-parameter")
    _, told = get(inside, project="default", sql="SELECT id,\n  log_attributes['a'] > 5 FROM logs")
    assert told["error"]["line"] == 2
    assert "toInt64OrZero" in told["error"]["hint"]


def test_a_key_that_is_pinned_reads_its_project(inside: InProcessApp) -> None:
    body = json.dumps({"scopes": "query", "pins": {"project": "other"}}).encode()
    _, _, told = inside.send("POST", "/api/access-tokens", body, {"content-type": "application/json"})
    query = urlencode({"sql": "SELECT DISTINCT project FROM logs WHERE source = 'edge_logs'"})
    status, _, answer = inside.send("GET", f"{ADDRESS}?{query}", b"", {"x-api-key": json.loads(told)["token"]})
    assert (status, json.loads(answer)) == (200, {"result": [{"project": "other"}]})


def test_its_table_is_offered_to_who_writes_a_query(inside: InProcessApp) -> None:
    status, _, told = inside.send("GET", "/api/endpoints/logs.all.otel/scope", b"", {})
    assert status == 200
    (table,) = json.loads(told)["sub_queries"]
    assert table["name"] == "logs"
    assert [column["name"] for column in table["columns"]][-1] == "log_attributes"
