"""`cordwood serve` with a ClickHouse server: unreachable or shared servers, and migration from and to DuckDB."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.chdb_databases import fresh_database
from tests.clickhouse_server import ClickHouseServer, serve_clickhouse
from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import cordwood

EDGE_STREAM, POSTGRES_STREAM = "cloudflare.logs.prod", "postgres.logs"
MAX_WAIT_SECONDS = 30


@pytest.fixture
def server() -> Iterator[ClickHouseServer]:
    with serve_clickhouse(fresh_database()) as server:
        yield server


def engine_setting(server: ClickHouseServer) -> dict[str, str]:
    return {"CORDWOOD_ENGINE": server.address()}


def events(*stored_ids: str, path: str = "/rest/v1") -> list[dict[str, object]]:
    return [
        {"id": id_, "event_message": f"message {id_}", "project": "acme", "metadata": {"request": {"path": path}}}
        for id_ in stored_ids
    ]


def stored_ids(service: Service, stream: str = "edge_logs") -> list[object] | int:
    """Return the ids of a stream's events, or the status if the query is refused."""
    sql = f"select id from {stream} order by id"
    answer = service.client.get(
        "/api/endpoints/query/logs.all", params={"project": "acme", "sql": sql}, headers=NO_CACHE_HEADERS
    )
    return [row["id"] for row in answer.json()["result"]] if answer.status_code == 200 else answer.status_code


NO_CACHE_HEADERS = {"Cache-Control": "no-cache"}


