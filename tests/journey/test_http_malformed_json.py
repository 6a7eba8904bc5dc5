"""Malformed JSON is refused with status 400 and its position on every route that reads JSON."""

import pytest

from tests.journey.conftest import Service
from tests.journey.test_http_queries import problem_of

NESTED = b'{"a name of no meaning":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
QUERIES = "/api/endpoints/query/logs.all"
READ_JSON = (QUERIES, "/api/query", "/api/query/parse", "/api/access-tokens")
STORED = "/api/streams/postgres.logs/events"


def refused(service: Service, address: str, body: bytes) -> str:
    answer = service.client.post(address, content=body, headers={"Content-Type": "application/json"})
    return str(problem_of(answer, 400, "request.bad-body")["message"])


@pytest.mark.parametrize("address", READ_JSON)
def test_json_that_is_nested_too_deeply_is_refused(service: Service, address: str) -> None:
    assert refused(service, address, NESTED).endswith(": it is nested too deeply.")


@pytest.mark.parametrize("address", READ_JSON)
@pytest.mark.parametrize(
    ("body", "place"), [(b'{"sql": "\xff"}', 9), (b'{"\xff": 1}', 2), (b'{"description": "\xc3\xa9\xc3"}', 19)]
)
def test_invalid_utf_8_is_refused_with_its_position(service: Service, address: str, body: bytes, place: int) -> None:
    assert refused(service, address, body).endswith(f": it is not UTF-8 (byte {place}).")


@pytest.mark.parametrize(
    "address", [*READ_JSON, "/api/logs?source_name=postgres.logs", "/api/logs/json?source_name=postgres.logs"]
)
def test_a_truncated_body_is_refused_with_its_position(service: Service, address: str) -> None:
    assert refused(service, address, b'{"sql": "select').endswith(": it ends before it is whole (byte 15).")


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_of_events_is_refused(service: Service, body: bytes) -> None:
    assert refused(service, "/api/logs?source_name=postgres.logs", body) == "The body is not JSON: it is empty."


def test_a_truncated_line_is_quarantined_with_its_position(service: Service) -> None:
    answer = service.client.post(
        "/api/logs?source_name=postgres.logs",
        content=b'{"event_message": "whole"}\n{"event_message": "cu',
        headers={"Content-Type": "application/x-ndjson"},
    )
    reason = "The item is not JSON: it ends before it is whole (byte 21)."
    assert answer.json()["reasons"] == [{"index": 1, "reason": reason}]


@pytest.mark.parametrize(
    ("media", "told_of"), [("", "A body needs a Content-Type."), ("a/b", "'a/b' is not read here")]
)
def test_an_unknown_content_type_is_refused_with_the_supported_ones(service: Service, media: str, told_of: str) -> None:
    answer = service.client.post(QUERIES, content=b'{"sql": "select 1"}', headers={"Content-Type": media})
    error = problem_of(answer, 415, "request.unsupported-media")
    assert told_of in str(error["message"])
    assert "application/json" in str(error["hint"])


def test_an_import_with_invalid_utf_8_is_refused(service: Service) -> None:
    body = b'{"id": "\xff", "timestamp": 1, "ingested_at": 1}'
    assert "it is not UTF-8 (byte 8)" in refused(service, STORED, body)
