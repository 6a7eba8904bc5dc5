"""Queries of dashboards to `logs.all.otel` over HTTP, on both engines."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import ServeSettings, Settings
from tests.chdb_databases import fresh_database
from tests.dialect.log_events import SENT_STATUSES, SOURCES, events_of

QUERY_ADDRESS = "/api/endpoints/query/logs.all.otel"
# The statuses of the project's events that are server errors, newest first.
ERROR_STATUSES = [SENT_STATUSES[at % 8] for at in range(40) if at % 5 != 4 and SENT_STATUSES[at % 8] >= 500]
Answer = tuple[int, Any]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    engine = fresh_database() if request.param == "clickhouse" else "duckdb"
    folder = tmp_path_factory.mktemp("calls")
    streams = folder / "streams.toml"
    streams.write_text('[[stream]]\nname = "my.app"\n')
    serve = msgspec.structs.replace(ServeSettings(), data_dir=str(folder / "data"), streams=str(streams))
    with open_in_process_app(Settings(engine=engine, serve=serve)) as opened:
        for source, (stream, _) in SOURCES.items():
            body = json.dumps(events_of(source)).encode()
            path = f"/api/logs?{urlencode({'source_name': stream})}"
            assert opened.send("POST", path, body, {"content-type": "application/json"})[0] == 200
        yield opened


def get(app: InProcessApp, **parameters: str) -> Answer:
    status, _, body_text = app.send("GET", f"{QUERY_ADDRESS}?{urlencode(parameters)}", b"", {})
    return status, json.loads(body_text)


def rows(app: InProcessApp, sql: str, **parameters: str) -> list[dict[str, Any]]:
    status, body_text = get(app, project="default", sql=sql, **parameters)
    assert status == 200, body_text
    return list(body_text["result"])


def refusal(app: InProcessApp, **parameters: str) -> tuple[int, str, str]:
    status, body_text = get(app, **{"project": "default", **parameters})
    return status, body_text["error"]["status"], body_text["error"]["message"]


def test_a_page_of_logs_has_the_newest_server_errors(app: InProcessApp) -> None:
    sql = (
        "SELECT id, timestamp, event_message, log_attributes['request.method'] AS method,"
        " toInt32OrZero(log_attributes['response.status_code']) AS status FROM logs"
        " WHERE source = 'edge_logs' AND status >= 500 ORDER BY timestamp DESC LIMIT 100"
    )
    result_rows = rows(app, sql, key="logs-page")
    assert [row["status"] for row in result_rows] == ERROR_STATUSES
    assert result_rows[0]["timestamp"] == "2026-06-22T11:24:54.784995"
    assert list(result_rows[0]) == ["id", "timestamp", "event_message", "method", "status"]


def test_the_next_page_begins_where_the_last_one_ended(app: InProcessApp) -> None:
    page_rows = "SELECT id, timestamp, toUnixTimestamp64Micro(timestamp) AS us FROM logs"
    order = "ORDER BY timestamp DESC, id DESC LIMIT 7"
    first = rows(app, f"{page_rows} {order}")
    last = first[-1]
    moment = f"fromUnixTimestamp64Micro({last['us']})"
    where = f"(timestamp < {moment} OR (timestamp = {moment} AND toString(id) < '{last['id']}'))"
    page_boundary = rows(app, f"{page_rows} {order.replace('7', '14')}")
    assert rows(app, f"{page_rows} WHERE {where} {order}") == page_boundary[7:]
    assert page_boundary[:7] == first


def test_the_attributes_of_a_row_are_an_object_of_strings(app: InProcessApp) -> None:
    sql = "SELECT id, source, severity_text, log_attributes FROM logs WHERE source = 'auth_logs' ORDER BY id LIMIT 1"
    assert rows(app, sql) == [
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


def test_pages_have_the_rows_of_one_answer(app: InProcessApp) -> None:
    sql = "SELECT log_attributes, timestamp, toStartOfHour(timestamp) AS hour, id FROM logs ORDER BY timestamp DESC"
    parameters = {"project": "default", "sql": sql}
    result_rows: list[dict[str, Any]] = []
    cursor: dict[str, str] = {"page_size": "50"}
    while cursor:
        status, headers, body_text = app.send("GET", f"{QUERY_ADDRESS}?{urlencode({**parameters, **cursor})}", b"", {})
        assert status == 200, body_text
        result_rows += json.loads(body_text)["result"]
        following = headers.get("cordwood-next")
        cursor = {"page_size": "50", "cursor": following} if following else {}
    # Several events have the same time, so the order of their rows may differ.
    assert sorted(result_rows, key=str) == sorted(rows(app, sql), key=str)
    assert len(result_rows) == 192


def test_without_a_query_the_newest_rows_of_all_sources_are_returned(app: InProcessApp) -> None:
    status, body_text = get(app, project="default")
    assert status == 200
    assert len(body_text["result"]) == 100
    assert {row["source"] for row in body_text["result"]} == set(SOURCES)
    times = [row["timestamp"] for row in body_text["result"]]
    assert times == sorted(times, reverse=True)


def test_time_bounds_apply_inside_the_table(app: InProcessApp) -> None:
    newest = rows(app, "SELECT timestamp FROM logs WHERE source = 'edge_logs' ORDER BY timestamp DESC LIMIT 3")
    bounds = {"iso_timestamp_start": f"{newest[2]['timestamp']}Z", "iso_timestamp_end": f"{newest[0]['timestamp']}Z"}
    result_rows = rows(app, "SELECT count() AS n FROM logs WHERE source = 'edge_logs'", **bounds)
    assert result_rows == [{"n": 2}]
    assert rows(app, "SELECT count() AS n FROM logs", iso_timestamp_start="", iso_timestamp_end="") == [{"n": 192}]


def test_a_stream_defined_in_the_streams_file_is_a_source(app: InProcessApp) -> None:
    assert rows(app, "SELECT count() AS n FROM logs WHERE source = 'my.app'") == [{"n": 32}]
    status, body_text = get(
        app, project="other", sql="SELECT source, count() AS n FROM logs GROUP BY source ORDER BY source"
    )
    assert status == 200
    assert {row["n"] for row in body_text["result"]} == {8}


def test_a_query_is_accepted_in_the_body(app: InProcessApp) -> None:
    body = {"project": "default", "sql": "SELECT count() AS n FROM logs"}
    headers = {"content-type": "application/json"}
    status, _, body_text = app.send("POST", QUERY_ADDRESS, json.dumps(body).encode(), headers)
    assert (status, json.loads(body_text)) == (200, {"result": [{"n": 192}]})


def test_infinity_nan_and_booleans_are_answered_as_json(app: InProcessApp) -> None:
    sql = "SELECT count() AS n, n / 0 AS inf, avgIf(1, source = 'x') AS nan, n > 1 AS many, NULL AS nothing, [1, 2] AS list FROM logs"
    assert rows(app, sql) == [{"n": 192, "inf": None, "nan": None, "many": 1, "nothing": None, "list": [1, 2]}]


def test_unsupported_queries_are_refused_with_a_position(app: InProcessApp) -> None:
    assert refusal(app, sql="SELECT * FROM logs") == (422, "query.refused", '"*" is refused.')
    assert refusal(app, sql="SELECT id FROM edge_logs")[:2] == (422, "query.refused")
    assert refusal(app, sql="SELECT nope FROM logs") == (400, "query.unknown-name", 'There is no column "nope".')
    assert refusal(app, sql="SELECT id FROM")[:2] == (400, "query.syntax")
    assert refusal(app, lql="error")[:2] == (400, "query.unsupported")
    status, body_text = get(app, sql="SELECT 1")
    assert (status, body_text["error"]["status"]) == (400, "request.bad-parameter")
    _, body_text = get(app, project="default", sql="SELECT id,\n  log_attributes['a'] > 5 FROM logs")
    assert body_text["error"]["line"] == 2
    assert "toInt64OrZero" in body_text["error"]["hint"]


def test_a_pinned_key_reads_only_its_project(app: InProcessApp) -> None:
    body = json.dumps({"scopes": "query", "pins": {"project": "other"}}).encode()
    _, _, body_text = app.send("POST", "/api/access-tokens", body, {"content-type": "application/json"})
    query = urlencode({"sql": "SELECT DISTINCT project FROM logs WHERE source = 'edge_logs'"})
    status, _, answer = app.send("GET", f"{QUERY_ADDRESS}?{query}", b"", {"x-api-key": json.loads(body_text)["token"]})
    assert (status, json.loads(answer)) == (200, {"result": [{"project": "other"}]})


def test_the_scope_lists_the_table_and_its_columns(app: InProcessApp) -> None:
    status, _, body_text = app.send("GET", "/api/endpoints/logs.all.otel/scope", b"", {})
    assert status == 200
    (table,) = json.loads(body_text)["sub_queries"]
    assert table["name"] == "logs"
    assert [column["name"] for column in table["columns"]][-1] == "log_attributes"
