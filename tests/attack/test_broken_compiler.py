"""The isolation check refuses and logs wrong statements of a deliberately broken compiler, so that they never run."""

import io
import json
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.engines.clickhouse.rules import RULES as CLICKHOUSE_RULES
from cordwood.engines.clickhouse.session import BoundQuery, SelectResult, Session
from cordwood.engines.duckdb.query import query_runner
from cordwood.engines.duckdb.rules import RULES as DUCKDB_RULES
from cordwood.sql.lowering import LoweringRule, fragment_node
from tests.attack.test_pinned_queries import FOREIGN_TEXT, event, make_settings, send
from tests.chdb_databases import fresh_database
from tests.isolation_check import disable_isolation_check

STREAM, OTHER_STREAM = "cloudflare.logs.prod", "postgres.logs"
BROKEN_TRANSLATION = {
    "duckdb": f'(SELECT string_agg(event_message, chr(10)) FROM memory.memtable."{OTHER_STREAM}")',
    "clickhouse": f"(SELECT arrayStringConcat(groupArray(assumeNotNull(event_message))) FROM `{OTHER_STREAM}`)",
}
SQL = "select upper(id) as id from edge_logs"


@pytest.fixture(autouse=True)
def no_isolation_refusals() -> None:
    """Replace the fixture of conftest.py, which would fail these tests, because they expect refusals."""


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def statements_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every statement that is passed to the engine is added."""
    statements: list[str] = []
    parsed: Callable[..., Any] = query_runner._parse_select
    select: Callable[..., AbstractContextManager[SelectResult]] = Session.select

    def one_statement(cursor: Any, sql: str) -> Any:
        statements.append(sql)
        return parsed(cursor, sql)

    def selected(self: Session, query: BoundQuery) -> AbstractContextManager[SelectResult]:
        if not query.sql.startswith("SELECT parseQueryToJSON("):
            statements.append(query.sql)
        return select(self, query)

    monkeypatch.setattr(query_runner, "_parse_select", one_statement)
    monkeypatch.setattr(Session, "select", selected)
    return statements


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Return a buffer that captures the text which the service writes to standard error."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written, write_through=True))
    return written


@pytest.fixture
def app(
    engine: str, statements_run: list[str], log: io.BytesIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InProcessApp]:
    """Open a service whose broken compiler translates UPPER to a query of another stream."""
    rules: Any = (DUCKDB_RULES if engine == "duckdb" else CLICKHOUSE_RULES).by_node_class
    table: MutableMapping[type[exp.Expr], LoweringRule] = rules
    monkeypatch.setitem(table, exp.Upper, lambda _: fragment_node(BROKEN_TRANSLATION[engine]))
    address = fresh_database() if engine == "clickhouse" else "duckdb"
    with open_in_process_app(make_settings(tmp_path / "data", engine=address)) as app:
        for stream, mark in ((STREAM, "ours"), (OTHER_STREAM, FOREIGN_TEXT)):
            assert send(app, f"/api/logs?source_name={stream}", [event("default", mark)])[0] == 200
        # Create the stream's memtable, which the first query of a stream does, before statements are recorded.
        assert run_query(app, "select count(*) as n from postgres_logs")[0] == 200
        statements_run.clear()
        log.truncate(0)
        yield app


def run_query(app: InProcessApp, sql: str = SQL) -> tuple[int, dict[str, Any]]:
    status, body = send(app, "/api/endpoints/query/logs.all", {"project": "default", "sql": sql})
    return status, json.loads(body)


def test_a_statement_of_another_stream_is_refused_and_logged(
    app: InProcessApp, engine: str, statements_run: list[str], log: io.BytesIO
) -> None:
    status, body = run_query(app)
    assert (status, body["error"]["status"]) == (500, "bug.isolation")
    assert [text for text in statements_run if OTHER_STREAM in text] == []
    assert FOREIGN_TEXT not in json.dumps(body)
    assert OTHER_STREAM not in json.dumps(body)
    (line,) = [json.loads(line) for line in log.getvalue().splitlines() if b'"event":"isolation"' in line]
    assert (line["level"], line["engine"]) == ("error", engine)
    assert BROKEN_TRANSLATION[engine] in line["sql"]
    assert OTHER_STREAM in line["breach"]
    assert line["incident"] in body["error"]["hint"]


def test_each_refusal_is_counted(app: InProcessApp, engine: str) -> None:
    assert [run_query(app)[0] for _ in range(3)] == [500] * 3
    _, _, metrics = app.send("GET", "/metrics", b"", {})
    assert f'cordwood_isolation_refusals_total{{engine="{engine}"}} 3' in metrics.decode().splitlines()


def test_without_the_check_the_statement_is_run(
    app: InProcessApp, engine: str, statements_run: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a wrong statement runs if the isolation check is off, so that the other tests are meaningful.

    On ClickHouse, the other stream is an empty table while the query runs, so that its text is not returned.
    """
    disable_isolation_check(monkeypatch)
    status, body = run_query(app)
    assert status == 200
    assert any(OTHER_STREAM in text for text in statements_run)
    assert (FOREIGN_TEXT in json.dumps(body)) is (engine == "duckdb")
