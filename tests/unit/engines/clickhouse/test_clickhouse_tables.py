"""The DDL statements: their text, parsing by ClickHouse, and their run by `cordwood engine prepare`."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from cordwood.cli.commands import run_command_line
from cordwood.engines.clickhouse.session import Session
from cordwood.engines.clickhouse.storage import check_server_version
from cordwood.engines.clickhouse.tables import TableStatementBuilder, quote_identifier
from cordwood.errors import BadSetting
from cordwood.model.definitions import Stream

STREAMS = [
    Stream("edge.logs", uuid.UUID(int=1), retention_seconds=86400.0),
    Stream("odd `name\\ of '", uuid.UUID(int=2)),
]


@pytest.mark.parametrize("cluster", ["", "logs", "two words"])
def test_clickhouse_parses_every_statement(address: str, cluster: str) -> None:
    """Parse each statement with EXPLAIN AST, which does not run it, because the tests have no cluster."""
    session = Session(address)
    for statement in TableStatementBuilder(cluster).schema_statements(STREAMS):
        session.execute(f"EXPLAIN AST {statement}")
    session.close()


def test_a_cluster_has_replicated_tables_and_one_over_all_shards() -> None:
    statements_text = "\n".join(TableStatementBuilder("logs").schema_statements(STREAMS[:1]))
    assert "CREATE TABLE IF NOT EXISTS `edge.logs local` ON CLUSTER `logs`" in statements_text
    assert "ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/edge.logs', '{replica}')" in statements_text
    assert "CREATE TABLE IF NOT EXISTS `edge.logs` ON CLUSTER `logs` AS `edge.logs local`" in statements_text
    assert "Distributed(`logs`, currentDatabase(), `edge.logs local`, cityHash64(id))" in statements_text
    assert "TTL timestamp + toIntervalSecond(86400)" in statements_text


def test_one_server_has_one_table_a_stream() -> None:
    statements_text = "\n".join(TableStatementBuilder().schema_statements(STREAMS[:1]))
    assert "CLUSTER" not in statements_text
    assert "Distributed" not in statements_text
    assert "PARTITION BY toYYYYMMDD(timestamp)\nORDER BY (project, timestamp DESC)" in statements_text


@pytest.mark.parametrize("version", ["26.7.2.15", "25.12.1", "24.8"])
def test_a_server_version_that_loses_rows_is_refused(version: str) -> None:
    with pytest.raises(BadSetting, match=f"ClickHouse {version} is too old: 26.8 or later"):
        check_server_version(version)


@pytest.mark.parametrize("version", ["26.8.1.1", "26.10.3", "27.1.1.1-altinity"])
def test_a_later_server_version_is_accepted(version: str) -> None:
    check_server_version(version)


def test_tables_are_sorted_newest_first_with_a_time_index() -> None:
    """Check the sort order and the index, with which queries for the newest events skip other parts of the table.

    Decision 0075 gives the reasons.
    """
    statements_text = "\n".join(TableStatementBuilder().schema_statements(STREAMS[:1]))
    assert "ORDER BY (project, timestamp DESC)" in statements_text
    assert "INDEX by_time timestamp TYPE minmax GRANULARITY 1" in statements_text


def test_preparing_is_idempotent(address: str) -> None:
    session = Session(address)
    for statement in [
        *TableStatementBuilder().schema_statements(STREAMS),
        *TableStatementBuilder().schema_statements(STREAMS),
    ]:
        session.execute(statement)
    names = {row[0] for row in session.fetch_rows("SELECT name FROM system.tables WHERE database = currentDatabase()")}
    assert {stream.name for stream in STREAMS} <= names
    assert session.fetch_rows(f"SELECT count() FROM {quote_identifier(STREAMS[1].name)}") == [(0,)]
    session.close()


def test_a_table_of_an_earlier_version_gets_the_codec_of_this_one(address: str) -> None:
    """Check that the column's codec is changed.

    Stored events keep the old codec until they are merged.
    """
    session = Session(address)
    statements = list(TableStatementBuilder().schema_statements(STREAMS[1:]))
    events = quote_identifier(STREAMS[1].name)
    for statement in statements:
        if not statement.startswith("ALTER"):
            session.execute(statement.replace("id String CODEC(ZSTD(1))", "id String"))
    session.execute(f"INSERT INTO {events} (id, timestamp) SELECT 'old', now64(6)")
    for statement in statements:
        session.execute(statement)
    session.execute(f"INSERT INTO {events} (id, timestamp) SELECT 'new', now64(6)")
    codecs = session.fetch_rows(
        "SELECT compression_codec FROM system.columns WHERE name = 'id' AND table = {table:String}"
        " AND database = currentDatabase()",
        {"table": STREAMS[1].name},
    )
    assert codecs == [("CODEC(ZSTD(1))",)]
    assert session.fetch_rows(f"SELECT id FROM {events} ORDER BY id") == [("new",), ("old",)]
    session.close()


def test_removing_a_retention_removes_its_ttl(address: str) -> None:
    session = Session(address)
    for stream in (STREAMS[0], Stream("edge.logs", STREAMS[0].id)):
        for statement in TableStatementBuilder().schema_statements([stream]):
            session.execute(statement)
    ((table_definition,),) = session.fetch_rows(
        "SELECT create_table_query FROM system.tables WHERE name = 'edge.logs' AND database = currentDatabase()"
    )
    assert "toIntervalYear(100)" in str(table_definition)
    assert "86400" not in str(table_definition)
    session.close()


def test_a_dry_run_prints_the_statements_without_connecting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORDWOOD_CLICKHOUSE_CLUSTER", "logs")
    assert run_command_line(["engine", "prepare", "--engine", "clickhouse://nowhere.invalid/logs", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ENGINE = ReplicatedMergeTree") == printed.count("ENGINE = Distributed") - 2
    assert "`cloudflare.logs.prod local` ON CLUSTER `logs`" in printed


def test_prepare_creates_the_tables_of_all_streams(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["engine", "prepare", "--engine", address]) == 0
    assert "streams are prepared" in capsys.readouterr().out
    session = Session(address)
    assert session.fetch_rows("SELECT count() FROM `cloudflare.logs.prod`") == [(0,)]
    session.close()


def test_duckdb_needs_no_preparation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["engine", "prepare"]) == 1
    assert "needs no preparation" in capsys.readouterr().err


def test_the_client_is_not_imported_without_clickhouse() -> None:
    code = (
        "import sys, cordwood.app.service; from cordwood.app.checks import COMPILE_TARGET_FACTORIES; COMPILE_TARGET_FACTORIES['clickhouse']();"
        "print([m for m in sys.modules if 'chdb' in m or 'clickhouse_connect' in m])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_missing_package_is_reported_with_the_install_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "clickhouse_connect", None)
    for module in [
        name
        for name in sys.modules
        if name.startswith(("cordwood.app.clickhouse", "cordwood.engines.clickhouse.session"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "cordwood.engines.clickhouse.clickhouse_engine", raising=False)
    assert run_command_line(["engine", "prepare", "--engine", "clickhouse://host/logs"]) == 1
    assert "pip install 'cordwood[clickhouse]'" in capsys.readouterr().err
