"""ClickHouse addresses: transport, options, and errors that are found without a connection."""

import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.cli import commands
from cordwood.engines.clickhouse.session import Session, client_arguments
from cordwood.errors import BadSetting, DataFolderUnusable, EngineUnreachable


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("clickhouse://user:password@host:8443/db?secure=1", "https"),
        ("clickhouse://host:9000/db?secure=true", "https"),
        ("clickhouses://host/db", "https"),
        ("clickhouse://host:8443/db?secure=0", "http"),
        ("clickhouse://host/db", "http"),
        ("clickhouse://host:8443/db", "https"),
    ],
)
def test_the_scheme_port_and_secure_choose_the_transport(address: str, interface: str | None) -> None:
    assert client_arguments(address)["interface"] == interface


def test_other_options_are_passed_to_the_client() -> None:
    arguments = client_arguments("clickhouse://u:p%40ss@[::1]:9/db?secure=1&verify=0")
    assert arguments["dsn"] == "clickhouse://u:p%40ss@[::1]:9/db?verify=0"


@pytest.mark.parametrize("options", ["secure=1", "secure=0", "secure=1&verify=0&compress=lz4"])
def test_the_client_accepts_the_options(options: str) -> None:
    with pytest.raises(EngineUnreachable):
        Session(f"clickhouse://u:p@127.0.0.1:1/db?{options}").execute("SELECT 1")


def test_the_caches_of_the_in_process_engine_are_bounded(tmp_path: Path) -> None:
    """Read the sizes in a new process, because the first connection of a process sets them."""
    code = (
        "import sys; from cordwood.engines.clickhouse.session import Session;"
        'print(Session(sys.argv[1]).fetch_rows("SELECT sum(toUInt64(value)) FROM system.server_settings WHERE name IN'
        " ('mark_cache_size', 'index_mark_cache_size', 'primary_index_cache_size', 'query_condition_cache_size')\")[0][0])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, f"chdb://{tmp_path}/folder"], capture_output=True, text=True, check=True
    )
    assert 0 < int(output.stdout) < 256 << 20


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("clickhouse://u:secret@host:port/db", "'port' is not a port"),
        ("clickhouse://host:99999/db", "'99999' is not a port"),
        ("clickhouse://u:secret@host/db?cluster=logs", "'cluster' is not an option"),
        ("clickhouse://u:secret@host/db?secure=maybe", "secure is 1 or 0"),
        ("clickhouse://u:secret@host/db?secure=1&verify=", "verify is 1 or 0"),
        ("clickhouse://u:secret@host/db?ca_cert=/ca.pem", "'ca_cert' is for TLS"),
        ("chdb://folder/of/mine", "absolute path"),
        ("chdb:///folder?secure=1", "'secure' is not an option"),
        ("postgresql://host/db", "begins with clickhouse://"),
    ],
)
def test_an_invalid_address_is_reported_without_the_password(address: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message) as raised:
        Session(address)
    assert "secret" not in str(raised.value)


def test_a_dry_run_reports_an_invalid_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        commands.run_command_line(["engine", "prepare", "--dry-run", "--engine", "clickhouse://host/db?cluster=logs"])
        == 1
    )
    assert "'cluster' is not an option" in capsys.readouterr().err


def test_a_folder_that_cannot_be_created_is_reported_with_the_reason() -> None:
    with pytest.raises(DataFolderUnusable, match="/dev/null/x cannot be made: Not a directory"):
        Session("chdb:///dev/null/x").execute("SELECT 1")
