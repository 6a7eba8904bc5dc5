"""The explorer's page and files, and the routes that it reads."""

import re

import httpx
import pytest

from tests.journey.conftest import PUBLIC, Service

BROWSER_HEADERS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def explorer_page(service: Service) -> str:
    return httpx.get(service.url + "/", headers=BROWSER_HEADERS).text


def files_of(explorer_page: str) -> list[str]:
    return sorted(set(re.findall(r'(?:href|src)="(explorer/[^"]+)"', explorer_page)))


def test_the_page_needs_no_key_and_has_no_inline_code(service: Service, explorer_page: str) -> None:
    answer = httpx.get(service.url + "/", headers=BROWSER_HEADERS)
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", explorer_page)
    assert not re.search(r'(?:href|src)="(?:https?:)?//', explorer_page)


def test_every_file_of_the_page_is_immutable_and_has_an_etag(service: Service, explorer_page: str) -> None:
    files = files_of(explorer_page)
    assert len(files) > 10
    for file in files:
        answer = httpx.get(f"{service.url}/{file}")
        assert answer.status_code == 200, file
        assert "immutable" in answer.headers["cache-control"]
        known = httpx.get(f"{service.url}/{file}", headers={"If-None-Match": answer.headers["etag"]})
        assert (known.status_code, known.content) == (304, b"")


def test_every_imported_script_is_preloaded(service: Service, explorer_page: str) -> None:
    files = files_of(explorer_page)
    folder = files[0].rpartition("/")[0]
    for file in files:
        if file.endswith(".js"):
            script = httpx.get(f"{service.url}/{file}").text
            assert {f"{folder}/{name}" for name in re.findall(r'from "\./([\w-]+\.js)"', script)} <= set(files)


def test_pages_other_than_explore_are_loaded_later(explorer_page: str) -> None:
    names = {file.rpartition("/")[2] for file in files_of(explorer_page)}
    assert "explore.js" in names
    assert not names & {"alerts.js", "endpoints.js", "service.js", "streams.js", "sign-in.js"}


def test_a_head_request_has_only_headers(service: Service) -> None:
    answer = httpx.head(service.url + "/", headers=BROWSER_HEADERS)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["etag"]


