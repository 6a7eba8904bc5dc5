"""Fixtures that start cordwood as a process, and HTTP clients for it."""

import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from cordwood.cli import commands

PRIVATE, PUBLIC = "journey-private", "journey-public"
START_SECONDS = 30
STOP_SECONDS = 30
PROGRAM = ("-m", "cordwood")


@dataclass
class Service:
    """A running process of cordwood. It writes its output to the file `output`."""

    process: subprocess.Popen[bytes]
    url: str
    data_dir: Path
    output: Path
    client: httpx.Client

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop_and_read(self) -> str:
        """Stop the process, and return all of its output."""
        self.stop()
        return self.output.read_text()

    def query(self, endpoint: str, **parameters: str) -> httpx.Response:
        return self.client.get(f"/api/endpoints/query/{endpoint}", params=parameters)

    def rows(self, endpoint: str, **parameters: str) -> list[dict[str, object]]:
        answer = self.query(endpoint, **parameters)
        assert answer.status_code == 200, answer.text
        result_rows = answer.json()["result"]
        assert isinstance(result_rows, list)
        return result_rows

    def send(self, stream: str, events: object) -> httpx.Response:
        return self.client.post("/api/logs", params={"source_name": stream}, json=events)


Start = Callable[..., Service]


def start_service(
    data_dir: Path, *arguments: str, env: Mapping[str, str] | None = None, program: Sequence[str] = PROGRAM
) -> Service:
    """Start `cordwood serve` on a free port, and wait until it prints that it listens."""
    command = [sys.executable, *program, "serve", "--port", "0", "--data-dir", str(data_dir), *arguments]
    keys = {"CORDWOOD_KEYS_PRIVATE": PRIVATE, "CORDWOOD_KEYS_PUBLIC": PUBLIC}
    output = data_dir.with_name(f"{data_dir.name}.{time.monotonic_ns()}.log")
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **keys, **(env or {})}
        )
    url = _address(process, output)
    client = httpx.Client(base_url=url, headers={"X-API-KEY": PRIVATE}, timeout=60)
    return Service(process, url, data_dir, output, client)


def _address(process: "subprocess.Popen[bytes]", output: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        match = re.search(r"listens on (http://\S+?)[,\s]", output.read_text())
        if match:
            return match[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    raise AssertionError("cordwood did not start:\n" + output.read_text())


@pytest.fixture(autouse=True)
def _cancel_traceback_timer() -> None:
    """Cancel the traceback dump of pytest's timeout, because tests of `make torture` take longer than this timeout."""
    if os.environ.get("TORTURE") == "full":
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start one service for all tests of a module, each of which uses another project."""
    running = start_service(tmp_path_factory.mktemp("journey") / "data")
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts services. Services that still run after the test are killed."""
    started: list[Service] = []

    def start_one(
        *arguments: str,
        env: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> Service:
        started.append(start_service(data_dir or tmp_path / "data", *arguments, env=env, program=program))
        return started[-1]

    yield start_one
    for service in started:
        service.client.close()
        if service.process.poll() is None:
            service.kill()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(service: Service, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a client command in this process. It returns the exit code and the output."""

    def run_one(*arguments: str) -> tuple[int, str, str]:
        code = commands.run_command_line([*arguments, "--url", service.url, "--key", PRIVATE])
        return code, *capfd.readouterr()

    return run_one


def create_key(service: Service, scopes: str, **terms: object) -> str:
    """Create a key and return its token."""
    answer = service.client.post("/api/access-tokens", json={"scopes": scopes, **terms})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def stored_events(service: Service, stream: str) -> list[dict[str, object]]:
    """Return the events of a stream from its export, ordered by id."""
    answer = service.client.get(f"/api/streams/{stream}/events", params={"format": "json"})
    assert answer.status_code == 200, answer.text
    return sorted(answer.json(), key=lambda event: str(event["id"]))
