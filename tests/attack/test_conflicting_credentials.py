"""Requests with two different keys, or with two values of a header that may have only one, are refused."""

import gzip
import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import httpx
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, start_service

HeaderPairs = Sequence[tuple[str, str]]

QUERY_PATH = "/api/endpoints/query/logs.all"
REQUESTS_WITHOUT_BODY = (
    ("GET", QUERY_PATH),
    ("GET", "/api/access-tokens"),
    ("GET", "/api/status"),
    ("POST", "/api/access-tokens"),
)
INGEST_PATH = "/api/logs?source_name=postgres.logs"
BEARER_PRIVATE, BEARER_PUBLIC = f"Bearer {PRIVATE}", f"Bearer {PUBLIC}"

TWO_KEYS: dict[str, tuple[HeaderPairs, str, str]] = {
    "two X-API-KEY": ([("X-API-KEY", PUBLIC), ("X-API-KEY", PRIVATE)], "", "X-API-KEY"),
    "two X-API-KEY the other way round": ([("X-API-KEY", PRIVATE), ("x-api-key", PUBLIC)], "", "X-API-KEY"),
    "Authorization and X-API-KEY": ([("Authorization", BEARER_PRIVATE), ("X-API-KEY", PUBLIC)], "", "Authorization"),
    "X-API-KEY and Authorization": ([("X-API-KEY", PRIVATE), ("Authorization", BEARER_PUBLIC)], "", "Authorization"),
    "a key that is not in force": ([("X-API-KEY", PRIVATE), ("Authorization", "bearer none")], "", "Authorization"),
    "X-API-KEY and the address": ([("X-API-KEY", PRIVATE)], f"api_key={PUBLIC}", "?api_key="),
    "Authorization and the address": ([("Authorization", BEARER_PRIVATE)], f"api_key={PUBLIC}", "?api_key="),
    "the address twice": ([], f"api_key={PUBLIC}&api_key={PRIVATE}", "?api_key="),
    "the address twice, once percent-encoded": ([], f"api_key={PUBLIC}&api%5fkey={PRIVATE}", "?api_key="),
    "all three": ([("X-API-KEY", PRIVATE), ("Authorization", BEARER_PRIVATE)], f"api_key={PUBLIC}", "?api_key="),
}
SAME_KEY_TWICE: dict[str, tuple[HeaderPairs, str]] = {
    "the same in every place": ([("X-API-KEY", PRIVATE), ("Authorization", BEARER_PRIVATE)], f"api_key={PRIVATE}"),
    "the same header twice": ([("X-API-KEY", PRIVATE), ("X-API-KEY", PRIVATE)], ""),
    "an empty header beside it": ([("X-API-KEY", ""), ("Authorization", BEARER_PRIVATE)], ""),
    "an empty bearer beside it": ([("X-API-KEY", PRIVATE), ("Authorization", "Bearer")], ""),
    "an empty one in the address": ([("X-API-KEY", PRIVATE)], "api_key="),
    "a scheme that is not ours": ([("X-API-KEY", PRIVATE), ("Authorization", "Basic dXNlcjpwYXNz")], ""),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("presented") / "data")
    yield running
    running.stop()


def send(service: Service, method: str, address: str, headers: HeaderPairs, query: str = "") -> httpx.Response:
    separator = "&" if "?" in address else "?"
    url = f"{service.url}{address}{separator}{query}" if query else f"{service.url}{address}"
    content = b'{"event_message": "x"}' if method == "POST" else b""
    typed = [("Content-Type", "application/json")] if method == "POST" else []
    with httpx.Client(timeout=60) as client:
        return client.request(method, url, headers=[*typed, *headers], content=content)


