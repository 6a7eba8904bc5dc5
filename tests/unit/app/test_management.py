"""Endpoints and streams, created, changed, deleted and restored over HTTP in the whole service without a socket."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.app import definitions
from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import IngestSettings, ServeSettings, Settings

SQL = "select t.id, t.event_message from `postgres.logs` as t where t.event_message = @message"
JSON_HEADERS = {"content-type": "application/json"}


class ManagedService:
    """A service in this process, and methods that send requests to it."""

    def __init__(self, inside: InProcessApp, folder: Path) -> None:
        self.inside = inside
        self.folder = folder

    def request(self, method: str, path: str, fields: object = None, **headers: str) -> tuple[int, Any]:
        status, _, response = self.send_request(method, path, fields, **headers)
        return status, response

    def send_request(
        self, method: str, path: str, fields: object = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        body = b"" if fields is None else json.dumps(fields).encode()
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        status, answered, response = self.inside.send(method, path, body, {**JSON_HEADERS, **header_fields})
        return status, answered, json.loads(response) if response else None

    def error(self, method: str, path: str, fields: object = None, **headers: str) -> tuple[int, str]:
        status, response = self.request(method, path, fields, **headers)
        return status, response["error"]["status"]

    def endpoint(self, name: str, query: str = SQL, **fields: object) -> Any:
        status, response = self.request("POST", "/api/endpoints", {"name": name, "query": query, **fields})
        assert status == 201, response
        return response

    def stream(self, name: str, **fields: object) -> Any:
        status, response = self.request("POST", "/api/sources", {"name": name, **fields})
        assert status == 201, response
        return response

    def send(self, stream: str, message: str) -> int:
        return self.request("POST", f"/api/logs?source_name={stream}", [{"event_message": message}])[0]

    def rows(self, name: str, query: str = "") -> Any:
        status, response = self.request("GET", f"/api/endpoints/query/{name}?{query}")
        return response["result"] if status == 200 else (status, response["error"]["status"])

    def key(self, **terms: object) -> str:
        status, response = self.request("POST", "/api/access-tokens", terms)
        assert status == 201, response
        return str(response["token"])

    def managed_files(self) -> dict[str, str]:
        """Return all managed files by path, with their texts."""
        places = [*self.folder.glob("endpoints/*"), *self.folder.glob("history/*"), *self.folder.glob("streams.toml*")]
        return {str(place.relative_to(self.folder)): place.read_text() for place in places}


def settings_at(folder: Path, endpoints: str = "", streams: str = "") -> Settings:
    serve = ServeSettings(data_dir=str(folder), endpoints=endpoints, streams=streams)
    return Settings(serve=serve, ingest=IngestSettings(new_streams=1000))


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedService]:
    """Yield one service for all tests that use distinct names of endpoints and streams."""
    folder = tmp_path_factory.mktemp("managing") / "data"
    with open_in_process_app(settings_at(folder)) as inside:
        yield ManagedService(inside, folder)


def test_an_endpoint_is_served_as_soon_as_it_is_created(shared_service: ManagedService) -> None:
    shared_service.send("postgres.logs", "hello")
    endpoint = shared_service.endpoint(
        "fresh", cache_duration_seconds=60, max_limit=7, description="ends here */ or not"
    )
    assert endpoint["origin"] == "managed"
    assert (endpoint["cache_duration_seconds"], endpoint["max_limit"]) == (60, 7)
    assert [parameter["name"] for parameter in endpoint["parameters"]] == ["message"]
    assert [row["event_message"] for row in shared_service.rows("fresh", "message=hello")] == ["hello"]
    assert [row["event_message"] for row in shared_service.rows(endpoint["token"], "message=hello")] == ["hello"]
    status, response = shared_service.request("GET", "/api/endpoints/fresh")
    assert (status, response) == (200, endpoint)
    assert endpoint in shared_service.request("GET", "/api/endpoints")[1]


def test_an_endpoint_may_be_written_in_clickhouses_dialect(shared_service: ManagedService) -> None:
    shared_service.send("postgres.logs", "first for ClickComponents")
    query = "with streams as (select * from `*` as t) select event_message from logs where event_message like '% ClickComponents'"
    endpoint = shared_service.endpoint("clickhouse", query, language="ch_sql")
    assert endpoint["language"] == "ch_sql"
    assert shared_service.rows("clickhouse") == [{"event_message": "first for ClickComponents"}]
    # A stream that is created later also becomes part of the endpoint's table.
    shared_service.stream("created.later")
    shared_service.send("created.later", "second for ClickComponents")
    assert len(shared_service.rows("clickhouse")) == 2
    assert shared_service.request("PUT", "/api/endpoints/clickhouse", {"description": "d"})[1]["language"] == "ch_sql"
    assert shared_service.request("DELETE", "/api/sources/created.later")[0] == 204
    assert shared_service.rows("clickhouse") == [{"event_message": "first for ClickComponents"}]


def test_put_and_patch_change_the_sent_fields_and_delete_removes(shared_service: ManagedService) -> None:
    endpoint = shared_service.endpoint("changing", max_limit=5)
    status, changed = shared_service.request(
        "PUT", "/api/endpoints/changing", {"description": "d", "sandboxable": None}
    )
    assert (status, changed["description"], changed["max_limit"], changed["query"]) == (200, "d", 5, endpoint["query"])
    status, unchanged = shared_service.request(
        "PATCH", f"/api/endpoints/{endpoint['token']}", {"name": "renamed", "max_limit": None}
    )
    assert (status, unchanged) == (204, None)
    assert shared_service.rows("changing", "message=x") == (404, "request.unknown-endpoint")
    status, renamed = shared_service.request("GET", "/api/endpoints/renamed")
    assert (status, renamed["token"], renamed["max_limit"], renamed["description"]) == (
        200,
        endpoint["token"],
        1000,
        "d",
    )
    # The old name can be used again, although the UUID that is derived from it is still in use.
    assert shared_service.endpoint("changing")["token"] != endpoint["token"]
    # The answer to a GET can be sent back with PUT, which writes nothing.
    before = shared_service.managed_files()
    assert shared_service.request("PUT", "/api/endpoints/renamed", renamed) == (200, renamed)
    assert shared_service.managed_files() == before
    assert shared_service.request("DELETE", "/api/endpoints/renamed") == (204, None)
    assert shared_service.rows("renamed", "message=x") == (404, "request.unknown-endpoint")
    assert shared_service.error("DELETE", "/api/endpoints/renamed") == (404, "request.unknown-endpoint")


@pytest.mark.parametrize(
    ("fields", "field", "message", "place"),
    [
        ({"query": "select t.id\nfrom `postgres.log` as t"}, "query", '"postgres.log" cannot be read here.', (2, 6)),
        ({"query": "select t.id from\n  `postgres.logs` as t where x ="}, "query", "Syntax error", (2, 32)),
        ({"query": "select nope(t.id) as n from `postgres.logs` as t"}, "query", "NOPE", (1, 8)),
        ({"query": ""}, "query", "query can't be blank.", None),
        ({"query": "select @x + 1 as n", "parameters": []}, "query", "x", (1, 8)),
        ({"name": None}, "name", "name can't be blank.", None),
        ({"zone": "Mars"}, "zone", "'Mars' is not a time zone.", None),
        ({"max_limit": 0}, "max_limit", "max_rows is 0, and must be at least 1.", None),
        ({"max_limit": "9"}, "max_limit", "max_limit is invalid.", None),
        (
            {"cache_duration_seconds": 5, "proactive_requerying_seconds": 9},
            "proactive_requerying_seconds",
            "warm",
            None,
        ),
        ({"parameters": [{"name": "sql"}]}, "parameters", "'sql' cannot be a parameter's name.", None),
        ({"parameters": [{"name": "a", "type": "blob"}]}, "parameters", "'blob' is not a type.", None),
        ({"language": "pg_sql"}, "language", "language is invalid.", None),
        ({"backend_id": 4}, "backend_id", "backend_id is not offered.", None),
        ({"sandboxed": True}, "sandboxed", "sandboxed is not a field.", None),
        ({"token": "x"}, "token", "token is invalid.", None),
    ],
)
def test_an_invalid_endpoint_is_refused_by_field_and_changes_nothing(
    shared_service: ManagedService, fields: dict[str, object], field: str, message: str, place: tuple[int, int] | None
) -> None:
    before = shared_service.managed_files()
    status, response = shared_service.request("POST", "/api/endpoints", {"name": "broken", "query": SQL, **fields})
    assert (status, response["error"]["status"], list(response["errors"])) == (422, "request.bad-definition", [field])
    assert message in response["error"]["message"]
    assert place in (None, (response["error"].get("line"), response["error"].get("column")))
    assert shared_service.rows("broken", "message=x") == (404, "request.unknown-endpoint")
    assert shared_service.managed_files() == before


HOSTILE_NAMES = ["../../etc/x", "..", ".", "a/b", "a\x00b", "line\nbreak", " padded ", "query", "NAME", "_own", "x" * 201, "\u202e", "",
         "f3b0a1de-5a3c-5b0e-9d0c-6f4f0d5a7c12"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused_and_written_to_no_file(shared_service: ManagedService, name: str) -> None:
    before = shared_service.managed_files()
    for path, fields in (("/api/endpoints", {"query": SQL}), ("/api/sources", {})):
        # Streams may have these names, because names of streams are not used in file names.
        if path == "/api/sources" and name in ("../../etc/x", "..", ".", "a/b", "query", "NAME"):
            continue
        assert shared_service.error("POST", path, {"name": name, **fields}) == (422, "request.bad-definition")
    assert shared_service.managed_files() == before


def test_names_are_not_used_in_file_names(shared_service: ManagedService) -> None:
    name = "..\\..\\Ünïcode 'q' \"d\" ; drop * --"
    endpoint = shared_service.endpoint(name, description=f"{name} */ select 2")
    assert endpoint["name"] == name
    assert (shared_service.folder / "endpoints" / f"{endpoint['token']}.sql").exists()
    shared_service.stream("../../etc/x")
    assert shared_service.send("..%2F..%2Fetc%2Fx", "m") == 200
    assert {place.parent.name for place in shared_service.folder.rglob("*.sql")} == {"endpoints"}
    assert not (shared_service.folder.parent.parent / "etc").exists()


def test_names_of_shipped_definitions_are_taken_in_any_case(shared_service: ManagedService) -> None:
    shipped = shared_service.request("GET", "/api/endpoints/logs.all")[1]
    assert shipped["origin"] == "shipped"
    stream_or_endpoint = shared_service.endpoint("mine")
    for name in ("logs.all", "LOGS.ALL", "usage.api-counts", "mine", "Mine"):
        status, response = shared_service.request("POST", "/api/endpoints", {"name": name, "query": "select 1 as n"})
        assert (status, response["errors"]) == (422, {"name": ["has already been taken"]})
    assert shared_service.error("PUT", "/api/endpoints/mine", {"name": "logs.all"}) == (422, "request.bad-definition")
    taken_fields = {"name": "another", "query": SQL, "token": shipped["token"]}
    assert shared_service.request("POST", "/api/endpoints", taken_fields)[1]["errors"] == {
        "token": ["has already been taken"]
    }
    for method in ("PUT", "PATCH", "DELETE"):
        for address in ("logs.all", shipped["token"]):
            assert shared_service.error(method, f"/api/endpoints/{address}", {}) == (409, "request.read-only")
    assert shared_service.error("PUT", "/api/endpoints/mine", {"token": shipped["token"]}) == (
        422,
        "request.bad-definition",
    )
    assert shared_service.request("GET", "/api/endpoints/logs.all")[1] == shipped
    assert shared_service.request("GET", "/api/endpoints/mine")[1] == stream_or_endpoint
    for name in ("postgres.logs", "Postgres.Logs"):
        assert shared_service.error("POST", "/api/sources", {"name": name}) == (422, "request.bad-definition")


def test_only_an_unrestricted_private_key_may_manage(shared_service: ManagedService) -> None:
    shared_service.endpoint("guarded")
    shared_service.stream("guarded.stream")
    before = shared_service.managed_files()
    requests = [
        ("POST", "/api/{}", {"name": "theirs", "query": SQL}),
        ("PUT", "/api/{}/guarded", {"description": "x"}),
        ("PATCH", "/api/{}/guarded", {"description": "x"}),
        ("DELETE", "/api/{}/guarded", None),
        ("GET", "/api/{}/guarded/versions", None),
        ("GET", "/api/{}/guarded/versions/1", None),
        ("POST", "/api/{}/guarded/versions/1/restore", None),
    ]
    keys = [
        shared_service.key(scopes="public"),
        shared_service.key(scopes="ingest"),
        shared_service.key(scopes="query"),
        shared_service.key(scopes="query:endpoint:guarded ingest:source:guarded.stream"),
        shared_service.key(scopes="private", pins={"project": "p"}),
        shared_service.key(scopes="private", redact=True),
    ]
    for kind in ("endpoints", "sources"):
        for method, path, fields in requests:
            for key in keys:
                assert shared_service.error(method, path.format(kind), fields, x_api_key=key) == (
                    403,
                    "request.forbidden",
                )
            assert shared_service.error(method, path.format(kind), fields, x_api_key="nobody")[0] == 401
    assert shared_service.managed_files() == before


def test_versions_are_listed_read_and_restored_even_after_deletion(shared_service: ManagedService) -> None:
    endpoint = shared_service.endpoint("history", description="first")
    shared_service.request("PUT", "/api/endpoints/history", {"description": "second"})
    listed = shared_service.request("GET", "/api/endpoints/history/versions")[1]
    assert [(item["version"], item["deleted"], item["current"]) for item in listed] == [
        (2, False, True),
        (1, False, False),
    ]
    first = shared_service.request("GET", "/api/endpoints/history/versions/1")[1]
    assert (first["description"], first["version"]) == ("first", 1)
    assert 'description = "first"' in first["text"]
    status, restored = shared_service.request("POST", "/api/endpoints/history/versions/1/restore")
    assert (status, restored) == (200, endpoint)
    shared_service.request("DELETE", "/api/endpoints/history")
    for address in ("history", endpoint["token"]):
        listed = shared_service.request("GET", f"/api/endpoints/{address}/versions")[1]
        assert [item["version"] for item in listed if item["deleted"]] == [4]
    assert shared_service.error("POST", "/api/endpoints/history/versions/4/restore") == (404, "request.unknown-version")
    assert (
        shared_service.request("POST", f"/api/endpoints/{endpoint['token']}/versions/2/restore")[1]["description"]
        == "second"
    )
    assert shared_service.rows("history", "message=x") == []
    for number in ("9", "0", "x", "9" * 30):
        assert shared_service.error("GET", f"/api/endpoints/history/versions/{number}") == (
            404,
            "request.unknown-version",
        )
    assert shared_service.error("GET", "/api/endpoints/nothing/versions") == (404, "request.unknown-endpoint")
    assert shared_service.request("GET", "/api/endpoints/logs.all/versions") == (200, [])


@pytest.mark.parametrize("kind", ["endpoints", "sources"])
def test_versions_of_a_deleted_definition_with_a_token_of_its_own_are_found_by_name(
    shared_service: ManagedService, kind: str
) -> None:
    make: Callable[..., Any] = shared_service.endpoint if kind == "endpoints" else shared_service.stream
    name = f"custom.{kind}"
    for token in ("6f0c1d5e-0000-4000-8000-000000000001", "6f0c1d5e-0000-4000-8000-000000000002"):
        make(name, token=token, description=f"with {token}")
        shared_service.request("DELETE", f"/api/{kind}/{name}")
        listed = shared_service.request("GET", f"/api/{kind}/{name}/versions")[1]
        assert [item["deleted"] for item in listed] == [True, False]
        first = shared_service.request("GET", f"/api/{kind}/{name}/versions/1")[1]
        assert (first["token"], first["description"]) == (token, f"with {token}")
    status, restored = shared_service.request("POST", f"/api/{kind}/{name}/versions/1/restore")
    assert (status, restored["token"]) == (200, token)
    assert shared_service.error("GET", f"/api/{kind}/custom/versions")[0] == 404


def test_versions_of_a_deleted_endpoint_are_found_by_its_last_name(shared_service: ManagedService) -> None:
    token = shared_service.endpoint("before.renaming")["token"]
    shared_service.request("PUT", "/api/endpoints/before.renaming", {"name": 'after "renaming"'})
    shared_service.request("DELETE", f"/api/endpoints/{token}")
    listed = shared_service.request("GET", "/api/endpoints/after%20%22renaming%22/versions")[1]
    assert [item["version"] for item in listed] == [3, 2, 1]
    assert shared_service.error("GET", "/api/endpoints/renaming/versions") == (404, "request.unknown-endpoint")


def test_a_version_is_restored_only_if_it_still_compiles(shared_service: ManagedService) -> None:
    shared_service.stream("gone.soon")
    shared_service.endpoint("reader", "select t.id from `gone.soon` as t")
    shared_service.request("PUT", "/api/endpoints/reader", {"query": SQL})
    shared_service.request("DELETE", "/api/sources/gone.soon")
    assert shared_service.error("POST", "/api/endpoints/reader/versions/1/restore") == (422, "request.bad-definition")
    assert shared_service.rows("reader", "message=x") == []


def test_if_match_refuses_changes_of_another_revision(shared_service: ManagedService) -> None:
    for path, definition in (
        ("/api/endpoints/met", shared_service.endpoint("met")),
        ("/api/sources/met.s", shared_service.stream("met.s")),
    ):
        tag = shared_service.send_request("GET", path)[1]["etag"]
        assert tag == f'"{definition["revision"]}"'
        for method in ("PUT", "PATCH", "DELETE"):
            assert shared_service.error(method, path, {}, if_match='"other"') == (412, "request.changed-meanwhile")
        assert shared_service.request("PUT", path, {"description": "a"}, if_match=f'"other", {tag}')[0] == 200
        assert shared_service.error("PUT", path, {"description": "b"}, if_match=tag) == (
            412,
            "request.changed-meanwhile",
        )
        assert shared_service.request("DELETE", path, if_match="*")[0] == 204


def test_a_created_stream_accepts_events_with_its_settings(shared_service: ManagedService) -> None:
    stream = shared_service.stream(
        "own.app", retention_days=30, description="ours", transform=[{"drop": "event_message:noise"}]
    )
    assert (stream["retention_days"], stream["description"], stream["origin"]) == (30, "ours", "managed")
    assert [shared_service.send("own.app", message) for message in ("noise", "signal")] == [200, 200]
    shared_service.endpoint("own", "select t.event_message as m from `own.app` as t")
    assert shared_service.rows("own") == [{"m": "signal"}]
    assert shared_service.request("PATCH", "/api/sources/own.app", {"transform": [], "rate": "1000/s"}) == (204, None)
    shared_service.send("own.app", "noise")
    assert sorted(row["m"] for row in shared_service.rows("own")) == ["noise", "signal"]
    response = shared_service.request("GET", f"/api/sources/{stream['token']}")[1]
    assert (response["transform"], response["rate"], response["retention_days"], response["events"]) == (
        [],
        "1000/s",
        30,
        2,
    )
    status, response = shared_service.request("DELETE", "/api/sources/own.app")
    assert (status, response["error"]["status"]) == (409, "request.in-use")
    assert "own" in response["error"]["message"]
    split = {"query": "select t.event_message as m from `own`.`app` as t"}
    assert shared_service.request("PUT", "/api/endpoints/own", split)[0] == 200
    assert shared_service.error("DELETE", "/api/sources/own.app") == (409, "request.in-use")
    shared_service.request("DELETE", "/api/endpoints/own")
    assert shared_service.request("DELETE", "/api/sources/own.app")[0] == 204
    # The events of a deleted stream stay stored. They can be read again once the stream is created again.
    assert shared_service.request("POST", "/api/sources/own.app/versions/2/restore")[1]["events"] == 0
    shared_service.endpoint("own", "select t.event_message as m from `own.app` as t")
    assert sorted(row["m"] for row in shared_service.rows("own")) == ["noise", "signal"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"retention_days": -1}, "retention_days"),
        ({"retention_days": "30"}, "retention_days"),
        ({"rate": "fast"}, "rate"),
        ({"late": {"after": "7d", "policy": "ignore"}}, "late"),
        ({"derive": {"project": "x"}}, "derive"),
        ({"transform": [{"drop": "((("}]}, "transform"),
        ({"transform": [{"drop": None}]}, "transform"),
        ({"transform": [{"sample": 10**400}]}, "transform"),
        ({"transform": [{"enrich": {"file": "/etc/passwd", "from": "a", "to": "metadata.b"}}]}, "transform"),
        ({"transform": [{"where": "x", "enrich": 1, "drop": "y"}]}, "transform"),
        ({"drop_lql_string": "m.level:debug"}, "drop_lql_string"),
        ({"retention": "5d"}, "retention"),
    ],
)
def test_an_invalid_stream_is_refused_and_changes_nothing(
    shared_service: ManagedService, fields: dict[str, object], field: str
) -> None:
    before = shared_service.managed_files()
    status, response = shared_service.request("POST", "/api/sources", {"name": "broken.stream", **fields})
    assert (status, list(response.get("errors", {}))) == (422, [field]), response
    assert shared_service.managed_files() == before
    # The stream is not among those that events have created, either.
    assert shared_service.request("GET", "/api/sources/broken.stream")[0] == 404


def test_a_shipped_stream_can_be_changed_and_reset(shared_service: ManagedService) -> None:
    shipped = shared_service.request("GET", "/api/sources/cloudflare.logs.prod")[1]
    status, response = shared_service.request("PUT", "/api/sources/cloudflare.logs.prod", {"retention_days": 7})
    assert (status, response["retention_days"], response["origin"], response["token"]) == (
        200,
        7,
        "managed",
        shipped["token"],
    )
    assert response["derive"] == shipped["derive"]
    # The project field cannot be changed, because pins of shipped endpoints rely on it.
    moved = shared_service.error("PUT", "/api/sources/storage.logs.prod.2", {"project": "metadata.other"})
    assert moved == (422, "request.bad-definition")
    for name in ("name", "token"):
        fields = {name: "f3b0a1de-5a3c-5b0e-9d0c-6f4f0d5a7c12"}
        assert shared_service.error("PUT", "/api/sources/cloudflare.logs.prod", fields) == (
            422,
            "request.bad-definition",
        )
    assert shared_service.request("DELETE", "/api/sources/cloudflare.logs.prod")[0] == 204
    assert shared_service.request("GET", "/api/sources/cloudflare.logs.prod")[1] == shipped
    assert shared_service.error("DELETE", "/api/sources/cloudflare.logs.prod") == (409, "request.read-only")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b'{"name": "a", "name": "b"}', b"\xff", b'{"a":' * 9999]
)
def test_a_body_that_is_not_an_object_is_400(shared_service: ManagedService, body: bytes) -> None:
    for method, path in (("POST", "/api/endpoints"), ("PUT", "/api/endpoints/x"), ("POST", "/api/sources")):
        status, _, response = shared_service.inside.send(method, path, body, JSON_HEADERS)
        assert (status, json.loads(response)["error"]["status"]) == (400, "request.bad-body")


def test_events_create_streams_beside_managed_ones(shared_service: ManagedService) -> None:
    shared_service.stream("before.events", description="kept")
    assert shared_service.send("made.by.events", "m") == 200
    shared_service.stream("after.events")
    names = {stream["name"]: stream["description"] for stream in shared_service.request("GET", "/api/sources")[1]}
    assert {"before.events": "kept", "made.by.events": "", "after.events": ""}.items() <= names.items()
    assert shared_service.request("DELETE", "/api/sources/made.by.events")[0] == 204


@pytest.mark.parametrize("name", [".", "..", "a.", "a.b."])
def test_a_new_stream_cannot_have_a_name_that_ends_in_a_dot(shared_service: ManagedService, name: str) -> None:
    for sent in ({"name": name}, f'[[stream]]\nname = "{name}"'):
        body, media = (json.dumps(sent), "application/json") if isinstance(sent, dict) else (sent, "text/plain")
        status, _, answer = shared_service.inside.send("POST", "/api/sources", body.encode(), {"content-type": media})
        assert (status, json.loads(answer)["error"]["status"]) == (422, "request.bad-definition")
    assert shared_service.send(name, "hello") == 404


def test_a_stream_of_a_data_folder_whose_name_ends_in_a_dot_can_be_queried_and_changed(tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text('[[stream]]\nname = "a."\n[[stream]]\nname = ".."\n')
    with open_in_process_app(settings_at(tmp_path)) as inside:
        service = ManagedService(inside, tmp_path)
        for number, name in enumerate(("a.", "..")):
            assert service.send(name, "hello") == 200
            service.endpoint(f"reader{number}", f"select event_message as m, `{name}`.project from `{name}`")
            assert service.rows(f"reader{number}") == [{"m": "hello", "project": None}]
        assert service.request("PATCH", "/api/sources/a.", {"description": "new"})[0] == 204


def test_a_name_that_differs_from_a_deleted_stream_only_in_case_is_refused(shared_service: ManagedService) -> None:
    """Refuse another spelling, because the deleted stream's events are still stored.

    Another spelling would read these events or prevent the next start.
    """
    shared_service.stream("Spelled.Once")
    assert shared_service.request("DELETE", "/api/sources/Spelled.Once")[0] == 204
    before = shared_service.managed_files()
    assert shared_service.error("POST", "/api/sources", {"name": "spelled.once"}) == (422, "request.bad-definition")
    for _ in range(2):
        assert shared_service.send("spelled.once", "m") == 404
    assert shared_service.managed_files() == before
    assert shared_service.send("Spelled.Once", "m") == 200


def test_a_name_that_differs_from_a_deleted_stream_in_case_is_refused_after_a_restart(tmp_path: Path) -> None:
    """Refuse another spelling, because the engine's table names are case-insensitive.

    The new stream would have the events of the deleted one.
    """
    settings = settings_at(tmp_path / "data")
    with open_in_process_app(settings) as inside:
        components = ManagedService(inside, tmp_path / "data")
        components.stream("Spelled.Once")
        assert components.send("Spelled.Once", "kept") == 200
        assert components.request("DELETE", "/api/sources/Spelled.Once")[0] == 204
    with open_in_process_app(settings) as inside:
        components = ManagedService(inside, tmp_path / "data")
        status, response = components.request("POST", "/api/sources", {"name": "spelled.once"})
        assert (status, response["error"]["status"]) == (422, "request.bad-definition")
        assert "whose events are still stored" in response["error"]["message"]
        assert components.send("spelled.once", "m") == 404
        assert components.request("POST", "/api/sources/Spelled.Once/versions/1/restore")[0] == 200
        answer = components.request("POST", "/api/query", {"sql": "select event_message as m from `Spelled.Once`"})
        assert answer[1]["result"] == [{"m": "kept"}]


def test_a_deleted_stream_cannot_be_queried(shared_service: ManagedService) -> None:
    shared_service.stream("read.before")
    shared_service.send("read.before", "secret")
    sql = "select event_message as m from `read.before`"
    query_request = ("POST", "/api/query", {"sql": sql})
    assert shared_service.request(*query_request)[1]["result"] == [{"m": "secret"}]
    assert shared_service.request("DELETE", "/api/sources/read.before")[0] == 204
    assert shared_service.error(*query_request) == (422, "query.refused")


def test_files_of_the_operator_are_read_only_and_take_precedence(tmp_path: Path) -> None:
    queries, streams = tmp_path / "queries", tmp_path / "streams.toml"
    queries.mkdir()
    (queries / "theirs.sql").write_text('/* name = "theirs" */ select 1 as n')
    streams.write_text('[[stream]]\nname = "their.stream"\n')
    settings = settings_at(tmp_path / "data", endpoints=str(queries), streams=str(streams))
    with open_in_process_app(settings) as inside:
        components = ManagedService(inside, tmp_path / "data")
        for method in ("PUT", "PATCH", "DELETE"):
            for path in ("/api/endpoints/theirs", "/api/sources/their.stream"):
                status, response = components.request(method, path, {"description": "x"})
                assert (status, response["error"]["status"]) == (409, "request.read-only")
                assert "a file of the operator" in response["error"]["message"]
        assert components.error("POST", "/api/endpoints", {"name": "Theirs", "query": SQL})[0] == 422
        assert components.error("POST", "/api/sources", {"name": "their.stream"})[0] == 422
        components.endpoint("mine", "select 2 as n")
        components.stream("my.stream", retention_days=3)
    (queries / "mine.sql").write_text('/* name = "mine" */ select 3 as n')
    with open_in_process_app(settings) as inside:
        components = ManagedService(inside, tmp_path / "data")
        assert components.rows("mine") == [{"n": 3}]
        assert components.error("PUT", "/api/endpoints/mine", {"description": "x"}) == (409, "request.read-only")
        assert components.request("GET", "/api/sources/my.stream")[1]["retention_days"] == 3


def test_the_texts_of_the_operators_definitions_are_shown_and_never_changed(tmp_path: Path) -> None:
    queries, streams, users = tmp_path / "queries", tmp_path / "streams.toml", tmp_path / "users.json"
    queries.mkdir()
    users.write_text('{"1": {"name": "x"}}')
    text = '-- ours\n/* name = "theirs"\nmax_rows = 5 */ select 1 as n\n'
    (queries / "theirs.sql").write_text(text)
    enrich = 'enrich = {file = "users.json", from = "metadata.user_id", to = "metadata.user"}'
    streams.write_text(f'[[stream]]\nname = "their.stream"\nretention = "90m"\n[[stream.transform]]\n{enrich}\n')
    with open_in_process_app(settings_at(tmp_path / "data", endpoints=str(queries), streams=str(streams))) as inside:
        components = ManagedService(inside, tmp_path / "data")
        # The service shows the text of the definition that it uses, even if the file is deleted.
        (queries / "theirs.sql").unlink()
        for path in ("/api/endpoints/theirs", "/api/sources/their.stream"):
            status, headers, shown_text = inside.send("GET", f"{path}/text", b"", {})
            assert (status, headers["etag"]) == (200, components.send_request("GET", path)[1]["etag"])
            status, _, response = inside.send("PUT", path, shown_text, {"content-type": "text/plain"})
            assert (status, json.loads(response)["error"]["status"]) == (409, "request.read-only")
            if "endpoints" in path:
                assert shown_text.decode() == text
        table = shown_text.decode()
        assert 'retention = "90m"\ntransform = [{enrich = {"metadata.user_id" = "metadata.user"}}]\n' in table
        assert "users.json" not in table
        body = table.replace("their.stream", "another").encode()
        status, _, response = inside.send("POST", "/api/sources", body, {"content-type": "text/plain"})
        assert (status, list(json.loads(response)["errors"])) == (422, ["transform"])


def test_an_error_in_a_file_with_an_operators_own_name_has_its_position(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "endpoints").mkdir(parents=True)
    (folder / "endpoints" / "by-hand.sql").write_text('/* name = "by.hand" */\nselect 1 as n')
    with open_in_process_app(settings_at(folder)) as inside:
        components = ManagedService(inside, folder)
        status, response = components.request("PUT", "/api/endpoints/by.hand", {"query": "select\n  nope(1) as n"})
        assert (status, response["error"]["line"], response["error"]["column"]) == (422, 2, 3)


def test_a_file_that_the_operator_edited_is_changed_in_place(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "endpoints").mkdir(parents=True)
    file = folder / "endpoints" / "by-hand.sql"
    file.write_text('/* name = "by.hand"\ntimeout = "3s" */\nselect 1 as n -- mine\n')
    (folder / "streams.toml").write_text('[[stream]]\nname = "by.hand"\nretention = "2d" # two\n')
    with open_in_process_app(settings_at(folder)) as inside:
        components = ManagedService(inside, folder)
        assert components.request("PUT", "/api/endpoints/by.hand", {"max_limit": 3})[1]["timeout_seconds"] == 3
        assert [place.name for place in (folder / "endpoints").iterdir()] == ["by-hand.sql"]
        assert components.request("PUT", "/api/sources/by.hand", {"rate": "5/s"})[1]["retention_days"] == 2
        versions = components.request("GET", "/api/endpoints/by.hand/versions")[1]
        assert [(version["version"], version["key"]) for version in versions] == [(2, "local:private"), (1, None)]
        assert "-- mine" in components.request("GET", "/api/endpoints/by.hand/versions/1")[1]["text"]
        file.unlink()
        assert components.error("PUT", "/api/endpoints/by.hand", {"max_limit": 4}) == (412, "request.changed-meanwhile")


def test_a_definition_that_cannot_be_written_is_not_served(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with open_in_process_app(settings_at(folder)) as inside:
        components = ManagedService(inside, folder)
        components.stream("kept", retention_days=5)
        for place in ("history", "endpoints"):
            # A file in place of the folder makes the write fail, as a full disk does.
            if (folder / place).exists():
                shutil.rmtree(folder / place)
            (folder / place).write_text("")
            assert components.error("POST", "/api/endpoints", {"name": "lost", "query": SQL}) == (507, "limit.disk")
            assert components.rows("lost", "message=x") == (404, "request.unknown-endpoint")
            (folder / place).unlink()
        shutil.rmtree(folder / "history")
        (folder / "history").write_text("")
        assert components.error("PUT", "/api/sources/kept", {"retention_days": 1}) == (507, "limit.disk")
        assert components.error("DELETE", "/api/sources/kept") == (507, "limit.disk")
        assert components.request("GET", "/api/sources/kept")[1]["retention_days"] == 5
        (folder / "history").unlink()
        components.endpoint("lost")


def test_definitions_and_their_history_have_size_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MAX_ENDPOINTS", 2)
    monkeypatch.setattr(definitions, "MAX_STREAMS", 2)
    monkeypatch.setattr("cordwood.catalog.file_catalog.MAX_HISTORIES_OF_DELETED_DEFINITIONS", 2)
    with open_in_process_app(settings_at(tmp_path / "data")) as inside:
        components = ManagedService(inside, tmp_path / "data")
        for number in range(5):
            components.endpoint(f"e{number}", "select 1 as n")
            assert components.request("DELETE", f"/api/endpoints/e{number}")[0] == 204
        assert len(list(components.folder.glob("history/*"))) == 2
        for number in range(2):
            components.endpoint(f"kept{number}", "select 1 as n")
            components.stream(f"kept{number}")
        assert components.error("POST", "/api/endpoints", {"name": "third", "query": SQL}) == (422, "limit.definitions")
        assert components.error("POST", "/api/sources", {"name": "third"}) == (422, "limit.definitions")
        assert components.request("PUT", "/api/sources/kept0", {"rate": "5/s"})[0] == 200
        large = f"select '{'x' * definitions.MAX_ENDPOINT_FILE_BYTES}' as n"
        assert components.error("PUT", "/api/endpoints/kept0", {"query": large}) == (413, "request.too-large")
        text = {"description": "x" * definitions.MAX_STREAM_DEFINITION_BYTES}
        assert components.error("PUT", "/api/sources/kept0", text) == (413, "request.too-large")
        for number in range(60):
            query = f"select {number} as n, '{'x' * 20_000}' as filling"
            assert components.request("PUT", "/api/endpoints/kept0", {"query": query})[0] == 200
        assert max(file.stat().st_size for file in components.folder.glob("history/*")) < 300_000
        versions = components.request("GET", "/api/endpoints/kept0/versions")[1]
        assert versions[0]["version"] == 61
        assert 2 <= len(versions) < 20


def test_an_endpoint_that_compiles_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.app.compose.MAX_ENDPOINT_CHECK_SECONDS", 0.0)
    with open_in_process_app(settings_at(tmp_path / "data")) as inside:
        components = ManagedService(inside, tmp_path / "data")
        query = "with a as (select 1 as n), b as (select n from a) select n from b"
        components.endpoint("plain", query)
        status, response = components.request("PUT", "/api/endpoints/plain", {"sandboxable": True})
        assert (status, response["errors"]["query"]) == (
            422,
            ["The endpoint's sub-queries take more than 0 s to compile."],
        )
