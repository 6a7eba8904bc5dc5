"""Health checks, readiness, metrics and the request log."""

import json

import httpx
import pytest

from tests.journey.conftest import Service


@pytest.mark.parametrize("path", ["/health", "/ready", "/livez", "/readyz", "/metrics"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_probes_need_no_key(service: Service, path: str, method: str) -> None:
    assert httpx.request(method, service.url + path).status_code == 200


def test_health_has_the_status_that_containers_wait_for(service: Service) -> None:
    assert httpx.get(f"{service.url}/health").json()["status"] == "ok"


def test_metrics_count_queries_events_and_requests(service: Service) -> None:
    service.send("postgres.logs", {"event_message": "x", "project": "counted"})
    for _ in range(2):
        service.query("usage.api-counts", project="counted", interval="daily")
    text = httpx.get(f"{service.url}/metrics").text
    assert 'cordwood_cache_requests_total{endpoint="usage.api-counts",outcome="miss"} 1' in text
    assert 'cordwood_cache_requests_total{endpoint="usage.api-counts",outcome="hit"} 1' in text
    assert 'cordwood_engine_queries_total{endpoint="usage.api-counts",engine="duckdb",outcome="ok"} 1' in text
    assert 'cordwood_ingest_events_total{stream="postgres.logs",outcome="accepted"} 1' in text
    assert 'cordwood_requests_seconds_count{route="query",status="200"} 2' in text
    assert "cordwood_memory_bytes " in text
    assert "cordwood_memory_ceiling_bytes " in text
    assert 'cordwood_build_info{version="' in text


def test_a_request_is_logged_with_its_id_and_without_its_key(service: Service) -> None:
    request_id = {"X-Request-Id": "find-me", "X-API-KEY": "journey-private"}
    url = f"{service.url}/api/endpoints/query/logs.all?project=default&api_key=journey-private"
    httpx.get(url, headers=request_id)
    output = service.stop_and_read()
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    [line] = [line for line in lines if line.get("request_id") == "find-me"]
    assert (line["event"], line["level"], line["route"], line["status"]) == ("request", "info", "query", 200)
    assert line["endpoint"] == "logs.all"
    assert "journey-private" not in output
