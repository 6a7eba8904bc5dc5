"""Cached answers are returned only to keys that may read them."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import Service, start_service
from tests.journey.test_http_queries import checked_error

CACHED_ENDPOINT = """/*
name = "kept"
cache = "900s"
[parameters.project]
required = true
*/
with logs as (select t.event_message from `postgres.logs` as t where t.project = @project) select event_message from logs
"""
PUBLIC_ENDPOINT = """/*
name = "open"
id = "11111111-2222-4333-8444-555555555555"
cache = "900s"
auth = false
*/
with numbers as (select 1 as one) select one from numbers
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("kept")
    (folder / "endpoints").mkdir()
    (folder / "endpoints" / "kept.sql").write_text(CACHED_ENDPOINT)
    (folder / "endpoints" / "open.sql").write_text(PUBLIC_ENDPOINT)
    running = start_service(folder / "data", "--endpoints", str(folder / "endpoints"))
    for project in ("default", "other"):
        running.send("postgres.logs", {"event_message": f"{project} from 203.0.113.7", "project": project})
    yield running
    running.stop()


def create_key(service: Service, **terms: object) -> tuple[str, str]:
    """Create a key, and return its secret and its id."""
    created = service.client.post("/api/access-tokens", json=terms)
    assert created.status_code == 201, created.text
    return created.json()["token"], str(created.json()["id"])


def query(service: Service, key: str, project: str = "default", **headers: str) -> httpx.Response:
    url = f"{service.url}/api/endpoints/query/kept"
    return httpx.get(url, params={"project": project}, headers={"X-API-KEY": key, **headers})


def test_a_revoked_key_gets_no_cached_answer(service: Service) -> None:
    key, key_id = create_key(service, scopes="query")
    answers = [query(service, key) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert answers[2].headers["cache-status"].startswith("cordwood; hit")
    assert service.client.delete(f"/api/access-tokens/{key_id}").status_code == 204
    checked_error(query(service, key), 401, "request.bad-key")


def test_a_pinned_key_gets_only_answers_for_its_project(service: Service) -> None:
    key, _ = create_key(service, scopes="query", pins={"project": "default"})
    for _ in range(3):
        assert query(service, "journey-private", "other").json() == {
            "result": [{"event_message": "other from 203.0.113.7"}]
        }
        checked_error(query(service, key, "other"), 403, "request.forbidden")
        assert query(service, key).json() == {"result": [{"event_message": "default from 203.0.113.7"}]}


def test_redacted_and_plain_answers_are_cached_separately(service: Service) -> None:
    key, _ = create_key(service, scopes="query", redact=True)
    for _ in range(3):
        assert "203.0.113.7" in query(service, "journey-private").text
        assert "203.0.113.7" not in query(service, "journey-private", **{"LF-ENDPOINT-REDACT-PII": "true"}).text
        assert "203.0.113.7" not in query(service, key).text
        assert "203.0.113.7" not in query(service, key, **{"LF-ENDPOINT-REDACT-PII": "false"}).text


def test_a_key_that_may_only_send_events_gets_no_cached_answer(service: Service) -> None:
    key, _ = create_key(service, scopes="ingest")
    query(service, "journey-private")
    for _ in range(2):
        checked_error(query(service, key), 403, "request.forbidden")


def test_a_public_endpoint_needs_no_key_by_its_uuid_but_one_by_its_name(service: Service) -> None:
    by_uuid = f"{service.url}/api/endpoints/query/11111111-2222-4333-8444-555555555555"
    for headers in ({}, {"X-API-KEY": "no key of ours"}, {"X-API-KEY": "journey-private"}, {}):
        assert httpx.get(by_uuid, headers=headers).json() == {"result": [{"one": 1}]}
        checked_error(httpx.get(f"{service.url}/api/endpoints/query/open"), 401, "request.no-key")
