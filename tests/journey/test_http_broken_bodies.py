"""JSON that cannot be read is the sender's fault on every route that reads any, and the refusal says where it breaks."""

import pytest

from tests.journey.conftest import Service
from tests.journey.test_http_queries import told

NESTED = b'{"a name of no meaning":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
QUERIES = "/api/endpoints/query/logs.all"
READ_JSON = (QUERIES, "/api/query", "/api/query/parse", "/api/access-tokens")
STORED = "/api/streams/postgres.logs/events"


def refused(service: Service, address: str, body: bytes) -> str:
    answer = service.client.post(address, content=body, headers={"Content-Type": "application/json"})
    return str(told(answer, 400, "request.bad-body")["message"])


@pytest.mark.parametrize("address", READ_JSON)
def test_nesting_deeper_than_can_be_read_is_told(service: Service, address: str) -> None:
    assert refused(service, address, NESTED).endswith(": it is nested too deeply.")


@pytest.mark.parametrize("address", READ_JSON)
@pytest.mark.parametrize(
    ("body", "place"), [(b'{"sql": "\xff"}', 9), (b'{"\xff": 1}', 2), (b'{"description": "\xc3\xa9\xc3"}', 19)]
)
def test_bytes_that_are_no_letters_are_told_with_their_place(
    service: Service, address: str, body: bytes, place: int
) -> None:
    assert refused(service, address, body).endswith(f": it is not UTF-8 (byte {place}).")


@pytest.mark.parametrize(
    "address", [*READ_JSON, "/api/logs?source_name=postgres.logs", "/api/logs/json?source_name=postgres.logs"]
)
def test_a_body_that_was_cut_off_is_told_with_its_end(service: Service, address: str) -> None:
    assert refused(service, address, b'{"sql": "select').endswith(": it ends before it is whole (byte 15).")


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_events_from_nothing_are_told_from_broken_ones(service: Service, body: bytes) -> None:
    assert refused(service, "/api/logs?source_name=postgres.logs", body) == "The body is not JSON: it is empty."


def test_a_line_that_was_cut_off_is_set_aside_with_its_end(service: Service) -> None:
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
def test_a_body_of_no_known_type_is_told_with_those_that_are(service: Service, media: str, told_of: str) -> None:
    answer = service.client.post(QUERIES, content=b'{"sql": "select 1"}', headers={"Content-Type": media})
    error = told(answer, 415, "request.unsupported-media")
    assert told_of in str(error["message"])
    assert "application/json" in str(error["hint"])


def test_stored_events_that_are_no_letters_are_refused(service: Service) -> None:
    body = b'{"id": "\xff", "timestamp": 1, "ingested_at": 1}'
    assert "it is not UTF-8 (byte 8)" in refused(service, STORED, body)
