"""Logflare's clients from npm, as they are, against a real process: each event arrives with what it holds."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.journey.conftest import PUBLIC, Service
from tests.waiting import until

CLIENTS = Path(__file__).parent / "npm"
INSTALL_SECONDS, SEND_SECONDS = 300, 60


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clients, installed by npm in the versions of their package.json; no script of theirs is run."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "send.js"):
        shutil.copy(CLIENTS / name, folder / name)
    give_up = pytest.fail if os.environ.get("CI") else pytest.skip
    if not (shutil.which("node") and shutil.which("npm")):
        give_up("node or npm is not there")
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        give_up(f"the clients cannot be installed: {done.stderr[-500:]}")
    return folder


def test_each_client_from_npm_sends_what_is_found(service: Service, clients: Path) -> None:
    source = service.client.get("/api/sources/postgres.logs").json()["token"]
    command = ["node", "send.js", service.url, PUBLIC, source]
    sent = subprocess.run(command, cwd=clients, capture_output=True, text=True, timeout=SEND_SECONDS, check=False)
    assert sent.returncode == 0, sent.stderr

    def arrived() -> dict[str, str]:
        recent = service.client.get("/api/sources/postgres.logs/recent").json()
        return {
            name: json.dumps(one) for one in recent for name in ("core", "loglayer", "pino") if name in json.dumps(one)
        }

    until(lambda: len(arrived()) == 3)
    for name, number in (("core", 1), ("loglayer", 2), ("pino", 3)):
        assert f"of {name}" in arrived()[name]
        assert f'"n": {number}' in arrived()[name]