def test_files_are_compressed_if_accepted(service: Service, explorer_page: str) -> None:
    file = next(file for file in files_of(explorer_page) if file.endswith("style.css"))
    plain = httpx.get(f"{service.url}/{file}", headers={"Accept-Encoding": "identity"})
    packed = httpx.get(f"{service.url}/{file}", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text == plain.text
    assert packed.headers["etag"] != plain.headers["etag"]


def test_files_of_unknown_versions_are_404(service: Service) -> None:
    for file in ("0000000000000000/main.js", "0000000000000000/__init__.py", "../pyproject.toml"):
        assert httpx.get(f"{service.url}/explorer/{file}").status_code == 404


def test_only_a_demo_has_the_page_that_takes_a_key_from_a_link(service: Service) -> None:
    """Check that only a demo has the sign-in page.

    Elsewhere, a stranger's link could sign a reader in with the stranger's key.
    """
    assert httpx.get(service.url + "/sign-in", headers=BROWSER_HEADERS).status_code == 404


def test_the_root_is_404_for_clients_that_do_not_accept_html(service: Service) -> None:
    answer = httpx.get(service.url + "/", headers={"Accept": "application/json"})
    assert answer.status_code == 404
    assert answer.json()["error"]["status"] == "request.unknown-route"


@pytest.fixture(scope="module")
def service_with_event(service: Service) -> Service:
    metadata = {"request": {"path": "/rest/v1/x", "tags": [{"name": "a"}]}, "response": {"status_code": 200}}
    service.send("cloudflare.logs.prod", [{"event_message": "m", "project": "scope", "metadata": metadata}])
    return service


def test_the_scope_of_an_endpoint_lists_sub_queries_and_fields(service_with_event: Service) -> None:
    body = service_with_event.client.get("/api/endpoints/logs.all/scope").json()
    assert body["endpoint"] == "logs.all"
    assert [sub_query["name"] for sub_query in body["sub_queries"]][:2] == ["edge_logs", "postgres_logs"]
    columns = {column["name"]: column for column in body["sub_queries"][0]["columns"]}
    assert columns["timestamp"] == {"name": "timestamp", "type": "TIMESTAMP", "fields": []}
    assert columns["metadata"]["type"] is None
    fields = {tuple(field["path"]): field["kinds"] for field in columns["metadata"]["fields"]}
    assert fields["request", "path"] == ["text"]
    assert fields["response", "status_code"] == ["number"]
    # A field of an array's elements is listed directly below the path of the array.
    assert fields["request", "tags", "name"] == ["text"]


def test_a_stream_named_like_a_source_leaves_the_description_complete(service_with_event: Service) -> None:
    assert service_with_event.client.post("/api/sources", json={"name": "edge_logs"}).status_code == 201
    try:
        response = service_with_event.client.get("/api/openapi.json")
        assert response.status_code == 200, response.text
        assert "/api/endpoints/query/logs.all" in response.json()["paths"]
    finally:
        service_with_event.client.delete("/api/sources/edge_logs")


def test_the_sql_of_an_lql_query_returns_the_same_rows(service_with_event: Service) -> None:
    lql = "f:edge_logs m.request.path:/rest/v1/x s:m.response.status_code@status"
    body = service_with_event.client.get("/api/endpoints/logs.all/sql", params={"lql": lql}).json()["sql"]
    rows = service_with_event.rows("logs.all", project="scope", sql=body)
    assert rows == service_with_event.rows("logs.all", project="scope", lql=lql) == [{"status": 200}]


def test_an_error_in_lql_has_its_position(service_with_event: Service) -> None:
    refused = service_with_event.client.get("/api/endpoints/logs.all/sql", params={"lql": "f:edge_logs (open"})
    assert refused.status_code == 400
    assert (refused.json()["error"]["line"], refused.json()["error"]["column"]) == (1, 13)
    assert (
        service_with_event.client.get("/api/endpoints/logs.all/sql").json()["error"]["status"]
        == "request.bad-parameter"
    )


def key_headers(service: Service, **terms: object) -> dict[str, str]:
    return {"X-API-KEY": service.client.post("/api/access-tokens", json=terms).json()["token"]}


def test_a_query_key_reads_the_scope_and_a_pinned_one_without_fields(service_with_event: Service) -> None:
    unpinned = httpx.get(
        f"{service_with_event.url}/api/endpoints/logs.all/scope",
        headers=key_headers(service_with_event, scopes="query"),
    )
    assert any(column["fields"] for sub_query in unpinned.json()["sub_queries"] for column in sub_query["columns"])
    pinned = httpx.get(
        f"{service_with_event.url}/api/endpoints/logs.all/scope",
        headers=key_headers(service_with_event, scopes="query", pins={"project": "mine"}),
    )
    assert pinned.json()["sub_queries"][0]["columns"][0]["name"] == "id"
    assert not any(column["fields"] for sub_query in pinned.json()["sub_queries"] for column in sub_query["columns"])


@pytest.mark.parametrize("scopes", ["private", "query"])
def test_the_scope_says_whether_the_key_is_private_and_its_pins(service_with_event: Service, scopes: str) -> None:
    address = f"{service_with_event.url}/api/endpoints/logs.all/scope"
    for pins in ({}, {"project": "mine"}):
        scope = httpx.get(address, headers=key_headers(service_with_event, scopes=scopes, pins=pins)).json()
        assert scope["key"] == {"private": scopes == "private", "pins": pins}


@pytest.mark.parametrize("address", ["/api/endpoints/logs.all/scope", "/api/endpoints/logs.all/sql?lql=x"])
def test_keys_that_may_not_query_are_refused(service: Service, address: str) -> None:
    assert httpx.get(service.url + address).status_code == 401
    assert httpx.get(service.url + address, headers={"X-API-KEY": PUBLIC}).status_code == 403


def test_private_field_names_are_omitted_for_a_redacted_key(service_with_event: Service) -> None:
    metadata = {"mails": {"someone@example.com": 1}}
    service_with_event.send("cloudflare.logs.prod", [{"event_message": "m", "project": "scope", "metadata": metadata}])
    address = f"{service_with_event.url}/api/endpoints/logs.all/scope"
    assert "someone@example.com" in httpx.get(address, headers=key_headers(service_with_event, scopes="query")).text
    assert (
        "someone@example.com"
        not in httpx.get(address, headers=key_headers(service_with_event, scopes="query", redact=True)).text
    )


def test_the_status_has_memory_cache_queries_and_streams(service_with_event: Service) -> None:
    service_with_event.rows("usage.api-counts", interval="daily", project="scope")
    service_with_event.rows("usage.api-counts", interval="daily", project="scope")
    service_with_event.rows("logs.all", project="scope", sql="select count(*) as n from edge_logs")
    body = service_with_event.client.get("/api/status").json()
    assert 0 < body["memory"]["bytes"] < body["memory"]["ceiling_bytes"]
    assert 0 < body["cache"]["bytes"] < body["cache"]["budget_bytes"]
    assert body["cache"]["requests"]["hit"] >= 1
    assert body["queries"]["waiting"] == 0
    slowest = {query["text"]: query for query in body["queries"]["slowest"]}
    slow_query = slowest["select count(*) as n from edge_logs"]
    assert (slow_query["endpoint"], slow_query["language"], slow_query["outcome"]) == ("logs.all", "sql", "ok")
    seconds = [query["seconds"] for query in body["queries"]["slowest"]]
    assert seconds == sorted(seconds, reverse=True)
    stream = body["streams"]["cloudflare.logs.prod"]
    assert stream["events"] >= 1
    assert stream["bytes"] > 0
    assert stream["events_per_second"] > 0


@pytest.mark.parametrize("terms", [{"pins": {"project": "mine"}}, {"redact": True}])
def test_a_restricted_key_sees_only_its_own_queries_in_the_status(
    service_with_event: Service, terms: dict[str, object]
) -> None:
    secret = "select 'of another key' as told from edge_logs limit 1"
    service_with_event.rows("logs.all", project="scope", sql=secret)
    restricted_key = key_headers(service_with_event, scopes="private", **terms)
    unrestricted_key = {"project": "mine", "sql": "select 'my own' as told from edge_logs limit 1"}
    httpx.get(f"{service_with_event.url}/api/endpoints/query/logs.all", params=unrestricted_key, headers=restricted_key)
    body = httpx.get(f"{service_with_event.url}/api/status", headers=restricted_key).json()
    assert {query["text"] for query in body["queries"]["slowest"]} == {unrestricted_key["sql"]}
    assert secret in {
        query["text"] for query in service_with_event.client.get("/api/status").json()["queries"]["slowest"]
    }


def test_the_status_needs_a_private_key(service: Service) -> None:
    assert httpx.get(service.url + "/api/status").status_code == 401
    assert httpx.get(service.url + "/api/status", headers={"X-API-KEY": PUBLIC}).status_code == 403
