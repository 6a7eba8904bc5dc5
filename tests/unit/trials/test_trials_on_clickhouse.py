"""Endpoint tests on ClickHouse, in temporary databases of this process or of a server."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.errors import BadSetting
from cordwood.settings.settings import ServeSettings, Settings
from cordwood.trials.runner import CaseResult, case_report, find_pages, run_pages
from tests.chdb_databases import bare_connection, fresh_database

ENDPOINT_TEXT = """/*
name = "counted"
sandbox = true
*/
with e as (select t.id, t.metadata from `postgres.logs` as t)
select count(*) as n, sum(cast(metadata.n as int64)) as total from e
"""
PAGE_TEXT = """# counted

```events postgres.logs
{"id": "a", "metadata": {"n": 1}}
{"id": "b", "metadata": {"n": 2}}
```

## both

```rows
{"n": 2, "total": 3}
```

## one, of a case's own

```events postgres.logs
{"id": "c", "metadata": {"n": 5}}
```

```rows
{"n": 3, "total": 8}
```
"""


def run_trials(folder: Path, engine: str, page: str = PAGE_TEXT) -> list[CaseResult]:
    (folder / "counted.sql").write_text(ENDPOINT_TEXT)
    (folder / "counted.test.md").write_text(page)
    return list(run_pages(Settings(serve=ServeSettings(endpoints=str(folder))), find_pages(folder), engine))


def databases() -> set[str]:
    connection = bare_connection()
    try:
        return set(str(connection.query("SELECT name FROM system.databases", "TabSeparated")).split())
    finally:
        connection.close()


def test_the_shipped_pages_pass_on_clickhouse() -> None:
    trials = list(run_pages(Settings(), find_pages(None), fresh_database()))
    assert len(trials) > 15
    assert not [case_report(trial) for trial in trials if not trial.passed]


def test_the_databases_of_cases_are_dropped(tmp_path: Path) -> None:
    address = fresh_database()
    before = databases()
    assert all(trial.passed for trial in run_trials(tmp_path, address))
    assert databases() == before


def test_the_databases_of_an_invalid_page_are_dropped(tmp_path: Path) -> None:
    address = fresh_database()
    before = databases()
    with pytest.raises(Exception, match="is not a time"):
        run_trials(tmp_path, address, PAGE_TEXT + "\n```clock\nsoon\n```\n")
    assert databases() == before


def test_on_a_server_each_set_of_data_has_a_temporary_database(tmp_path: Path) -> None:
    address = fresh_database()
    serve_clickhouse = importlib.import_module("tests.clickhouse_server").serve_clickhouse
    with serve_clickhouse(address) as server:
        assert all(trial.passed for trial in run_trials(tmp_path, server.address()))
        database_statements = [
            sql for sql, _ in server.control.statements if sql.startswith(("CREATE DATABASE", "DROP DATABASE"))
        ]
    assert [sql.split()[0] for sql in database_statements] == ["CREATE", "CREATE", "DROP", "DROP"]
    assert all("cordwood_test_" in sql for sql in database_statements)


def test_the_command_runs_on_the_engine_of_its_option(tmp_path: Path) -> None:
    if importlib.util.find_spec("chdb") is None:
        pytest.skip("chdb is not installed: it comes with the development dependencies")
    run_trials(tmp_path, "duckdb")
    run = subprocess.run(
        [sys.executable, "-m", "cordwood", "test", str(tmp_path), "--engine", "chdb://"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout


def test_the_engine_of_the_settings_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORDWOOD_ENGINE", "clickhouse://nobody.invalid/production")
    settings = Settings(engine="clickhouse://nobody.invalid/production", serve=ServeSettings(endpoints=str(tmp_path)))
    (tmp_path / "counted.sql").write_text(ENDPOINT_TEXT)
    (tmp_path / "counted.test.md").write_text(PAGE_TEXT)
    assert all(trial.passed for trial in run_pages(settings, find_pages(tmp_path)))


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="is not an engine"):
        run_trials(tmp_path, "postgres://x")
