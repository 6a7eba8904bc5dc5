"""A query with a key that is pinned to a project reads only this project, even if the isolation check is off."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from tests.attack.test_pinned_queries import (
    ATTACKS,
    FOREIGN_TEXT,
    PERMITTED_QUERIES,
    STREAMS,
    ask,
    event,
    make_settings,
    send,
)
from tests.chdb_databases import fresh_database
from tests.isolation_check import disable_isolation_check


@pytest.fixture(params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessApp]:
    disable_isolation_check(monkeypatch)
    engine = fresh_database() if request.param == "clickhouse" else "duckdb"
    with open_in_process_app(make_settings(tmp_path / "data", engine=engine)) as app:
        for stream in STREAMS:
            events = [event("default", "ours"), event("other", FOREIGN_TEXT)]
            assert send(app, f"/api/logs?source_name={stream}", events)[0] == 200
        yield app


def test_every_attack_is_refused_or_reads_only_the_pinned_project(app: InProcessApp) -> None:
    response = send(app, "/api/access-tokens", {"scopes": "query", "pins": {"project": "default"}})[1]
    key = str(json.loads(response)["token"])
    answers = {sql: ask(app, key, sql=sql) for sql in [*ATTACKS, *PERMITTED_QUERIES]}
    assert [sql for sql, (_, body) in answers.items() if FOREIGN_TEXT in body] == []
    assert [sql for sql, (status, _) in answers.items() if status >= 500] == []
    assert sum(status == 200 for status, _ in answers.values()) >= len(PERMITTED_QUERIES)
