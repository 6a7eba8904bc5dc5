"""Commands in a terminal: width of tables, colours, footers, carets below errors, pager, shell and completion."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.debian import require_program
from tests.journey.conftest import PRIVATE, Service
from tests.journey.terminal_session import TerminalSession
from tests.journey.test_cli_clients import cordwood

STREAM = "postgres.logs"


@pytest.fixture(scope="module")
def project(service: Service) -> str:
    events = [
        {
            "id": f"terminal-{number}",
            "project": "terminal",
            "timestamp": f"2026-01-01T00:00:{number:02}Z",
            "event_message": f"message {number} of many words that are longer than a narrow terminal is wide, 漢字 \x1b[31m",
            "metadata": {"level": "error", "n": number},
        }
        for number in range(50)
    ]
    assert service.send(STREAM, events).status_code == 200
    return "terminal"


def query_arguments(service: Service, project: str, sql: str, *more: str) -> list[str]:
    target = ["--url", service.url, "--key", PRIVATE, "-p", f"project={project}"]
    return ["query", "logs.all", *target, "--sql", sql, *more]


MESSAGES_QUERY = "select id, timestamp, event_message from postgres_logs order by timestamp limit 3"


# A query that runs for some seconds.
SLOW_QUERY = (
    "select count(*) as n from unnest(generate_array(1, 32000)) as a cross join unnest(generate_array(1, 32000)) as b"
    " where mod(a * b, 7) = 3"
)


def test_a_table_fits_the_terminal_and_has_a_footer(service: Service, project: str) -> None:
    for columns in (60, 80, 200):
        with TerminalSession(*query_arguments(service, project, MESSAGES_QUERY), columns=columns) as session:
            assert session.end() == 0
        lines = session.text.splitlines()
        assert lines[0].split() == ["id", "timestamp", "event_message"]
        # Each wide character takes two columns of the terminal.
        assert all(len(line) + line.count("漢") + line.count("字") <= columns for line in lines)
        assert lines[-1].startswith("3 rows, ")
        assert lines[-1].endswith(" ms")
        assert "\x1b[31m" not in session.raw, "the terminal obeys nothing of an event"
        assert "\x1b[1m" in session.raw


def test_no_color_disables_colours(service: Service, project: str) -> None:
    with TerminalSession(*query_arguments(service, project, MESSAGES_QUERY), env={"NO_COLOR": "1"}) as session:
        session.end()
    assert "\x1b[" not in session.raw


def test_rows_that_do_not_fit_or_with_vertical_are_printed_as_records(service: Service, project: str) -> None:
    wide = "select id as a, id as b, id as c, id as d, id as e, id as f from postgres_logs order by timestamp limit 2"
    with TerminalSession(*query_arguments(service, project, wide), columns=40) as session:
        session.end()
    assert session.text.splitlines()[:3] == ["-- row 1", "a  terminal-0", "b  terminal-0"]
    piped = cordwood(*query_arguments(service, project, MESSAGES_QUERY, "--vertical"))
    assert piped.returncode == 0, piped.stderr
    lines = piped.stdout.splitlines()
    assert lines[0] == "-- row 1"
    assert lines[3].startswith("event_message  message 0 of many words")
    assert lines[3].endswith("漢字  [31m"), "a record has the whole value"
    refused = cordwood(*query_arguments(service, project, MESSAGES_QUERY, "--vertical", "--format", "csv"))
    assert (refused.returncode, "--vertical is a form of tables" in refused.stderr) == (1, True)


def test_a_pipe_gets_neither_footer_nor_colours(service: Service, project: str) -> None:
    piped = cordwood(*query_arguments(service, project, MESSAGES_QUERY))
    assert piped.stderr == ""
    assert "\x1b" not in piped.stdout


def test_the_footer_marks_a_cached_answer(service: Service) -> None:
    arguments = ["query", "usage.api-counts", "-p", "interval=daily", "-p", "project=terminal"]
    texts = []
    for _ in range(2):
        with TerminalSession(*arguments, "--url", service.url, "--key", PRIVATE) as session:
            session.end()
        texts.append(session.text.splitlines()[-1])
    assert [text.endswith("cached") for text in texts] == [False, True]


def test_a_query_that_takes_long_shows_its_time_until_it_ends(service: Service, project: str) -> None:
    with TerminalSession(*query_arguments(service, project, SLOW_QUERY)) as session:
        session.wait_for(r"\r[1-9]\d*\.\d s(, \d+ % done)?\x1b\[K")
        assert session.end(60) == 0
    # The line with the time is removed when the table is printed.
    assert re.search(r"\r\x1b\[K", session.raw)
    assert session.text.splitlines()[0].strip() == "n"


def test_an_error_has_a_caret_below_its_position(service: Service, project: str) -> None:
    refused = cordwood(*query_arguments(service, project, "select id,\n  nme from postgres_logs"))
    assert refused.returncode == 1
    message, line, caret = refused.stderr.rstrip("\n").split("\n")[-3:]
    assert message.startswith("cordwood query: line 2, column 3: ")
    assert (line, caret) == ("    nme from postgres_logs", "    ^")
    long = "select " + ", ".join(f"id as a{number}" for number in range(100)) + ", nme from postgres_logs"
    refused = cordwood(*query_arguments(service, project, long))
    line, caret = refused.stderr.rstrip("\n").split("\n")[-2:]
    assert line[len(caret) - 1 :].startswith("nme from")
    assert len(line) <= 80


def test_only_a_long_table_is_shown_in_the_pager(service: Service, project: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager.py"
    pager.write_text("import sys; print('paged', sys.stdin.read().count('terminal-'))")
    env = {"PAGER": f"{shlex.quote(sys.executable)} {shlex.quote(str(pager))}"}
    sql = "select id from postgres_logs"
    with TerminalSession(*query_arguments(service, project, sql), env=env) as session:
        session.end()
    assert "paged 50" in session.text
    with TerminalSession(*query_arguments(service, project, f"{sql} limit 5"), env=env) as session:
        session.end()
    assert "paged" not in session.text
    for absent in ("", "no-such-program-here"):
        with TerminalSession(*query_arguments(service, project, sql), env={"PAGER": absent}) as session:
            assert session.end() == 0
        assert session.text.count("terminal-") == 50


def open_shell(service: Service, project: str) -> list[str]:
    return ["shell", "--url", service.url, "--key", PRIVATE, "-p", f"project={project}"]


PROMPT, CONTINUATION_PROMPT = "logs.all> ", "   -> "


def enter(session: TerminalSession, text: str, *expected: str, last: str = PROMPT) -> str:
    """Type a line, and return the output that follows."""
    session.type(f"{text}\n")
    return session.read_until(*expected, last=last)


def interrupt(session: TerminalSession) -> None:
    """Type Ctrl-C after a pause, because Python's readline misses a signal while it handles a key."""
    time.sleep(0.3)
    session.type("\x03")
    session.read_until(last=PROMPT)


