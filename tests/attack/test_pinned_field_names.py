"""A pinned key never sees field names of other projects in answers, hints, notices or descriptions."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from tests.attack.test_pinned_queries import make_settings, send
from tests.chdb_databases import fresh_database

# A field name of another project. It is similar to SIMILAR_NAME, so that a hint could suggest it.
FOREIGN_NAME = "kq9plan4711"
SIMILAR_NAME = "kq9plan471"
OPEN_ENDPOINT = """/*
name = "open.star"
sandbox = true
[parameters.project]
required = true
*/
with logs as (select t.id, t.metadata from `postgres.logs` as t where t.project = @project)
select m.* from logs cross join unnest(logs.metadata) as m order by id
"""
TENANT_ENDPOINT = """/*
name = "by.tenant"
sandbox = true
[parameters.tenant]
required = true
*/
with logs as (select t.id, t.metadata from `postgres.logs` as t cross join unnest(t.metadata) as m where m.tenant = @tenant)
select id from logs
"""


def open_store(folder: Path, engine: str) -> Iterator[InProcessApp]:
    endpoints = folder / "endpoints"
    endpoints.mkdir()
    (endpoints / "open.star.sql").write_text(OPEN_ENDPOINT)
    (endpoints / "by.tenant.sql").write_text(TENANT_ENDPOINT)
    with open_in_process_app(make_settings(folder / "data", endpoints=endpoints, engine=engine)) as app:
        mine = {"plan": "free", "tenant": "t1", "request": {"path": "/"}}
        theirs = {
            "plan": "pro",
            "tenant": "t2",
            FOREIGN_NAME: {FOREIGN_NAME: 1},
            "request": {"path": "/", FOREIGN_NAME: [1]},
            "m": {"x": 1},
        }
        for stream in ("postgres.logs", "deno-subhosting-events"):
            for project, metadata in (("theirs", theirs), ("mine", mine)):
                body = [
                    {
                        "id": project,
                        "event_message": "x",
                        "project": project,
                        "metadata": {**metadata, "project_ref": project},
                    }
                ]
                assert send(app, f"/api/logs?source_name={stream}", body)[0] == 200
        yield app


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    engine = fresh_database() if request.param == "clickhouse" else "duckdb"
    yield from open_store(tmp_path_factory.mktemp("names"), engine)


def key(app: InProcessApp, scopes: str, **pins: str) -> str:
    return str(json.loads(send(app, "/api/access-tokens", {"scopes": scopes, "pins": pins})[1])["token"])


def fetch(app: InProcessApp, path: str, key: str, **query: str) -> str:
    """Return the headers and the body of an answer as one text, in which field names can be searched."""
    _, headers, body = app.send("GET", f"{path}?{urlencode(query)}", b"", {"x-api-key": key})
    return json.dumps(headers) + body.decode()


QUERIES = [
    "select m.* from postgres_logs cross join unnest(metadata) as m",
    "select m.request.* from postgres_logs cross join unnest(metadata) as m",
    "select m.* from function_logs cross join unnest(metadata) as m",
    "select * from function_logs",
    f"select {SIMILAR_NAME} from postgres_logs cross join unnest(metadata) as m",
    f"select m.* replace (1 as {SIMILAR_NAME}) from postgres_logs cross join unnest(metadata) as m",
    "select nothing_like_it from postgres_logs cross join unnest(metadata) as m",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_an_answer_names_no_path_that_only_other_projects_have(app: InProcessApp, sql: str) -> None:
    pinned = key(app, "query", project="mine")
    answer = fetch(app, "/api/endpoints/query/logs.all", pinned, sql=sql)
    assert FOREIGN_NAME not in answer.replace(f'"{SIMILAR_NAME}"', "")


def test_a_notice_does_not_depend_on_paths_of_other_projects(app: InProcessApp) -> None:
    pinned = key(app, "query", project="mine")
    sql = f"select m.{FOREIGN_NAME} as a from postgres_logs cross join unnest(metadata) as m"
    # The key without a pin sends the query first. Its answer must not be cached for the pinned key.
    unpinned = fetch(app, "/api/endpoints/query/logs.all", key(app, "query"), sql=sql, project="mine")
    assert f"path never seen: metadata.{FOREIGN_NAME}" not in unpinned
    assert f"path never seen: metadata.{FOREIGN_NAME}" in fetch(app, "/api/endpoints/query/logs.all", pinned, sql=sql)


def test_an_answer_with_columns_of_other_projects_is_not_cached_for_a_pinned_key(app: InProcessApp) -> None:
    sql = "select m.* from postgres_logs cross join unnest(metadata) as m"
    assert FOREIGN_NAME in fetch(app, "/api/endpoints/query/logs.all", key(app, "query"), sql=sql, project="mine")
    assert FOREIGN_NAME not in fetch(app, "/api/endpoints/query/logs.all", key(app, "query", project="mine"), sql=sql)


@pytest.mark.parametrize(
    "path",
    [
        "/api/endpoints/logs.all/scope",
        "/api/endpoints/open.star/scope",
        "/api/endpoints/query/open.star",
        "/api/openapi.json",
        "/docs",
        "/api/sources/postgres.logs/schema",
        "/api/sources/postgres.logs/schema?variant=dot",
        "/api/endpoints",
    ],
)
def test_no_description_names_a_path_that_only_other_projects_have(app: InProcessApp, path: str) -> None:
    assert FOREIGN_NAME not in fetch(app, path, key(app, "private", project="mine"))


def test_the_public_openapi_document_contains_no_field_names(app: InProcessApp) -> None:
    _, _, document = app.send("GET", "/api/openapi.json", b"", {"x-api-key": "none"})
    assert FOREIGN_NAME.encode() not in document
    assert b'"plan"' not in document
    assert FOREIGN_NAME in fetch(app, "/api/openapi.json", key(app, "query"))
    assert '"plan"' in fetch(app, "/api/openapi.json", key(app, "query", project="mine"))


def test_a_key_with_another_pin_is_shown_no_field_names(app: InProcessApp) -> None:
    pinned = key(app, "query", tenant="t1")
    scope = fetch(app, "/api/endpoints/by.tenant/scope", pinned)
    assert FOREIGN_NAME not in scope
    assert "plan" not in scope
    by_path = "select m.plan from logs cross join unnest(metadata) as m"
    assert '{"plan":"free"}' in fetch(app, "/api/endpoints/query/by.tenant", pinned, sql=by_path)
    star_answer = fetch(
        app, "/api/endpoints/query/by.tenant", pinned, sql="select m.* from logs cross join unnest(metadata) as m"
    )
    assert FOREIGN_NAME not in star_answer


def test_field_names_belong_to_the_project_of_the_streams_own_field(app: InProcessApp) -> None:
    body = [{"id": "elsewhere", "event_message": "x", "metadata": {"project_ref": "third", "only_third": 1}}]
    assert send(app, "/api/logs?source_name=deno-subhosting-events", body)[0] == 200
    sql = "select m.* from function_logs cross join unnest(metadata) as m"
    assert '"only_third":1' in fetch(app, "/api/endpoints/query/logs.all", key(app, "query", project="third"), sql=sql)
    assert "only_third" not in fetch(app, "/api/endpoints/query/logs.all", key(app, "query", project="mine"), sql=sql)
