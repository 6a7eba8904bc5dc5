"""Unmodified npm clients of Logflare, Loki and Fluentd: each event is stored completely."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journey.conftest import PUBLIC, Service, start_service
from tests.journey.npm_packages import install_packages
from tests.journey.test_real_senders import guide_fence
from tests.waiting import until

CLIENTS_FOLDER = Path(__file__).parent / "npm"
SEND_SECONDS = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    listening = {
        "CORDWOOD_LISTEN_FLUENT": "tcp://127.0.0.1:0",
        "CORDWOOD_LISTEN_FLUENT_STREAM": "realtime.logs.prod",
        "CORDWOOD_LISTEN_FLUENT_SHARED_KEY": "shared",
        "CORDWOOD_LISTEN_FLUENT_USERS": "alice = secret",
    }
    running = start_service(tmp_path_factory.mktemp("npm-clients") / "data", env=listening)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the clients in a temporary folder, and return the folder."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "send.js", "send_loki.js", "send_fluent.js"):
        shutil.copy(CLIENTS_FOLDER / name, folder / name)
    install_packages(folder)
    return folder


def test_events_of_logflare_clients_from_npm_are_stored(service: Service, clients: Path) -> None:
    source = service.client.get("/api/sources/postgres.logs").json()["token"]
    command = ["node", "send.js", service.url, PUBLIC, source]
    sent = subprocess.run(command, cwd=clients, capture_output=True, text=True, timeout=SEND_SECONDS, check=False)
    assert sent.returncode == 0, sent.stderr

    def arrived() -> dict[str, str]:
        recent = service.client.get("/api/sources/postgres.logs/recent").json()
        return {
            name: json.dumps(event)
            for event in recent
            for name in ("core", "loglayer", "pino")
            if name in json.dumps(event)
        }

    until(lambda: len(arrived()) == 3)
    for name, number in (("core", 1), ("loglayer", 2), ("pino", 3)):
        assert f"of {name}" in arrived()[name]
        assert f'"n": {number}' in arrived()[name]


def test_events_of_loki_clients_from_npm_are_stored(service: Service, clients: Path) -> None:
    command = ["node", "send_loki.js", service.url, PUBLIC, "pgbouncer.logs.prod"]
    sent = subprocess.run(command, cwd=clients, capture_output=True, text=True, timeout=SEND_SECONDS, check=False)
    assert (sent.returncode, sent.stderr) == (0, "")

    def arrived() -> list[dict[str, Any]]:
        recent: list[dict[str, Any]] = service.client.get("/api/sources/pgbouncer.logs.prod/recent").json()
        return sorted(recent, key=lambda event: str(event["event_message"]))

    until(lambda: len(arrived()) == 3)
    of_json, of_protobuf, of_pino = sorted(arrived(), key=lambda event: "pino" in event["event_message"])
    assert of_json["event_message"].startswith("of winston in json")
    assert of_json["metadata"]["structured_metadata"]["n"] == "1"
    assert of_protobuf["event_message"].startswith("of winston in protobuf")
    assert json.loads(of_pino["event_message"])["n"] == 3
    for event in (of_json, of_protobuf, of_pino):
        assert event["metadata"]["labels"]["service_name"] == "pgbouncer.logs.prod"
        assert event["metadata"]["level"] in {"warn", "error"}
        assert abs(event["timestamp"] / 1e6 - time.time()) < SEND_SECONDS


@pytest.mark.parametrize(("password", "outcome"), [("wrong", 1), ("secret", 0)])
def test_fluent_logger_from_npm_authenticates_and_is_acknowledged(
    service: Service, clients: Path, password: str, outcome: int
) -> None:
    listening = re.search(r"Listening for fluent tcp://127\.0\.0\.1:(\d+)", service.output.read_text())
    assert listening is not None
    command = ["node", "send_fluent.js", listening[1], password]
    sent = subprocess.run(command, cwd=clients, capture_output=True, text=True, timeout=SEND_SECONDS, check=False)
    assert sent.returncode == outcome, (sent.stdout, sent.stderr)
    events = service.client.get("/api/sources/realtime.logs.prod/recent").json()
    modes = ("CompressedPackedForward", "Message", "PackedForward") if outcome == 0 else ()
    messages = [f"of fluent {mode} {number}" for mode in modes for number in range(2)]
    assert sorted(event["event_message"] for event in events) == messages


def test_the_python_handler_for_loki_works_as_in_the_guide(service: Service, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(guide_fence("LokiLoggerHandler("))
    environment = {"CORDWOOD_URL": service.url, "CORDWOOD_KEY": PUBLIC, "CORDWOOD_STREAM": "gotrue.logs.prod"}
    command = [sys.executable, str(tmp_path / "script.py")]
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=SEND_SECONDS)
    (event,) = service.client.get("/api/sources/gotrue.logs.prod/recent").json()
    assert json.loads(event["event_message"])["message"] == "card 7 refused"
    assert event["metadata"]["labels"] == {"service_name": "gotrue.logs.prod"}
    assert event["metadata"]["structured_metadata"] == {"host": "h1"}
