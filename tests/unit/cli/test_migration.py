"""What a migration knows without a database: how far it got, and what is missing."""

import json
import sys
from pathlib import Path

import pytest

from cordwood.cli import commands
from cordwood.cli.migrate import MigrationState
from cordwood.errors import Refused


def test_how_far_it_got_is_there_again_and_one_cut_off_write_takes_nothing_away(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    state = MigrationState(file, "there to here")
    assert state.after("a") is None
    state.note("a", ("2024-01-01 00:00:00", "x"))
    state.note("b", ("-infinity", "y"))
    file.with_name("state.json.new").write_text("{ cut o")
    again = MigrationState(file, "there to here")
    assert (again.after("a"), again.after("b")) == (("2024-01-01 00:00:00", "x"), ("-infinity", "y"))
    with pytest.raises(Refused, match="is of another migration: there to here"):
        MigrationState(file, "there to elsewhere")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "tables": []}'])
def test_a_file_that_is_something_else_is_not_written_over(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    with pytest.raises(Refused):
        MigrationState(file, "there to here")
    assert file.read_text() == text


def test_a_state_of_a_later_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"version": 2, "route": "there to here", "tables": {}}))
    with pytest.raises(Refused):
        MigrationState(file, "there to here")


def test_without_postgresql_s_client_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "cordwood.cli.logflare_tables", raising=False)
    assert commands.run(["migrate", "logflare", "--from", "postgresql://db/x"]) == 1
    assert (
        "needs psycopg, which is not installed. Install it: pip install 'cordwood[migrate]'." in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("address", "said"), [("", "--from is empty."), ("mysql://u:secret@host/db", "is not a PostgreSQL address.")]
)
def test_a_variable_that_is_not_set_is_not_taken_for_the_database_beside_us(
    capsys: pytest.CaptureFixture[str], address: str, said: str
) -> None:
    assert commands.run(["migrate", "logflare", "--from", address]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "secret" not in told
