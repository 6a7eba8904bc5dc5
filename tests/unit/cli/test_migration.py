"""The migration from Logflare without a database: its saved state, and errors of its arguments."""

import json
import sys
from pathlib import Path

import pytest

from cordwood.cli import commands
from cordwood.cli.migrate import MigrationState
from cordwood.errors import RefusedByService


def test_the_state_is_durable_and_survives_an_incomplete_write(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    state = MigrationState(file, "there to here")
    assert state.last_copied_sort_key("a") is None
    state.record_last_copied_sort_key("a", ("2024-01-01 00:00:00", "x"))
    state.record_last_copied_sort_key("b", ("-infinity", "y"))
    file.with_name("state.json.new").write_text("{ cut o")
    reopened = MigrationState(file, "there to here")
    assert (reopened.last_copied_sort_key("a"), reopened.last_copied_sort_key("b")) == (
        ("2024-01-01 00:00:00", "x"),
        ("-infinity", "y"),
    )
    with pytest.raises(RefusedByService, match="is of another migration: there to here"):
        MigrationState(file, "there to elsewhere")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "tables": []}'])
def test_another_file_is_refused_and_not_overwritten(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    with pytest.raises(RefusedByService):
        MigrationState(file, "there to here")
    assert file.read_text() == text


def test_a_state_of_a_later_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"version": 2, "route": "there to here", "tables": {}}))
    with pytest.raises(RefusedByService):
        MigrationState(file, "there to here")


def test_the_error_without_psycopg_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "cordwood.cli.logflare_tables", raising=False)
    assert commands.run_command_line(["migrate", "logflare", "--from", "postgresql://db/x"]) == 1
    assert (
        "needs psycopg, which is not installed. Install it: pip install 'cordwood[migrate]'." in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("address", "message"), [("", "--from is empty."), ("mysql://u:secret@host/db", "is not a PostgreSQL address.")]
)
def test_an_empty_or_foreign_address_is_refused_without_its_password(
    capsys: pytest.CaptureFixture[str], address: str, message: str
) -> None:
    assert commands.run_command_line(["migrate", "logflare", "--from", address]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert "secret" not in printed
