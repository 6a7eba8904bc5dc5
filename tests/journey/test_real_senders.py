"""Unmodified senders, configured as in the guide: every event is stored with its time."""

import gzip
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from logging.handlers import HTTPHandler
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.debian import require_program
from tests.journey.conftest import PUBLIC, Service, Start

GUIDE_TEXT = (Path(__file__).parents[2] / "docs" / "guide" / "senders.md").read_text()
MAX_WAIT_SECONDS = 30


def guide_fence(words: str) -> str:
    """Return the text of the only fence in the guide that contains these words."""
    (fence,) = [
        text for text in re.findall(r"^```[^\n]*\n(.*?)^```$", GUIDE_TEXT, re.MULTILINE | re.DOTALL) if words in text
    ]
    return str(fence)


@pytest.fixture
def service(start: Start, tmp_path: Path) -> Service:
    """Start a service with an endpoint that reads all events of the stream."""
    (tmp_path / "all.sql").write_text(
        '/* name = "all"\nmax_rows = 5000 */ select t.id, t.timestamp, t.event_message, t.timestamp_inferred, t.msg, t.levelname, m'
        " from `postgres.logs` as t left join unnest(t.metadata) as m order by t.timestamp, t.event_message"
    )
    return start("--endpoints", str(tmp_path))


def environment(service: Service) -> Mapping[str, str]:
    return {**os.environ, "CORDWOOD_URL": service.url, "CORDWOOD_KEY": PUBLIC, "CORDWOOD_STREAM": "postgres.logs"}


