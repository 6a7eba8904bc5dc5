"""Unusual input to described operations is answered with a described status and without an internal error."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.journey.conftest import Service

UNUSUAL_VALUES = (
    "",
    "x",
    "0",
    "-1",
    "'; drop",
    "é\u202e",
    "\x00",
    "%",
    "{}",
    "9" * 400,
    "2026-01-01T00:00:00Z",
    "select 1",
)
UNUSUAL_BODIES: tuple[tuple[str, bytes], ...] = (
    ("application/json", b""),
    ("application/json", b"{"),
    ("application/json", b"[]"),
    ("application/json", b"null"),
    ("application/json", b'{"interval": [1], "project": {}}'),
    ("application/json", b'{"scopes": 5, "project": "x"}'),
    ("application/json", b'"\xff"'),
    ("application/x-www-form-urlencoded", b"project=%ff&interval=daily"),
    ("application/x-ndjson", b"{}\n{\n"),
    ("text/plain", b"hello"),
    ("text/csv", b"a,b\n1\n"),
    ("application/x-protobuf", b"\xff\xff"),
)


@pytest.fixture(scope="module")
def paths(service: Service) -> dict[str, Any]:
    body: dict[str, Any] = service.client.get("/api/openapi.json").json()["paths"]
    return body


def operations(paths: dict[str, Any], verb: str) -> Iterator[tuple[str, Any]]:
    return ((path, verbs[verb]) for path, verbs in paths.items() if verb in verbs)


def is_endless(operation: Any) -> bool:
    return "text/event-stream" in operation["responses"].get("200", {}).get("content", {})


def assert_described(answer: httpx.Response, operation: Any) -> None:
    message = f"{answer.request.method} {answer.request.url} {answer.status_code} {answer.text[:300]}"
    assert answer.status_code < 500 or answer.status_code == 501, message
    assert str(answer.status_code) in operation["responses"], message


def path_with(path: str, value: str) -> str:
    """Replace each name in a path by the value, percent-encoded."""
    return re.sub(r"\{\w+\}", lambda _: str(httpx.QueryParams({"": value}))[1:] or "x", path)


def test_get_operations_answer_unusual_values_with_a_described_status(service: Service, paths: dict[str, Any]) -> None:
    for path, operation in operations(paths, "get"):
        if is_endless(operation):
            continue
        query_parameters = [
            parameter["name"] for parameter in operation.get("parameters", ()) if parameter.get("in") == "query"
        ]
        for value in UNUSUAL_VALUES:
            assert_described(service.client.get(path_with(path, value)), operation)
            assert_described(
                service.client.get(path_with(path, "logs.all"), params=dict.fromkeys(query_parameters, value)),
                operation,
            )
            for name in query_parameters:
                assert_described(service.client.get(path_with(path, "postgres.logs"), params={name: value}), operation)


def test_post_operations_answer_unusual_bodies_with_a_described_status(service: Service, paths: dict[str, Any]) -> None:
    for path, operation in operations(paths, "post"):
        if is_endless(operation):
            continue
        for form, body in UNUSUAL_BODIES:
            address = path_with(path, "postgres.logs")
            for query in ("", "?source_name=postgres.logs"):
                assert_described(
                    service.client.post(address + query, content=body, headers={"content-type": form}), operation
                )


def test_followed_queries_answer_unusual_values_with_a_described_status(
    service: Service, paths: dict[str, Any]
) -> None:
    operation = paths["/api/endpoints/tail/{name_or_id}"]["get"]
    assert is_endless(operation)
    for name in ("project", "sql", "lql", "since"):
        for value in UNUSUAL_VALUES:
            params = {"project": "p", name: value}
            with service.client.stream("GET", "/api/endpoints/tail/logs.all", params=params) as answer:
                assert str(answer.status_code) in operation["responses"], params


def test_without_a_key_every_operation_that_needs_one_answers_401(service: Service, paths: dict[str, Any]) -> None:
    for verb in ("get", "post", "put", "patch", "delete"):
        for path, operation in operations(paths, verb):
            answer = httpx.request(verb, service.url + path_with(path, "logs.all"))
            # Operations that need no key answer 200, or 404 for an unknown name.
            expected = (200, 404) if operation.get("security") == [] else (401,)
            assert answer.status_code in expected, (verb, path, answer.text)