def wait_for(read_value: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while read_value() != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert read_value() == expected


def test_the_service_starts_and_accepts_events_while_clickhouse_is_unreachable(
    start: Start, server: ClickHouseServer
) -> None:
    server.stop_listening()
    service = start(env=engine_setting(server))
    assert service.client.get("/readyz").status_code == 200
    assert service.send(EDGE_STREAM, events("1", "2")).status_code == 200
    refused = service.query("logs.all", project="acme")
    assert refused.status_code == 503
    assert "ClickHouse cannot be reached" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert service.client.get("/metrics").status_code == 200
    server.start_listening()
    wait_for(lambda: stored_ids(service), ["1", "2"])
    assert service.send(EDGE_STREAM, events("2", "3")).status_code == 200
    wait_for(lambda: stored_ids(service), ["1", "2", "3"])
    error = service.stop_and_read()
    assert "Events are kept on disk until it can be" in error
    assert "ClickHouse is reachable again" in error
    assert "open sesame" not in error
    assert "Driver" not in error


def test_accepted_events_survive_a_kill_before_clickhouse_was_reachable(start: Start, server: ClickHouseServer) -> None:
    server.stop_listening()
    service = start(env=engine_setting(server))
    service.send(EDGE_STREAM, events("1"))
    service.kill()
    server.start_listening()
    restarted = start(env=engine_setting(server))
    wait_for(lambda: stored_ids(restarted), ["1"])


def test_a_wrong_password_for_clickhouse_stops_the_start(start: Start, server: ClickHouseServer) -> None:
    with pytest.raises(AssertionError, match="refuses the service's login") as error:
        start(env={"CORDWOOD_ENGINE": server.address("wrong")})
    assert "wrong" not in str(error.value).replace("wrong password", "")


@pytest.mark.parametrize("address", ["/api/status", "/api/sources"])
def test_a_slow_clickhouse_does_not_block_other_requests(start: Start, server: ClickHouseServer, address: str) -> None:
    service = start(env=engine_setting(server))
    # Now the tables exist, so that the next statements that the server receives are those of the tested request.
    assert service.send(EDGE_STREAM, events("1")).status_code == 200
    wait_for(lambda: stored_ids(service), ["1"])
    server.control.statements.clear()
    server.control.seconds_late = 30.0
    with ThreadPoolExecutor() as pool:
        future = pool.submit(service.client.get, address)
        wait_for(lambda: any("count()" in sql for sql, _ in server.control.statements), expected=True)
        assert service.client.get("/livez", timeout=5).status_code == 200
        assert not future.done()
        server.control.seconds_late = 0.0
        assert future.result().status_code == 200


def test_a_folder_that_cannot_be_created_stops_the_start(start: Start) -> None:
    with pytest.raises(AssertionError, match="/dev/null/events cannot be made: Not a directory"):
        start(env={"CORDWOOD_ENGINE": "chdb:///dev/null/events"})


def test_two_services_share_a_clickhouse_server(start: Start, server: ClickHouseServer, tmp_path: Path) -> None:
    first_service, second_service = (
        start(env=engine_setting(server), data_dir=tmp_path / name) for name in ("one", "other")
    )
    assert first_service.send(EDGE_STREAM, events("1", "2")).status_code == 200
    assert second_service.send(EDGE_STREAM, events("2", "3", path="/auth/v1")).status_code == 200
    assert first_service.send(EDGE_STREAM, events("2", "3", path="/auth/v1")).status_code == 200
    wait_for(lambda: stored_ids(first_service), ["1", "2", "3"])
    wait_for(lambda: stored_ids(second_service), ["1", "2", "3"])
    # Each service learns the shapes that the other service has stored on the server.
    sql = "select r.path, count(*) as n from edge_logs cross join unnest(metadata) m cross join unnest(m.request) r group by 1 order by 1"
    expected = [{"path": "/auth/v1", "n": 1}, {"path": "/rest/v1", "n": 2}]
    for service in (first_service, second_service):
        wait_for(partial(service.rows, "logs.all", project="acme", sql=sql), expected)


def test_events_are_moved_to_clickhouse_and_back(start: Start, server: ClickHouseServer, tmp_path: Path) -> None:
    """Follow the steps of docs/guide/clickhouse.md."""
    duckdb = start(data_dir=tmp_path / "duckdb")
    duckdb.send(EDGE_STREAM, events("1", "2"))
    duckdb.send(
        POSTGRES_STREAM, [{"id": "p", "event_message": "é", "project": "acme", "metadata": {"a": [1, {"b": None}]}}]
    )
    for stream in (EDGE_STREAM, POSTGRES_STREAM):
        _run_cordwood("export", str(tmp_path / f"{stream}.parquet"), "--stream", stream, *_connection_options(duckdb))

    clickhouse = start(env=engine_setting(server), data_dir=tmp_path / "clickhouse")
    for _ in range(2):
        for stream in (EDGE_STREAM, POSTGRES_STREAM):
            _run_cordwood(
                "import", str(tmp_path / f"{stream}.parquet"), "--stream", stream, *_connection_options(clickhouse)
            )
    assert stored_ids(clickhouse) == stored_ids(duckdb) == ["1", "2"]
    for sub_query in ("edge_logs", "postgres_logs"):
        parameters = {"project": "acme", "sql": f"select * from {sub_query} order by id"}
        assert clickhouse.rows("logs.all", **parameters) == duckdb.rows("logs.all", **parameters)

    clickhouse.send(EDGE_STREAM, events("3"))
    _run_cordwood("export", str(tmp_path / "back.parquet"), "--stream", EDGE_STREAM, *_connection_options(clickhouse))
    _run_cordwood("import", str(tmp_path / "back.parquet"), "--stream", EDGE_STREAM, *_connection_options(duckdb))
    assert stored_ids(duckdb) == ["1", "2", "3"]


def _connection_options(service: Service) -> tuple[str, ...]:
    return ("--url", service.url, "--key", PRIVATE)


def _run_cordwood(*arguments: str) -> None:
    result = cordwood(*arguments)
    assert result.returncode == 0, result.stderr


def test_followed_queries_are_not_offered_on_clickhouse(start: Start, server: ClickHouseServer) -> None:
    service = start(env=engine_setting(server))
    parameters = {"project": "acme", "lql": "f:edge_logs"}
    refused = service.client.get("/api/endpoints/tail/logs.all", params=parameters)
    assert (refused.status_code, refused.json()["error"]["status"]) == (501, "request.not-offered")