def wait_for_events(service: Service, count: int) -> list[dict[str, object]]:
    """Wait until this many events are stored, and return all events."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while len(rows := service.rows("all")) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return rows


# The warning is ignored, because HTTPHandler does not close its connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pythons_http_handler_sends_a_record_as_a_form(service: Service) -> None:
    address = f"/api/logs?source_name=postgres.logs&api_key={PUBLIC}"
    handler = HTTPHandler(urlsplit(service.url).netloc, address, method="POST")
    handler.handle(logging.LogRecord("lib", logging.ERROR, "x.py", 7, "disk %s is full", ("/dev/sda1",), None))
    (row,) = wait_for_events(service, 1)
    assert (row["msg"], row["levelname"], row["timestamp_inferred"]) == ("disk %s is full", "ERROR", True)


def test_the_handlers_of_the_guide_lose_nothing_while_the_service_is_down(
    service: Service, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "cordwood_logging.py").write_text(guide_fence("class CordwoodHandler"))
    (tmp_path / "app.py").write_text(guide_fence("from cordwood_logging import").replace("range(1000)", "range(3000)"))
    (tmp_path / "script.py").write_text(guide_fence("class ToCordwood"))
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment(service), check=True, timeout=60)
    (row,) = wait_for_events(service, 1)
    assert row["event_message"] == "disk /dev/sda1 is nearly full"
    assert row["timestamp_inferred"] is False
    assert row["m"] == [{"level": "warning", "logger": "script", "line": 17}]
    service.stop()
    port = urlsplit(service.url).port
    sending = subprocess.Popen([sys.executable, "app.py"], cwd=tmp_path, env=environment(service))
    time.sleep(0.5)
    restarted = start("--endpoints", str(tmp_path), "--port", str(port))
    assert sending.wait(60) == 0
    messages = [row["event_message"] for row in restarted.rows("all")]
    assert len(messages) == len(set(messages)) == 3001


VECTOR_EVENT = {
    "event_message": 'connection authorized: user="authenticator"',
    "id": "9f0b6e0e-6a7c-4b0e-9a38-0f8b0e1f0a01",
    "metadata": {
        "host": "db-default",
        "parsed": {"error_severity": "LOG", "timestamp": "2026-01-02T03:04:05.678901234Z"},
    },
    "project": "default",
    "timestamp": "2026-01-02T03:04:05.678901234Z",
}


def as_array(events: list[dict[str, object]]) -> bytes:
    return b"[" + b",".join(json.dumps(event).encode() for event in events) + b"]"


def as_lines(events: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


@pytest.mark.parametrize(("media", "write"), [("application/json", as_array), ("application/x-ndjson", as_lines)])
@pytest.mark.parametrize("coding", ["gzip", ""])
def test_vectors_http_sink_sends_in_both_framings_and_compressed(
    service: Service, media: str, write: Callable[[list[dict[str, object]]], bytes], coding: str
) -> None:
    vector_options = guide_fence('[sinks.cordwood]\ntype = "http"')
    assert 'encoding.codec = "json"' in vector_options
    healthy = httpx.head(f"{service.url}/health", headers={"User-Agent": "Vector/0.44.0"})
    assert healthy.status_code == 200
    body = write([dict(VECTOR_EVENT), {**VECTOR_EVENT, "id": "second"}])
    headers = {"User-Agent": "Vector/0.44.0", "Accept-Encoding": "identity", "Content-Type": media, "X-API-KEY": PUBLIC}
    if coding:
        headers["Content-Encoding"], body = coding, gzip.compress(body)
    answer = httpx.post(f"{service.url}/api/logs?source_name=postgres.logs", content=body, headers=headers)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 2)
    rows = wait_for_events(service, 2)
    assert [row["timestamp"] for row in rows] == [1767323045678901] * 2
    assert rows[0]["event_message"] == VECTOR_EVENT["event_message"]


def test_curl_sends_lines_from_a_pipe(service: Service) -> None:
    curl = require_program("curl", "curl")
    command = [
        curl,
        "-sSf",
        "-T",
        "-",
        "-X",
        "POST",
        "-H",
        f"X-API-KEY: {PUBLIC}",
        "-H",
        "Content-Type: application/x-ndjson",
    ]
    lines = b"".join(b'{"id": "%d", "event_message": "line %d"}\n' % (number, number) for number in range(2000))
    address = f"{service.url}/api/logs?source_name=postgres.logs"
    done = subprocess.run([*command, address], input=lines, capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["accepted"] == 2000


@contextmanager
def rsyslog(tmp_path: Path, service: Service) -> Iterator[int]:
    """Run Debian's rsyslogd with the guide's configuration; yield its UDP port."""
    program = require_program("rsyslogd", "rsyslog")
    require_program("curl", "curl")
    action = tmp_path / "ship.sh"
    action.write_text(guide_fence("rsyslog writes one line"))
    action.chmod(0o755)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    conf = guide_fence('module(load="omprog")').replace("/usr/local/bin/ship.sh", str(action))
    (tmp_path / "rsyslog.conf").write_text(
        f'global(workDirectory="{tmp_path}")\nmodule(load="imudp")\ninput(type="imudp" address="127.0.0.1" port="{port}")\n{conf}'
    )
    command = [program, "-n", "-f", str(tmp_path / "rsyslog.conf"), "-i", str(tmp_path / "pid")]
    with (tmp_path / "rsyslog.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(service), stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(MAX_WAIT_SECONDS)


def test_rsyslog_sends_lines_of_logger(service: Service, tmp_path: Path) -> None:
    logger = require_program("logger", "bsdutils")
    with rsyslog(tmp_path, service) as port:
        to = [logger, "--server", "127.0.0.1", "--port", str(port), "--udp"]
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while not service.rows("all") and time.monotonic() < deadline:
            subprocess.run([*to, "--rfc3164", "-t", "warmup", "-p", "user.info", "is it there"], check=True)
            time.sleep(0.3)
        structured = ["--rfc5424", "--sd-id", "origin@1", "--sd-param", 'ip="10.0.0.1"', "--msgid", "M7"]
        subprocess.run([*to, *structured, "-t", "backup", "-p", "local3.err", "disk [sda] is caf\u00e9"], check=True)
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while not (result_rows := backup_rows(service)) and time.monotonic() < deadline:
            time.sleep(0.1)
    ((row, line),) = result_rows
    assert row["event_message"] == "disk [sda] is caf\u00e9"
    assert (line["appname"], line["level"], line["facility"], line["message_id"]) == ("backup", "error", "local3", "M7")
    assert {"id": "origin@1", "ip": "10.0.0.1"} in line["sd"]  # type: ignore[operator]
    assert row["timestamp_inferred"] is False
    assert abs(time.time() - int(str(row["timestamp"])) / 1e6) < 2 * MAX_WAIT_SECONDS


def backup_rows(service: Service) -> list[tuple[dict[str, object], dict[str, object]]]:
    rows = [(row, line) for row in service.rows("all") for line in (row["m"] if isinstance(row["m"], list) else [])]
    return [(row, line) for row, line in rows if line.get("appname") == "backup"]
