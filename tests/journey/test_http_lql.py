"""LQL over HTTP: the parameter `lql` of the built-in endpoints."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.journey.conftest import Service, start_service


def events() -> list[dict[str, object]]:
    """Return events that are one minute apart. The newest has the current time."""
    now = datetime.now(UTC).replace(microsecond=0)
    return [
        {
            "id": f"e{number}",
            "timestamp": (now - timedelta(minutes=number)).isoformat(),
            "event_message": f"GET /rest/v1/{number}",
            "project": "default",
            "metadata": {
                "request": {"path": f"/rest/v1/{number}"},
                "response": {"status_code": 200 if number % 3 else 503},
            },
        }
        for number in range(9)
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("lql")
    started = start_service(folder / "data")
    assert started.send("cloudflare.logs.prod", events()).status_code == 200
    yield started
    started.stop()


def query(service: Service, lql: str, **parameters: str) -> Any:
    return service.query("logs.all", project="default", lql=lql, **parameters)


def refusal(service: Service, lql: str, **parameters: str) -> Any:
    answer = query(service, lql, **parameters)
    assert answer.status_code == 400
    return answer.json()["error"]


def test_filters_apply_to_paths_of_the_metadata(service: Service) -> None:
    rows = query(service, "f:edge_logs m.response.status_code:>=500").json()["result"]
    assert [row["id"] for row in rows] == ["e0", "e3", "e6"]
    assert list(rows[0]) == ["id", "timestamp", "event_message"]


def test_a_chart_counts_by_time_and_notes_filled_gaps(service: Service) -> None:
    answer = query(service, "f:edge_logs m.response.status_code:>=500 t:last@10m c:count(*) c:group_by(t::minute)")
    rows = answer.json()["result"]
    assert list(rows[0]) == ["timestamp", "count"]
    assert len(rows) == 11
    assert sum(row["count"] for row in rows) == 3
    assert "filled" in answer.headers["cordwood-notice"]


def test_lql_is_accepted_in_the_body(service: Service) -> None:
    body = {"project": "default", "lql": "f:edge_logs s:id limit:1"}
    answer = service.client.post("/api/endpoints/query/logs.all", json=body)
    assert answer.json() == {"result": [{"id": "e0"}]}


def test_without_a_from_clause_the_sub_queries_are_listed(service: Service) -> None:
    assert "edge_logs, postgres_logs" in refusal(service, "error")["message"]


def test_an_unknown_field_is_refused_with_its_position(service: Service) -> None:
    error = refusal(service, "f:edge_logs project:default")
    assert (error["status"], error["line"], error["column"]) == ("query.unknown-name", 1, 13)


def test_an_invalid_pattern_is_refused_with_its_position(service: Service) -> None:
    error = refusal(service, "f:edge_logs m.request.path:~[")
    assert (error["status"], error["line"], error["column"]) == ("query.value", 1, 13)


def test_sql_and_lql_together_are_refused(service: Service) -> None:
    assert refusal(service, "f:edge_logs", sql="select 1")["status"] == "request.bad-parameter"


def test_the_columns_of_the_chart_endpoint_can_be_filtered(service: Service) -> None:
    rows = service.rows(
        "usage.api-counts", interval="hourly", project="default", lql="f:chart_counts total_rest_requests:>=0 limit:5"
    )
    assert isinstance(rows, list)
