"""Events over HTTP: choice of the stream, keys, sizes and content codings."""

import gzip
import itertools
import json
import zlib

import httpx
import pytest
from backports import zstd

from tests.journey.conftest import PUBLIC, Service
from tests.journey.test_http_queries import EDGE, checked_error, send_raw_request

_numbers = itertools.count()


@pytest.fixture
def project() -> str:
    return f"ingested{next(_numbers)}"


def make_event(project: str) -> dict[str, object]:
    return {"event_message": "hello", "project": project, "metadata": {"request": {"path": "/"}}}


@pytest.mark.parametrize("path", ["/api/logs", "/logs", "/api/events"])
@pytest.mark.parametrize("place", ["source_name", "source", "collection_name", "collection"])
def test_the_stream_is_named_in_the_query_string(service: Service, project: str, path: str, place: str) -> None:
    answer = service.client.post(path, params={place: EDGE}, json=make_event(project))
    assert answer.status_code == 200
    expected = {"message": "Logged!", "accepted": 1, "duplicates": 0, "quarantined": 0, "reasons": []}
    assert answer.json() == expected
    assert len(service.rows("logs.all", project=project)) == 1


@pytest.mark.parametrize("header", ["x-source", "x-collection"])
def test_the_stream_is_named_in_a_header(service: Service, project: str, header: str) -> None:
    assert service.client.post("/api/logs", headers={header: EDGE}, json=make_event(project)).status_code == 200


def test_the_query_string_overrides_the_header(service: Service, project: str) -> None:
    answer = service.client.post(
        "/api/logs", params={"source": EDGE}, headers={"x-source": "nothing"}, json=make_event(project)
    )
    assert answer.status_code == 200


def test_the_keys_of_an_event_never_choose_the_stream(service: Service, project: str) -> None:
    answer = service.send(EDGE, {**make_event(project), "source_name": "postgres.logs", "source": "x"})
    assert answer.status_code == 200
    assert len(service.rows("logs.all", project=project)) == 1


def test_a_missing_stream_is_400(service: Service, project: str) -> None:
    checked_error(service.client.post("/api/logs", json=make_event(project)), 400, "request.bad-parameter")


def test_an_unknown_stream_is_404_with_the_nearest_name(service: Service, project: str) -> None:
    error = checked_error(service.send("cloudflare.logs.prd", make_event(project)), 404, "request.unknown-stream")
    assert EDGE in str(error["hint"])


def test_a_public_key_may_send_events(service: Service, project: str) -> None:
    url = f"{service.url}/api/logs?source_name={EDGE}"
    assert httpx.post(url, headers={"X-API-KEY": PUBLIC}, json=make_event(project)).status_code == 200


def test_the_key_is_checked_before_the_body_is_read(service: Service) -> None:
    """Refuse a wrong key with status 401, although the client never sends the body."""
    received = send_raw_request(
        service,
        f"POST /api/logs?source_name={EDGE} HTTP/1.1",
        "Content-Type: application/json",
        "Content-Length: 1000000",
        key="wrong",
    )
    assert received.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body, wbits=-15)),
        ("zstd", zstd.compress),
        ("identity", bytes),
        ("gzip, zstd", lambda body: zstd.compress(gzip.compress(body))),
        ("gzip", lambda body: gzip.compress(body[:10]) + gzip.compress(body[10:])),
    ],
)
def test_a_body_may_be_compressed(service: Service, project: str, coding: str, compress: object) -> None:
    assert callable(compress)
    body = compress(json.dumps([make_event(project)] * 3).encode())
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=body, headers=headers)
    assert answer.json()["accepted"] == 3, answer.text


def test_an_unsupported_content_coding_is_415(service: Service) -> None:
    headers = {"Content-Encoding": "br", "Content-Type": "application/json"}
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=b"{}", headers=headers)
    checked_error(answer, 415, "request.unsupported-media")


@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(b'{"a":1}', mtime=0)[:-9]])
def test_a_malformed_compressed_body_is_400(service: Service, body: bytes) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=body, headers=headers)
    checked_error(answer, 400, "request.bad-body")


def test_a_body_over_16_mib_is_413(service: Service) -> None:
    headers = {"Content-Type": "application/json"}
    body = b" " * (16 * 2**20 + 1)
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=body, headers=headers)
    checked_error(answer, 413, "request.too-large")


def test_a_chunked_body_over_16_mib_is_413(service: Service) -> None:
    headers = {"Content-Type": "application/json"}
    chunks = iter([b" " * 2**20] * 17)
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=chunks, headers=headers)
    checked_error(answer, 413, "request.too-large")


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_a_decompression_bomb_is_413(service: Service, coding: str, compress: object) -> None:
    assert callable(compress)
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    body = compress(b" " * (129 * 2**20))
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=body, headers=headers)
    checked_error(answer, 413, "request.too-large")


def test_an_unknown_content_type_is_415(service: Service) -> None:
    headers = {"Content-Type": "application/pdf"}
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=b"x", headers=headers)
    checked_error(answer, 415, "request.unsupported-media")


def test_malformed_json_is_400_and_stores_nothing(service: Service, project: str) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps([make_event(project)]).encode()[:-1] + b",{]"
    answer = service.client.post("/api/logs", params={"source_name": EDGE}, content=body, headers=headers)
    checked_error(answer, 400, "request.bad-body")
    assert service.rows("logs.all", project=project) == []


def test_numbers_are_stored_exactly_or_as_strings(service: Service, project: str) -> None:
    posted = (
        '{"project": "%s", "metadata": {"int": 9007199254740993, "uint": 18446744073709551615, "least":'
        ' -9223372036854775808, "large": 123456789012345678901234567890, "huge": 1e400, "ratio": 0.1}}'
    )
    headers = {"Content-Type": "application/json"}
    address = {"source_name": EDGE}
    assert service.client.post("/api/logs", params=address, content=posted % project, headers=headers).is_success
    (row,) = service.rows("logs.all", project=project)
    expected = {
        "int": 9007199254740993,
        "uint": 18446744073709551615,
        "least": -9223372036854775808,
        "large": "123456789012345678901234567890",
        "huge": "1e400",
        "ratio": 0.1,
    }
    assert row["metadata"] == [expected]
    sql = "select count(*) as n from edge_logs cross join unnest(metadata) as m where m.large > 1e20 and m.int > 7"
    assert service.rows("logs.all", project=project, sql=sql) == [{"n": 1}]


def test_paths_beyond_the_limit_of_an_event_can_be_queried(service: Service, project: str) -> None:
    odd = {"project": project, "metadata": {f"odd{number}": {"n": number} for number in range(1000, 1700)}}
    assert service.send("postgREST.logs.prod", odd).json()["accepted"] == 1
    sql = "select o.n, m.odd1650.n as through from postgrest_logs as t cross join unnest(t.metadata) as m"
    rows = service.rows("logs.all", project=project, sql=f"{sql} cross join unnest(m.odd1699) as o")
    assert rows == [{"n": 1699, "through": 1650}]
