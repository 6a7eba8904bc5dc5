"""Saved queries over HTTP: routes, keys, parameters, and the format of errors."""

import itertools
import socket
from collections.abc import Callable
from uuid import uuid5

import httpx
import pytest

from cordwood.catalog.endpoint_file import ENDPOINT_ID_NAMESPACE
from tests.journey.conftest import PUBLIC, Service

EDGE = "cloudflare.logs.prod"
_numbers = itertools.count()


@pytest.fixture
def project(service: Service) -> str:
    """Return the name of a new project that has one edge event."""
    name = f"project{next(_numbers)}"
    event = {
        "id": f"event-of-{name}",
        "timestamp": "2026-01-02T03:04:05.000006Z",
        "event_message": "GET | 200",
        "project": name,
        "metadata": {"request": {"path": "/rest/v1/t", "url": f"https://{name}.example.co/rest/v1/t"}},
    }
    assert service.send(EDGE, [event]).json()["accepted"] == 1
    return name


def checked_error(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    """Check that an error answer has the members of RFC 9457 and the member `error`, and return `error`."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    error = body["error"]
    assert (body["status"], error["code"], error["status"]) == (status, status, code)
    assert body["detail"] == error["message"]
    assert body["type"].endswith(code)
    assert {"title", "instance"} <= body.keys()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["x-request-id"] in body["instance"]
    assert isinstance(error, dict)
    return error


def test_rows_are_under_result_in_select_order(service: Service, project: str) -> None:
    answer = service.query("logs.all", project=project)
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert list(answer.json()) == ["result"]
    row = answer.json()["result"][0]
    assert list(row) == ["id", "timestamp", "event_message", "metadata"]
    assert row["timestamp"] == 1767323045000006
    assert row["metadata"][0]["request"][0]["path"] == "/rest/v1/t"


@pytest.mark.parametrize("path", ["/api/endpoints/query/", "/endpoints/query/", "/api/endpoints/query/name/"])
def test_every_route_of_logflare_is_served(service: Service, project: str, path: str) -> None:
    answer = service.client.get(path + "logs.all", params={"project": project})
    assert len(answer.json()["result"]) == 1


def test_an_endpoint_is_found_by_its_uuid_in_any_case(service: Service, project: str) -> None:
    uuid = str(uuid5(ENDPOINT_ID_NAMESPACE, "logs.all"))
    assert service.rows(uuid, project=project) == service.rows(uuid.upper(), project=project)
    assert len(service.rows(uuid, project=project)) == 1


def test_parameters_may_come_in_a_form_or_a_json_object(service: Service, project: str) -> None:
    by_form = service.client.post("/api/endpoints/query/logs.all", data={"project": project})
    by_json = service.client.post("/api/endpoints/query/logs.all", json={"project": project, "unknown": None})
    assert len(by_form.json()["result"]) == len(by_json.json()["result"]) == 1


def test_the_body_of_a_post_overrides_its_query_string(service: Service, project: str) -> None:
    answer = service.client.post("/api/endpoints/query/logs.all?project=nobody", json={"project": project})
    assert len(answer.json()["result"]) == 1


def test_the_last_of_a_repeated_name_wins_and_unknown_names_are_ignored(service: Service, project: str) -> None:
    answer = service.client.get(f"/api/endpoints/query/logs.all?project=nobody&project={project}&ref=x&project_tier=")
    assert len(answer.json()["result"]) == 1


def test_a_list_is_refused_for_a_known_parameter_and_ignored_otherwise(service: Service, project: str) -> None:
    address = "/api/endpoints/query/logs.all"
    assert service.client.post(address, json={"project": project, "panels": [1, {"x": 2}]}).status_code == 200
    refused = service.client.post(address, json={"project": [project]})
    assert refused.status_code == 400
    assert "project is a list" in refused.json()["error"]["message"]


def test_head_has_the_headers_of_get_and_no_body(service: Service, project: str) -> None:
    get_answer = service.query("logs.all", project=project)
    head = service.client.head("/api/endpoints/query/logs.all", params={"project": project})
    assert head.status_code == 200
    assert head.content == b""
    for name in ("content-length", "etag", "content-type", "cordwood-rows"):
        assert head.headers[name] == get_answer.headers[name]


@pytest.mark.parametrize(
    "present",
    [
        lambda key: {"headers": {"X-API-KEY": key}},
        lambda key: {"headers": {"Authorization": f"Bearer {key}"}},
        lambda key: {"headers": {"Authorization": f"bearer {key}", "X-API-KEY": key}},
        lambda key: {"params": {"api_key": key, "project": "default"}},
        lambda key: {"headers": {"Authorization": "Basic abc", "X-API-KEY": key}},
    ],
)
def test_a_key_may_be_presented_in_three_places(service: Service, present: Callable[[str], dict[str, object]]) -> None:
    request_options: dict[str, object] = {"params": {"project": "default"}, **present("journey-private")}
    answer = httpx.get(f"{service.url}/api/endpoints/query/logs.all", **request_options)  # type: ignore[arg-type]
    assert answer.status_code == 200


def test_no_key_is_401_with_a_challenge(service: Service) -> None:
    answer = httpx.get(f"{service.url}/api/endpoints/query/logs.all?project=default")
    checked_error(answer, 401, "request.no-key")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_key_is_401(service: Service) -> None:
    url = f"{service.url}/api/endpoints/query/logs.all?project=default"
    checked_error(httpx.get(url, headers={"X-API-KEY": "wrong"}), 401, "request.bad-key")


def test_two_different_keys_are_400(service: Service) -> None:
    headers = {"Authorization": "Bearer wrong", "X-API-KEY": "journey-private"}
    answer = httpx.get(f"{service.url}/api/endpoints/query/logs.all?project=default", headers=headers)
    checked_error(answer, 400, "request.two-keys")


def test_a_public_key_may_not_query(service: Service) -> None:
    url = f"{service.url}/api/endpoints/query/logs.all?project=default"
    checked_error(httpx.get(url, headers={"X-API-KEY": PUBLIC}), 403, "request.forbidden")


def test_an_unknown_endpoint_is_404_with_the_nearest_name(service: Service) -> None:
    assert "logs.all" in str(checked_error(service.query("logs.al"), 404, "request.unknown-endpoint")["hint"])


def test_a_missing_parameter_is_400_and_named(service: Service) -> None:
    assert "project" in str(checked_error(service.query("logs.all"), 400, "request.bad-parameter")["message"])


def test_a_value_that_is_not_allowed_is_400_and_named(service: Service) -> None:
    error = checked_error(
        service.query("usage.api-counts", project="p", interval="weekly"), 400, "request.bad-parameter"
    )
    for part in ("interval", "weekly", "hourly"):
        assert part in str(error["message"])


def test_an_invalid_regular_expression_is_400(service: Service) -> None:
    checked_error(service.query("usage.api-counts", project="(", interval="daily"), 400, "request.bad-parameter")


@pytest.mark.parametrize("query", ["project=%zz", "project=%", "project=a%F", "project=%ff", "%zz=1"])
def test_a_broken_percent_encoding_is_400(service: Service, query: str) -> None:
    raw = send_raw_request(service, f"GET /api/endpoints/query/logs.all?{query} HTTP/1.1")
    assert raw.startswith(b"HTTP/1.1 400 ")
    assert b"request.bad-parameter" in raw


def test_a_broken_percent_encoding_in_the_path_is_400(service: Service) -> None:
    assert send_raw_request(service, "GET /api/endpoints/query/%zz HTTP/1.1").startswith(b"HTTP/1.1 400 ")


def test_an_unknown_route_is_404(service: Service) -> None:
    checked_error(service.client.get("/api/nothing"), 404, "request.unknown-route")


@pytest.mark.parametrize("collection", ["backends", "rules"])
def test_unsupported_collections_of_logflare_are_empty_and_read_only(service: Service, collection: str) -> None:
    assert service.client.get(f"/api/{collection}").json() == []
    checked_error(service.client.post(f"/api/{collection}", json={"name": "x"}), 501, "request.not-offered")
    assert service.client.get(f"/api/{collection}", headers={"X-API-KEY": PUBLIC}).status_code == 403


def test_the_account_has_the_name_default_and_needs_a_private_key(service: Service) -> None:
    assert service.client.get("/api/account").json()["name"] == "default"
    assert service.client.get("/api/account", headers={"X-API-KEY": PUBLIC}).status_code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_wrong_method_is_405_with_the_allowed_ones(service: Service, method: str) -> None:
    answer = service.client.request(method, "/api/endpoints/query/logs.all")
    checked_error(answer, 405, "request.bad-method")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"


@pytest.mark.parametrize("path", ["/api/endpoints/query/logs.all", "/api/logs", "/health"])
def test_a_preflight_request_needs_no_key_and_lists_our_headers(service: Service, path: str) -> None:
    request_options = {"Origin": "https://page.example", "Access-Control-Request-Method": "GET"}
    answer = httpx.options(service.url + path, headers=request_options)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    assert "X-API-KEY" in answer.headers["access-control-allow-headers"]
    assert "LF-ENDPOINT-REDACT-PII" in answer.headers["access-control-allow-headers"]


def send_raw_request(
    service: Service, request_line: str, *headers: str, body: bytes = b"", key: str = "journey-private"
) -> bytes:
    """Send a request that client libraries would not send, and return the response."""
    lines = [request_line, "Host: x", f"X-API-KEY: {key}", "Connection: close", *headers, "", ""]
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


def test_a_request_line_of_64_kib_is_served(service: Service) -> None:
    line = "GET /api/endpoints/query/logs.all?project=default&x={} HTTP/1.1"
    filler = "y" * (64 * 1024 - len(line.format("")))
    assert send_raw_request(service, line.format(filler)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", [64 * 1024 + 1, 70 * 1024, 1024 * 1024])
def test_a_longer_request_line_is_414_in_the_usual_error_format(service: Service, size: int) -> None:
    line = "GET /api/endpoints/query/logs.all?project=default&x={} HTTP/1.1"
    received = send_raw_request(service, line.format("y" * (size - len(line.format("")))))
    assert received.startswith(b"HTTP/1.1 414 ")
    assert b'"request.address-too-long"' in received


def test_headers_that_are_too_large_are_431(service: Service) -> None:
    received = send_raw_request(service, "GET /health HTTP/1.1", "X-Long: " + "y" * 100_000)
    assert received.startswith(b"HTTP/1.1 431 ")
    assert b'"request.headers-too-large"' in received


@pytest.mark.parametrize("line", ["GARBAGE", "GET /a b HTTP/1.1", "FOO /health HTTP/1.1", "GET /health?é HTTP/1.1"])
def test_invalid_http_is_400_in_the_usual_error_format(service: Service, line: str) -> None:
    received = send_raw_request(service, line)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b'"request.malformed"' in received
    assert b"percent-encode" in received


def test_a_request_id_is_made_or_echoed(service: Service) -> None:
    generated_ids = [service.client.get("/livez").headers["x-request-id"] for _ in range(2)]
    assert generated_ids[0] != generated_ids[1]
    echoed_id = service.client.get("/livez", headers={"X-Request-Id": "trace-me-7"})
    assert echoed_id.headers["x-request-id"] == "trace-me-7"


def test_a_request_id_that_is_too_long_is_not_echoed(service: Service) -> None:
    answer = service.client.get("/livez", headers={"X-Request-Id": "x" * 200})
    assert answer.headers["x-request-id"] != "x" * 200
