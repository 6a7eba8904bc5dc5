"""A query with a key that is pinned to one project never returns data of another project.

All forbidden queries are tried, and some permitted ones.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import Settings
from tests.attack.attacks import (
    CALL_PLACES,
    FUNCTIONS,
    OTHER_REFUSED_QUERIES,
    STATEMENTS,
    TABLE_NAMES,
    TABLE_PLACES,
    TABLES_OUTSIDE_SCOPE,
)
from tests.chdb_databases import fresh_database

# A text that every field of the other project's events contains.
FOREIGN_TEXT = "f0re1gn"
SUB_QUERIES = ("edge_logs", "postgres_logs", "auth_logs", "function_logs", "realtime_logs")
STREAMS = ("cloudflare.logs.prod", "postgres.logs", "gotrue.logs.prod", "deno-subhosting-events", "realtime.logs.prod")

ATTACKS = [
    *(place.replace("X", table) for place in TABLE_PLACES for table in (*TABLES_OUTSIDE_SCOPE, *SUB_QUERIES)),
    *(f"select * from {table}" for table in TABLE_NAMES),
    *(f"select {function} from edge_logs" for function in FUNCTIONS),
    *CALL_PLACES,
    *STATEMENTS,
    *(sql for sql, _ in OTHER_REFUSED_QUERIES),
]
PERMITTED_QUERIES = [
    "select * from edge_logs",
    "select * from edge_logs where true or @project = 'other'",
    "select * from edge_logs where @project = 'default' union all select * from edge_logs",
    "with edge_logs as (select * from postgres_logs) select * from edge_logs",
    "select (select string_agg(event_message, ',') from auth_logs) as x",
    "select * from edge_logs as a full join edge_logs as b on a.id != b.id",
    "select count(*) over () as n, event_message from edge_logs order by n",
]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    with open_with_two_projects(request.param, tmp_path_factory.mktemp("pinned"), per_project=3) as app:
        yield app


@contextmanager
def open_with_two_projects(engine: str, folder: Path, *others: object, per_project: int = 1) -> Iterator[InProcessApp]:
    """Open a service in which every stream has the same events for two projects, and the events `others`."""
    address = fresh_database() if engine == "clickhouse" else engine
    projects = ("default", "ours"), ("other", FOREIGN_TEXT)
    with open_in_process_app(make_settings(folder / "data", engine=address)) as app:
        for stream in STREAMS:
            events = [event(project, mark) for project, mark in projects for _ in range(per_project)]
            assert send(app, f"/api/logs?source_name={stream}", [*events, *others])[0] == 200
        yield app


def make_settings(
    folder: Path, *, endpoints: Path | None = None, streams: Path | None = None, engine: str = "duckdb"
) -> Settings:
    defaults = Settings()
    files = {"endpoints": str(endpoints or ""), "streams": str(streams or "")}
    serve = msgspec.structs.replace(defaults.serve, data_dir=str(folder), **files)
    quiet = msgspec.structs.replace(defaults.web, log_level="error")
    return msgspec.structs.replace(defaults, engine=engine, serve=serve, web=quiet)


@pytest.fixture(scope="module")
def key(app: InProcessApp) -> str:
    return pinned_key(app)


def pinned_key(app: InProcessApp) -> str:
    _, answer = send(app, "/api/access-tokens", {"scopes": "query", "pins": {"project": "default"}})
    return str(json.loads(answer)["token"])


def event(project: str, mark: str) -> dict[str, object]:
    metadata = {"project": project, "project_ref": project, "mark": mark, "request": {"path": f"/rest/{mark}"}}
    return {"event_message": mark, "project": project, "metadata": metadata}


def send(app: InProcessApp, path: str, body: object, **headers: str) -> tuple[int, str]:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    status, _, answer = app.send(
        "POST", path, json.dumps(body).encode(), {"content-type": "application/json", **header_fields}
    )
    return status, answer.decode()


def ask(app: InProcessApp, key: str, **body: str) -> tuple[int, str]:
    return send(app, "/api/endpoints/query/logs.all", body, x_api_key=key)


def test_without_a_pin_the_other_project_is_readable(app: InProcessApp) -> None:
    for sub_query in SUB_QUERIES:
        assert FOREIGN_TEXT in ask(app, app.private_key_secret, project="other", sql=f"select * from {sub_query}")[1]


@pytest.mark.parametrize("sql", PERMITTED_QUERIES)
def test_permitted_queries_read_only_the_pinned_project(app: InProcessApp, key: str, sql: str) -> None:
    status, answer = ask(app, key, sql=sql)
    assert status == 200, answer
    assert FOREIGN_TEXT not in answer


@pytest.mark.parametrize("sql", [*ATTACKS, *PERMITTED_QUERIES])
def test_an_attack_reads_nothing_of_another_project(app: InProcessApp, key: str, sql: str) -> None:
    assert FOREIGN_TEXT not in ask(app, key, sql=sql)[1]
    status, answer = ask(app, key, sql=sql, project="other")
    assert status == 403
    assert FOREIGN_TEXT not in answer


def test_counts_include_only_the_pinned_project(app: InProcessApp, key: str) -> None:
    assert json.loads(ask(app, key, sql="select count(*) as n from edge_logs")[1]) == {"result": [{"n": 3}]}


def test_an_endpoint_without_the_pinned_parameter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.sql").write_text('/* name = "all" */ select event_message from `cloudflare.logs.prod`')
    with open_in_process_app(make_settings(tmp_path / "data", endpoints=tmp_path)) as app:
        _, answer = send(app, "/api/access-tokens", {"scopes": "query", "pins": {"project": "default"}})
        path, key = "/api/endpoints/query/all", str(json.loads(answer)["token"])
        assert send(app, path, {}, x_api_key=key)[0] == 403
        assert send(app, path, {"project": "default"}, x_api_key=key)[0] == 403