def test_the_shell_runs_sql_lql_and_its_commands(service: Service, project: str, tmp_path: Path) -> None:
    with TerminalSession(*open_shell(service, project), env={"XDG_STATE_HOME": str(tmp_path)}) as session:
        session.read_until(last=PROMPT)
        enter(session, "select count(*) as n", last=CONTINUATION_PROMPT)
        assert "50" in enter(session, "from postgres_logs;", "1 row, ")
        enter(session, "\\lql f:postgres_logs m.n:7", "message 7 of")
        enter(session, "\\d", "edge_logs", "postgres_logs")
        enter(session, "\\d postgres_logs", "metadata.level")
        enter(session, "\\d gone", "There is no sub-query gone.")
        enter(session, "\\p project=other")
        enter(session, "\\p", "other")
        enter(session, "select count(*) as m from postgres_logs;", "m\n-\n0\n")
        enter(session, "\\e gone", "There is no endpoint 'gone'")
        enter(session, "select nme from postgres_logs;", "\n         ^")
        enter(session, "\\x", "records")
        enter(session, "\\timing", "off")
        assert "1 row" not in enter(session, "select 1 as one;", "one  1")
        # Ctrl-C discards the typed statement. Ctrl-D ends the shell.
        enter(session, "select what", last=CONTINUATION_PROMPT)
        interrupt(session)
        session.type("\x04")
        assert session.end() == 0
    history = tmp_path / "cordwood" / "history"
    assert "from postgres_logs;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_tab_completes_sub_queries_columns_fields_functions_and_commands(
    service: Service, project: str, tmp_path: Path
) -> None:
    with TerminalSession(*open_shell(service, project), env={"XDG_STATE_HOME": str(tmp_path)}) as session:
        session.read_until(last=PROMPT)
        for text, expected in (
            ("select event_m\t", "event_message"),
            (" from postgres_l\t", "postgres_logs"),
            (" where metadata.le\t", "metadata.level"),
            (" and regexp_con\t", "regexp_contains("),
        ):
            session.type(text)
            session.read_until(expected)
        interrupt(session)
        enter(session, "\\tim\t", "The footer is off.")


