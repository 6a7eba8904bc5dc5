"""The OpenAPI document, and the lists of endpoints and streams for private keys."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from cordwood.web.routes import BODY_FORMATS_BY_PATH_SUFFIX, PATTERN_ROUTES, ROUTES_BY_PATH
from tests.journey.conftest import PUBLIC, Service

JSON_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "null": type(None),
}
VERBS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def openapi_document(service: Service) -> Any:
    answer = httpx.get(f"{service.url}/api/openapi.json")
    assert answer.status_code == 200, answer.text
    return answer.json()


def all_nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from all_nodes(child)


def operations(openapi_document: Any) -> list[tuple[str, str, Any]]:
    paths = openapi_document["paths"].items()
    return [(path, verb, operation) for path, verbs in paths for verb, operation in verbs.items() if verb in VERBS]


def matches_schema(value: object, schema: Mapping[str, Any]) -> bool:
    types = schema.get("type", list(JSON_TYPES))
    return any(isinstance(value, JSON_TYPES[type_name]) for type_name in ([types] if isinstance(types, str) else types))


def test_the_document_needs_no_key_and_contains_no_query(openapi_document: Any) -> None:
    assert openapi_document["openapi"].startswith("3.1")
    assert "cloudflare.logs.prod` as t" not in str(openapi_document)


def test_every_reference_resolves(openapi_document: Any) -> None:
    references = [node["$ref"] for node in all_nodes(openapi_document) if isinstance(node.get("$ref"), str)]
    assert references
    for reference in references:
        target = openapi_document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]


def test_every_operation_has_a_unique_id_and_describes_its_responses(openapi_document: Any) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(openapi_document)]
    assert len(ids) == len(set(ids))
    for _, _, operation in operations(openapi_document):
        assert operation["responses"]
        assert operation["tags"][0] in {tag["name"] for tag in openapi_document["tags"]}


def test_every_name_in_a_path_is_a_parameter_of_its_operations(openapi_document: Any) -> None:
    for path, _, operation in operations(openapi_document):
        named = {step[1:-1] for step in path.split("/") if step.startswith("{")}
        assert named == {
            parameter["name"] for parameter in operation.get("parameters", ()) if parameter.get("in") == "path"
        }


def test_every_route_is_described_except_aliases(openapi_document: Any) -> None:
    described_paths = {
        prefix + suffix for prefix in (b"/api/logs", b"/logs", b"/api/events") for suffix in BODY_FORMATS_BY_PATH_SUFFIX
    }
    collector = {b"/services/collector" + suffix for suffix in (b"/event", b"/event/1.0", b"/raw/1.0", b"/health/1.0")}
    others = (described_paths - {b"/api/logs"}) | {b"/readyz", b"/api/openapi", b"/v1/input", b"/elastic"} | collector
    # Only a demo has this route.
    others |= {b"/sign-in"}
    assert {address.decode() for address in ROUTES_BY_PATH if address not in others} <= set(openapi_document["paths"])


def test_every_route_with_a_name_is_described(openapi_document: Any) -> None:
    description = [re.sub(r"\{\w+\}", "x", path).encode() for path in openapi_document["paths"]]
    assert not [
        address.pattern for address, _ in PATTERN_ROUTES if not any(address.fullmatch(path) for path in description)
    ]


def test_every_described_path_without_a_name_is_answered(service: Service, openapi_document: Any) -> None:
    parameters = openapi_document["components"]["parameters"]
    for path, verb, operation in operations(openapi_document):
        parameters_of_operation = [
            parameters.get(parameter.get("$ref", "").rpartition("/")[2], parameter)
            for parameter in operation.get("parameters", ())
        ]
        needs_more = (
            any(parameter.get("required") for parameter in parameters_of_operation)
            or "200" not in operation["responses"]
        )
        if verb == "get" and "{" not in path and "/query" not in path and not needs_more:
            assert service.client.get(path).status_code == 200, path


def test_an_endpoint_has_its_parameters_values_and_description(openapi_document: Any) -> None:
    description = openapi_document["paths"]["/api/endpoints/query/usage.api-counts"]["get"]
    interval = next(parameter for parameter in description["parameters"] if parameter.get("name") == "interval")
    assert interval["required"] is True
    assert interval["schema"]["enum"] == ["hourly", "daily", "minutely", "1hr", "1day", "7day"]
    assert "by the hour" in interval["description"]
    assert "Requests to the gateway" in description["description"]
    body = openapi_document["paths"]["/api/endpoints/query/usage.api-counts"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema["required"] == ["interval", "project"]
    assert {"sql", "lql", "interval", "project"} == set(schema["properties"])


@pytest.mark.parametrize(
    ("endpoint", "parameters"),
    [("usage.api-counts", {"interval": "daily", "project": "abc"}), ("logs.all", {"project": "abc"})],
)
def test_rows_match_their_schema(
    service: Service, openapi_document: Any, endpoint: str, parameters: dict[str, str]
) -> None:
    metadata = {"request": {"path": "/rest/v1/x", "url": "https://abc.example.com/rest/v1/x"}}
    service.send("cloudflare.logs.prod", [{"event_message": "m", "project": "abc", "metadata": metadata}])
    description = openapi_document["paths"][f"/api/endpoints/query/{endpoint}"]["get"]["responses"]["200"]["content"]
    row = description["application/json"]["schema"]["properties"]["result"]["items"]["anyOf"][0]
    for result_rows in service.rows(endpoint, **parameters):
        assert list(result_rows) == list(row["properties"])
        assert all(matches_schema(value, row["properties"][name]) for name, value in result_rows.items())


def test_columns_have_the_types_of_the_compiler(openapi_document: Any) -> None:
    description = openapi_document["paths"]["/api/endpoints/query/usage.api-counts"]["get"]["responses"]["200"][
        "content"
    ]
    row = description["application/json"]["schema"]["properties"]["result"]["items"]["anyOf"][0]["properties"]
    assert row["timestamp"]["type"] == ["string", "null"]
    assert row["total_rest_requests"] == {"type": ["integer", "null"], "format": "int64"}


def test_refusals_match_the_schema_of_problems(service: Service, openapi_document: Any) -> None:
    problem = openapi_document["components"]["schemas"]["problem"]
    refused = service.query("usage.api-counts", interval="yearly", project="x").json()
    assert set(problem["required"]) <= set(refused)
    assert set(problem["properties"]["error"]["required"]) <= set(refused["error"])


def test_endpoints_are_listed_and_shown_by_name_and_uuid(service: Service) -> None:
    listed = service.client.get("/api/endpoints").json()
    assert [item["name"] for item in listed] == ["logs.all", "logs.all.otel", "usage.api-counts"]
    assert [item["language"] for item in listed] == ["bq_sql", "ch_sql", "bq_sql"]
    counts = service.client.get("/api/endpoints/usage.api-counts").json()
    assert counts == service.client.get(f"/api/endpoints/{counts['token']}").json() == listed[2]
    durations = (counts["cache_duration_seconds"], counts["proactive_requerying_seconds"])
    assert durations == (900, 300)
    assert all(isinstance(seconds, int) for seconds in durations)
    assert (counts["max_limit"], counts["sandboxable"], counts["language"]) == (1000, True, "bq_sql")
    assert "countif" in counts["query"]
    assert isinstance(counts["id"], int)
    assert (counts["labels"], counts["backend_id"], counts["enable_dynamic_reservation"]) == ("", None, False)
    interval = next(parameter for parameter in counts["parameters"] if parameter["name"] == "interval")
    assert interval["one_of"][0] == "hourly"


def test_streams_are_listed_with_counts_and_times(service: Service) -> None:
    service.send("gotrue.logs.prod", [{"event_message": "m", "timestamp": "2026-01-01T00:00:00Z"}])
    listed = {stream["name"]: stream for stream in service.client.get("/api/sources").json()}
    assert len(listed) == 9
    body = service.client.get("/api/sources/gotrue.logs.prod").json()
    assert body["events"] == 1
    assert body["oldest"] == body["newest"] == 1_767_225_600_000_000
    assert service.client.get(f"/api/sources/{body['token']}").json() == body


def test_the_schema_of_a_stream_describes_its_events(service: Service) -> None:
    service.send("postgREST.logs.prod", [{"event_message": "m", "metadata": {"host": "h", "tags": ["a"]}}])
    schema = service.client.get("/api/sources/postgREST.logs.prod/schema").json()
    assert schema["properties"]["metadata"]["properties"]["host"] == {"type": "string"}
    flat = service.client.get("/api/sources/postgREST.logs.prod/schema", params={"variant": "dot"}).json()
    assert (flat["metadata.host"], flat["metadata.tags"]) == ("string", "string[]")
    assert service.client.get("/api/sources/postgREST.logs.prod/schema?variant=tree").status_code == 400


PRIVATE_ADDRESSES = (
    "/api/endpoints",
    "/api/endpoints/logs.all",
    "/api/sources",
    "/api/sources/postgres.logs",
    "/api/sources/postgres.logs/schema",
)


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_the_catalog_needs_a_private_key(service: Service, address: str) -> None:
    assert httpx.get(service.url + address).status_code == 401
    assert httpx.get(service.url + address, headers={"X-API-KEY": PUBLIC}).status_code == 403
    # With a public key, requests for unknown names are refused in the same way as for known names.
    assert httpx.get(f"{service.url}/api/sources/nobody", headers={"X-API-KEY": PUBLIC}).status_code == 403


@pytest.mark.parametrize("address", ["/api/endpoints/log.all", "/api/sources/postgres.log", "/api/sources/x/schema"])
def test_an_unknown_name_is_404(service: Service, address: str) -> None:
    answer = service.client.get(address)
    assert answer.status_code == 404
    assert answer.json()["error"]["status"] in ("request.unknown-endpoint", "request.unknown-stream")


def test_a_collection_cannot_be_deleted(service: Service) -> None:
    answer = service.client.delete("/api/endpoints")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST, OPTIONS")
