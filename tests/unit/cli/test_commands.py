"""Commands are found in a table, loaded when called for, and teach whoever asks."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.cli import commands
from tests.unit.cli.cli_page import PAGE, page

NAMES = [name for group in commands.COMMANDS.values() for name in group]


def run(*arguments: str) -> int:
    try:
        return commands.run(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in NAMES)
    assert "cordwood serve --demo" in told


def test_without_a_command_the_overview_is_shown_as_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "serve" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"cordwood {cordwood.__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_teaches_by_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    told = capsys.readouterr().out
    assert "examples:" in told
    assert f"cordwood {name}" in told.partition("examples:")[2]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_does(name: str) -> None:
    assert all(action.help for action in commands.parser(name)._actions if action.dest != "action")


def test_what_a_command_is_made_of_is_not_searched_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """But at the end, where something that is left would be complained of."""
    monkeypatch.setattr(commands, "_parser", lambda *_: sys.exit(gc.get_freeze_count()))
    assert run("serve") > 100_000
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serv") == 2
    assert "Did you mean serve?" in capsys.readouterr().err
    assert run("zzzz") == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("query",), ("query", "x", "-p", "y"), ("import", "f"), ("keys",), ("serve", "--port", "x")]
)
def test_what_is_not_understood_is_a_misuse(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert "usage: cordwood" in capsys.readouterr().err


def test_flags_are_not_guessed_from_their_beginning() -> None:
    assert run("serve", "--dem") == 2


def test_an_engine_or_a_protocol_that_is_not_used_is_not_loaded() -> None:
    script = "import sys, cordwood.cli.serve, cordwood.cli.check; sys.exit(any('engines.clickhouse' in name or 'clickhouse_connect' in name or 'grpc' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 0


def test_a_fault_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("healthcheck", "--url", "ftp://x") == 1
    assert run("query", "x", "--url", "ftp://x") == 1
    assert "cordwood query: 'ftp://x' is not an address" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["healthcheck", "--help"],
        ["settings"],
        *([name, "--help"] for name in ("reload", "query", "keys", "quarantine", "migrate")),
    ],
)
def test_small_commands_load_neither_an_engine_nor_a_compiler(arguments: list[str]) -> None:
    script = (
        f"import sys; from cordwood.cli import commands\ntry: commands.run({arguments!r})\nexcept SystemExit: pass\n"
        "heavy = {'duckdb', 'sqlglot', 'uvicorn'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["table", "json"])
def test_settings_are_told_with_their_source_and_secrets_masked(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cordwood.toml").write_text('[limits]\nquery_time = "5s"\n')
    monkeypatch.setenv("CORDWOOD_KEYS_PRIVATE", "hush-hush")
    monkeypatch.setenv("CORDWOOD_ENGINE", "clickhouse://me:hush-hush@host:8443/db")
    assert run("settings", "--changed", "--data-dir", "elsewhere", "--format", how) == 0
    told = capsys.readouterr().out
    assert "hush-hush" not in told
    sources = ("environment CORDWOOD_KEYS_PRIVATE", "cordwood.toml", "a flag", "environment CORDWOOD_ENGINE")
    assert all(source in told for source in sources)
    assert "web.port" not in told


def test_the_reference_is_as_it_would_be_made_now() -> None:
    assert PAGE.read_text() == page(), "make docs"
