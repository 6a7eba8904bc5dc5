"""Every route that reads JSON refuses malformed JSON with status 400 and the position of the error."""

import pytest

from tests.journey.conftest import Service
from tests.journey.test_http_queries import checked_error

DEEPLY_NESTED = b'{"a name of no meaning":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
QUERY_PATH = "/api/endpoints/query/logs.all"
PATHS_THAT_READ_JSON = (QUERY_PATH, "/api/query", "/api/query/parse", "/api/access-tokens")
IMPORT_PATH = "/api/streams/postgres.logs/events"


def refusal(service: Service, address: str, body: bytes) -> str:
    answer = service.client.post(address, content=body, headers={"Content-Type": "application/json"})
    return str(checked_error(answer, 400, "request.bad-body")["message"])


@pytest.mark.parametrize("address", PATHS_THAT_READ_JSON)
def test_json_that_is_nested_too_deeply_is_refused(service: Service, address: str) -> None:
    assert refusal(service, address, DEEPLY_NESTED).endswith(": it is nested too deeply.")


@pytest.mark.parametrize("address", PATHS_THAT_READ_JSON)
@pytest.mark.parametrize(
    ("body", "place"), [(b'{"sql": "\xff"}', 9), (b'{"\xff": 1}', 2), (b'{"description": "\xc3\xa9\xc3"}', 19)]
)
def test_invalid_utf_8_is_refused_with_its_position(service: Service, address: str, body: bytes, place: int) -> None:
    assert refusal(service, address, body).endswith(f": it is not UTF-8 (byte {place}).")


@pytest.mark.parametrize(
    "address",
    [*PATHS_THAT_READ_JSON, "/api/logs?source_name=postgres.logs", "/api/logs/json?source_name=postgres.logs"],
)
def test_a_truncated_body_is_refused_with_its_position(service: Service, address: str) -> None:
    assert refusal(service, address, b'{"sql": "select').endswith(": it ends before it is whole (byte 15).")


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_of_events_is_refused(service: Service, body: bytes) -> None:
    assert refusal(service, "/api/logs?source_name=postgres.logs", body) == "The body is not JSON: it is empty."


def test_a_truncated_line_is_quarantined_with_its_position(service: Service) -> None:
    answer = service.client.post(
        "/api/logs?source_name=postgres.logs",
        content=b'{"event_message": "whole"}\n{"event_message": "cu',
        headers={"Content-Type": "application/x-ndjson"},
    )
    reason = "The item is not JSON: it ends before it is whole (byte 21)."
    assert answer.json()["reasons"] == [{"index": 1, "reason": reason}]


@pytest.mark.parametrize(
    ("media", "supported_types"), [("", "A body needs a Content-Type."), ("a/b", "'a/b' is not read here")]
)
def test_an_unknown_content_type_is_refused_with_the_supported_ones(
    service: Service, media: str, supported_types: str
) -> None:
    answer = service.client.post(QUERY_PATH, content=b'{"sql": "select 1"}', headers={"Content-Type": media})
    error = checked_error(answer, 415, "request.unsupported-media")
    assert supported_types in str(error["message"])
    assert "application/json" in str(error["hint"])


def test_an_import_with_invalid_utf_8_is_refused(service: Service) -> None:
    body = b'{"id": "\xff", "timestamp": 1, "ingested_at": 1}'
    assert "it is not UTF-8 (byte 8)" in refusal(service, IMPORT_PATH, body)
