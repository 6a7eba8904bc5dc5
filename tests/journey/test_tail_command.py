"""The command `cordwood tail`, which prints rows as their events are stored, and reconnects after restarts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.cli.tail import level_of
from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import cordwood
from tests.journey.test_tail import send
from tests.waiting import until


@contextmanager
def run_tail(service: Service, folder: Path, *arguments: str) -> Iterator[tuple[Path, Path]]:
    """Run the command until the block ends. Yield the files with its output and its errors."""
    out, errors = folder / "out", folder / "errors"
    target = ("--url", service.url, "--key", PRIVATE)
    with out.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood", "tail", *arguments, *target], stdout=stdout, stderr=stderr
        )
    try:
        yield out, errors
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130, errors.read_text()
    finally:
        process.kill()
        process.wait()


def follower_count(service: Service) -> int:
    return int(float(service.client.get("/metrics").text.partition("\ncordwood_followers ")[2].split()[0]))


def test_rows_are_printed_as_they_are_stored(start: Start, tmp_path: Path) -> None:
    service = start()
    with run_tail(service, tmp_path, "f:postgres_logs", "-p", "project=told") as (out, _):
        until(lambda: follower_count(service) == 1)
        send(service, "told", "one", "two \x1b[31mred")
        send(service, "other", "three")
        until(lambda: out.read_text().count("\n") == 2)
    first, second = out.read_text().splitlines()
    assert first.endswith("Z  one")
    assert second.endswith("Z  two  [31mred")


def test_since_starts_with_stored_rows_and_json_has_all_columns(start: Start, tmp_path: Path) -> None:
    service = start()
    send(service, "told", "stored")
    arguments = ("logs.all", "f:postgres_logs", "-p", "project=told", "--since", "10m", "--format", "json")
    with run_tail(service, tmp_path, *arguments) as (out, _):
        until(lambda: "\n" in out.read_text())
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert (row["id"], row["event_message"]) == ("told stored", "stored")


def test_control_characters_of_rows_are_not_printed(start: Start) -> None:
    """Check U+009B, which begins a control sequence like ESC [, but which JSON does not escape."""
    service = start()
    send(service, "told", "two \x9b31mred")
    arguments = ["logs.all", "f:postgres_logs", "-p", "project=told", "--since", "10m"]
    target = ["--url", service.url, "--key", PRIVATE]
    for form in ("json", "text"):
        terminal, inner = os.openpty()
        command = [sys.executable, "-m", "cordwood", "tail", *arguments, "--format", form, *target]
        process = subprocess.Popen(command, stdout=inner, stderr=inner, env={**os.environ, "NO_COLOR": "1"})
        os.close(inner)
        try:
            printed = b""
            while b"red" not in printed:
                printed += os.read(terminal, 4096)
        finally:
            process.kill()
            process.wait()
            os.close(terminal)
        assert b"two" in printed
        assert not {"\x9b", "\x1b"} & set(printed.decode())


def test_the_command_reconnects_after_a_restart_of_the_service(start: Start, tmp_path: Path) -> None:
    service = start()
    port = service.url.rpartition(":")[2]
    with run_tail(service, tmp_path, "-p", "project=told", "--sql", "select event_message from postgres_logs") as (
        out,
        errors,
    ):
        until(lambda: follower_count(service) == 1)
        send(service, "told", "before")
        until(lambda: "before" in out.read_text())
        service.kill()
        restarted = start("--port", port, data_dir=service.data_dir)
        send(restarted, "told", "after")
        until(lambda: "after" in out.read_text())
    assert out.read_text().splitlines() == ["before", "after"]
    assert "connecting again" in errors.read_text()


def test_errors_end_the_command_with_a_message(service: Service) -> None:
    target = ("--url", service.url, "--key", PRIVATE)
    result = cordwood("tail", "f:postgres_logs c:count(*)", "-p", "project=p", *target)
    assert result.returncode == 1
    assert "line 1, column 17: A query that is followed cannot have c: (a chart)" in result.stderr
    result = cordwood("tail", "-p", "project=p", "--url", service.url, "--key", "nobody's")
    assert (result.returncode, result.stdout) == (1, "")
    result = cordwood("tail", "--since", "yesterday")
    assert result.returncode == 2
    assert "add a unit" in result.stderr
    result = cordwood("tail", "f:a b", "--sql", "select 1", *target)
    assert "given together" in result.stderr


def test_without_a_service_the_command_fails_with_a_message(tmp_path: Path) -> None:
    result = cordwood("tail", "--data-dir", str(tmp_path / "none"), CORDWOOD_URL="", CORDWOOD_KEY="")
    assert result.returncode == 1
    assert "No service runs on" in result.stderr


def test_the_command_ends_when_its_output_pipe_is_closed(start: Start) -> None:
    service = start()
    command = f"{sys.executable} -m cordwood tail 'f:postgres_logs' -p project=p --url {service.url} --key {PRIVATE} | head -n 1"
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ
    )
    until(lambda: follower_count(service) == 1)
    assert process.stdout is not None
    for number in range(1000):
        send(service, "p", f"line {number}")
        if process.poll() is not None:
            break
        time.sleep(0.05)
    assert process.poll() is not None
    assert process.stdout.read().decode().strip().endswith("line 0")
    process.stdout.close()


@pytest.mark.parametrize(
    ("row", "level"),
    [
        ({"metadata": [{"parsed": [{"error_severity": "FATAL"}]}]}, "fatal"),
        ({"level": "Warn", "event_message": "error"}, "warn"),
        ({"metadata": [{"response": [{"status_code": 503}]}]}, "error"),
        ({"metadata": [{"response": [{"status_code": 404}]}]}, "warning"),
        ({"metadata": [{"response": [{"status_code": 200}]}]}, ""),
        ({"event_message": "2026-01-01 ERROR: no"}, "error"),
        ({"event_message": "terror"}, ""),
        ({}, ""),
    ],
)
def test_the_level_of_a_row_is_read_from_its_fields(row: dict[str, object], level: str) -> None:
    assert level_of(row) == level