def test_the_shell_reads_a_pipe_and_exits_with_the_status_of_the_last_statement(service: Service, project: str) -> None:
    command = [sys.executable, "-m", "cordwood", *open_shell(service, project)]

    def piped(text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    fine = piped("select count(*) as n\n  from postgres_logs;\n\\lql f:postgres_logs m.n:7\n\nselect 2 as two")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert fine.stdout.splitlines()[:3] == [" n", "--", "50"]
    assert fine.stdout.splitlines()[-1] == "  2"
    assert piped("select nme from postgres_logs;\n").returncode == 1
    assert piped("\\nothing\n").returncode == 1
    assert piped("\\q\nselect nme from postgres_logs;\n").returncode == 0


def test_open_prints_or_opens_the_url_of_the_service(service: Service, tmp_path: Path) -> None:
    opened = cordwood("open", "--url", service.url, "--print")
    assert (opened.returncode, opened.stdout) == (0, f"{service.url}/\n")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shlex.quote(str(tmp_path / "seen"))}\n')
    browser.chmod(0o755)
    assert cordwood("open", "--url", service.url, BROWSER=f"{browser} %s").returncode == 0
    assert (tmp_path / "seen").read_text() == f"{service.url}/\n"
    assert cordwood("open", "--url", "http://127.0.0.1:9", "--print").returncode == 1
    assert cordwood("open", "--url", "file:///etc/passwd").returncode == 1
    assert "cordwood serve" in cordwood("open", "--data-dir", str(tmp_path / "none")).stderr


def run_in_shell(shell_path: str, script: str) -> list[str]:
    completed_process = subprocess.run([shell_path, "-c", script], capture_output=True, text=True, check=False)
    assert completed_process.returncode == 0, completed_process.stderr
    return completed_process.stdout.split()


def test_bash_completes_commands_and_their_options(tmp_path: Path) -> None:
    file = tmp_path / "bash"
    file.write_text(cordwood("completion", "bash").stdout)

    def complete(*words: str) -> list[str]:
        command_line = " ".join(map(shlex.quote, words))
        script = f"source {file}; COMP_WORDS=({command_line}); COMP_CWORD={len(words) - 1}; _cordwood; echo ${{COMPREPLY[@]}}"
        return run_in_shell(require_program("bash", "bash"), script)

    assert complete("cordwood", "ex") == ["export"]
    assert complete("cordwood", "query", "--ver") == ["--vertical"]
    assert "create" in complete("cordwood", "keys", "cr")


def test_zsh_and_fish_load_their_completion_scripts(tmp_path: Path) -> None:
    zsh, fish = tmp_path / "zsh", tmp_path / "fish"
    zsh.write_text(cordwood("completion", "zsh").stdout)
    fish.write_text(cordwood("completion", "fish").stdout)
    loaded = f"autoload -Uz compinit && compinit -D -u && source {zsh} && print ${{_comps[cordwood]}}"
    assert run_in_shell(require_program("zsh", "zsh"), loaded) == ["_cordwood"]
    listed = run_in_shell(require_program("fish", "fish"), f"source {fish}; complete -C 'cordwood query --ver'")
    assert listed[0] == "--vertical"
    assert "export" in run_in_shell(require_program("fish", "fish"), f"source {fish}; complete -C 'cordwood ex'")


def test_help_lists_commands_and_topics() -> None:
    assert cordwood("help", "lql").stdout.startswith("LQL finds events")
    assert cordwood("help", "query").stdout.startswith("usage: cordwood query")
    wrong = cordwood("help", "lqll")
    assert (wrong.returncode, "Did you mean lql?" in wrong.stderr) == (2, True)


def test_control_characters_of_errors_are_not_printed(service: Service, project: str) -> None:
    refused = cordwood(*query_arguments(service, project, "select `\x1b[31m\x9b31m` from postgres_logs"))
    assert refused.returncode == 1
    assert refused.stderr.replace("\n", "").isprintable()
