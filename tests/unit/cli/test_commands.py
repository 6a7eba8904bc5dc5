"""The command line: help, lazy loading, usage errors and exit codes."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.cli import commands
from tests.unit.cli.cli_page import PAGE, reference_page

NAMES = [name for group in commands.COMMANDS.values() for name in group]


def run_command(*arguments: str) -> int:
    try:
        return commands.run_command_line(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("--help") == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in NAMES)
    assert "cordwood serve --demo" in printed


def test_without_a_command_the_overview_is_shown_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command() == 2
    assert "serve" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("--version") == 0
    assert capsys.readouterr().out == f"cordwood {cordwood.__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(name, "--help") == 0
    printed = capsys.readouterr().out
    assert "examples:" in printed
    assert f"cordwood {name}" in printed.partition("examples:")[2]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_help_text(name: str) -> None:
    assert all(action.help for action in commands.parser_of_command(name)._actions if action.dest != "action")


def test_objects_of_imported_modules_are_frozen_for_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that objects are frozen while a command runs, and unfrozen at its end.

    The interpreter would report frozen objects as leaks at exit.
    """
    monkeypatch.setattr(commands, "_build_parser", lambda *_: sys.exit(gc.get_freeze_count()))
    assert run_command("serve") > 100_000
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


def test_an_unknown_command_has_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("serv") == 2
    assert "Did you mean serve?" in capsys.readouterr().err
    assert run_command("zzzz") == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("query",), ("query", "x", "-p", "y"), ("import", "f"), ("keys",), ("serve", "--port", "x")]
)
def test_invalid_arguments_print_the_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(*arguments) == 2
    assert "usage: cordwood" in capsys.readouterr().err


def test_abbreviated_flags_are_refused() -> None:
    assert run_command("serve", "--dem") == 2


def test_unused_engines_and_protocols_are_not_imported() -> None:
    script = "import sys, cordwood.cli.serve, cordwood.cli.check; sys.exit(any('engines.clickhouse' in name or 'clickhouse_connect' in name or 'grpc' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 0


def test_a_fault_is_printed_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("healthcheck", "--url", "ftp://x") == 1
    assert run_command("query", "x", "--url", "ftp://x") == 1
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
def test_small_commands_import_neither_engine_nor_compiler(arguments: list[str]) -> None:
    script = (
        f"import sys; from cordwood.cli import commands\ntry: commands.run_command_line({arguments!r})\nexcept SystemExit: pass\n"
        "heavy = {'duckdb', 'sqlglot', 'uvicorn'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("extra_arguments", ["table", "json"])
def test_settings_are_printed_with_their_source_and_masked_secrets(
    extra_arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cordwood.toml").write_text('[limits]\nquery_time = "5s"\n')
    monkeypatch.setenv("CORDWOOD_KEYS_PRIVATE", "hush-hush")
    monkeypatch.setenv("CORDWOOD_ENGINE", "clickhouse://me:hush-hush@host:8443/db")
    assert run_command("settings", "--changed", "--data-dir", "elsewhere", "--format", extra_arguments) == 0
    printed = capsys.readouterr().out
    assert "hush-hush" not in printed
    sources = ("environment CORDWOOD_KEYS_PRIVATE", "cordwood.toml", "a flag", "environment CORDWOOD_ENGINE")
    assert all(source in printed for source in sources)
    assert "web.port" not in printed


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text() == reference_page(), "make docs"


COMMANDS_THAT_READ_FILES = {
    "compile": ("compile", "{}"),
    "query": ("query", "logs.all", "--sql", "@{}"),
    "import": ("import", "--stream", "cloudflare.logs.prod", "--data-dir", "{folder}", "{}"),
    "sniff": ("sniff", "{}"),
    "test": ("test", "{}"),
    "restore": ("restore", "--data-dir", "{folder}", "{}"),
    "endpoints": ("check", "--endpoints", "{}"),
    "streams": ("check", "--streams", "{}"),
    "config": ("check", "--config", "{}"),
    "serve": ("serve", "--config", "{}"),
}


@pytest.mark.parametrize("name", COMMANDS_THAT_READ_FILES)
@pytest.mark.parametrize("kind_of_file", ["missing", "folder", "binary"])
def test_a_file_that_cannot_be_read_is_named_in_one_message(
    name: str, kind_of_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the command in this process, where an exception that would print a traceback fails the test."""
    file = tmp_path / "file"
    if kind_of_file == "folder":
        file.mkdir()
    elif kind_of_file == "binary":
        file.write_bytes(b"\xff\xfe\x00\x01" * 100)
    arguments = [item.format(file, folder=tmp_path / "data") for item in COMMANDS_THAT_READ_FILES[name]]
    # An empty folder of endpoints is not an error, and `cordwood sniff` describes a binary file.
    assert (run_command(*arguments) == 0) == ((name, kind_of_file) in {("endpoints", "folder"), ("sniff", "binary")})
    # An empty folder is a valid argument of `cordwood test`, which then reports that it has no tests.
    expected_message = "There are no tests." if (name, kind_of_file) == ("test", "folder") else str(file)
    assert expected_message in "".join(capsys.readouterr()) or (name, kind_of_file) == ("endpoints", "folder")


@pytest.mark.parametrize("arguments", [["--help"], ["help", "query"], ["--version"], ["settings"]])
def test_a_reader_that_closes_the_output_causes_no_traceback(arguments: list[str]) -> None:
    """Print to a pipe without a reader, as after the end of `head`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [["--help"], ["settings"], ["compile", "--prelude", "--engine", "clickhouse"]])
def test_a_full_disk_of_the_output_is_reported_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cordwood", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    problem = "Standard output cannot be written: No space left on device.\n"
    assert (done.returncode, done.stderr.partition(": ")[2]) == (1, problem)