@pytest.mark.parametrize(("method", "address"), [*REQUESTS_WITHOUT_BODY, ("POST", INGEST_PATH), ("POST", "/v1/logs")])
@pytest.mark.parametrize(("headers", "query", "place"), TWO_KEYS.values(), ids=TWO_KEYS.keys())
def test_two_different_keys_are_refused_and_both_places_named(
    service: Service, method: str, address: str, headers: HeaderPairs, query: str, place: str
) -> None:
    answer = send(service, method, address, headers, query)
    assert answer.status_code == 400
    answer_text = answer.text
    assert "Two different keys were sent" in answer_text
    assert answer_text.count(" in ") >= 2
    assert place in answer_text
    assert PRIVATE not in answer_text
    assert PUBLIC not in answer_text


@pytest.mark.parametrize(("headers", "query"), SAME_KEY_TWICE.values(), ids=SAME_KEY_TWICE.keys())
def test_the_same_key_in_two_places_is_accepted(service: Service, headers: HeaderPairs, query: str) -> None:
    assert send(service, "GET", "/api/access-tokens", headers, query).status_code == 200


def test_a_cached_answer_is_not_returned_for_two_keys(service: Service) -> None:
    """Send a request with two keys: it is refused even if the answer to the same request with one of them is cached."""
    for _ in range(3):
        assert send(service, "GET", QUERY_PATH, [("X-API-KEY", PRIVATE)], "project=x").status_code == 200
    answer = [("X-API-KEY", PRIVATE), ("Authorization", BEARER_PUBLIC)]
    for _ in range(2):
        assert send(service, "GET", QUERY_PATH, answer, "project=x").status_code == 400


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("Content-Type", "application/json", "application/x-www-form-urlencoded"),
        ("Content-Type", "application/x-ndjson", "application/json"),
        ("Authorization", "Basic dXNlcjpwYXNz", "Basic b3RoZXI6cGFzcw=="),
        ("X-Source", "postgres.logs", "cloudflare.logs.prod"),
        ("X-Collection", "postgres.logs", "cloudflare.logs.prod"),
    ],
)
def test_a_single_valued_header_is_refused_with_two_values(
    service: Service, name: str, first: str, second: str
) -> None:
    headers = [("X-API-KEY", PRIVATE), (name, first), (name, second)]
    with httpx.Client() as client:
        answer = client.post(f"{service.url}{INGEST_PATH}", headers=headers, content=b'{"event_message": "x"}')
    assert answer.status_code == 400
    assert answer.json()["error"]["status"] == "request.malformed"
    assert name in answer.json()["error"]["message"]


def test_a_header_with_the_same_value_twice_is_accepted(service: Service) -> None:
    headers = [("X-API-KEY", PRIVATE), *[("Content-Type", "application/json")] * 2]
    with httpx.Client() as client:
        answer = client.post(f"{service.url}{INGEST_PATH}", headers=headers, content=b'{"event_message": "x"}')
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "lines",
    [
        "Host: a\r\nHost: b\r\nContent-Length: 2",
        "Host: a\r\nContent-Length: 2\r\nContent-Length: 3",
        "Host: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        "Host: a\r\nContent-Length: +2",
        "Host: a\r\nContent-Length: 2, 2",
    ],
)
def test_an_ambiguous_content_length_or_host_is_refused(service: Service, lines: str) -> None:
    address = urlsplit(service.url)
    assert address.hostname
    assert address.port
    head = f"POST {INGEST_PATH} HTTP/1.1\r\n{lines}\r\nX-API-KEY: {PRIVATE}\r\nContent-Type: application/json\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(head.encode() + b"{}")
        connection.shutdown(socket.SHUT_WR)
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 400 ")


def test_content_codings_on_two_lines_are_both_decoded(service: Service) -> None:
    headers = [("X-API-KEY", PRIVATE), ("Content-Type", "application/json"), *[("Content-Encoding", "gzip")] * 2]
    compressed_once = gzip.compress(b'{"event_message": "x"}')
    with httpx.Client() as client:
        answer = client.post(f"{service.url}{INGEST_PATH}", headers=headers, content=gzip.compress(compressed_once))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
