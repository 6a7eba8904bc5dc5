"""The MCP inspector, run from its command line over both transports."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journey.conftest import PRIVATE, Service, start_service
from tests.journey.npm_packages import install_packages

PACKAGE = Path(__file__).parent / "npm" / "inspector" / "package.json"
CALL_SECONDS = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("inspected") / "data")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the inspector in a temporary folder and return its command."""
    folder = tmp_path_factory.mktemp("inspector")
    shutil.copy(PACKAGE, folder / "package.json")
    install_packages(folder)
    return folder / "node_modules" / ".bin" / "mcp-inspector"


def run_inspector(inspector: Path, service: Service, transport: str, *arguments: str) -> Any:
    """Run the inspector and return its JSON output. Fail if it writes to standard error."""
    if transport == "http":
        target = [f"{service.url}/mcp", "--header", f"X-API-KEY: {PRIVATE}"]
    else:
        environment = {"CORDWOOD_URL": service.url, "CORDWOOD_KEY": PRIVATE}
        if "PYTHONPATH" in os.environ:
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        options = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        target = [sys.executable, "-m", "cordwood", "mcp", *options]
    home = {**os.environ, "HOME": str(inspector.parents[2])}
    command = [str(inspector), "--cli", *target, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS, env=home, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-500:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_accepts_every_schema(inspector: Path, service: Service, transport: str) -> None:
    listed = run_inspector(inspector, service, transport, "--method", "tools/list", "--strict")
    assert {"query", "list_tables", "read_event", "logs_all", "usage_api-counts"} <= {
        tool["name"] for tool in listed["tools"]
    }


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_calls_a_tool_and_reads_a_resource(inspector: Path, service: Service, transport: str) -> None:
    pairs = ("endpoint=logs.all", "sql=select count(*) as n from edge_logs", 'parameters={"project": "none"}')
    arguments = [word for pair in pairs for word in ("--tool-arg", pair)]
    called = run_inspector(inspector, service, transport, "--method", "tools/call", "--tool-name", "query", *arguments)
    assert json.loads(called["content"][0]["text"])["rows"] == [{"n": 0}]
    uri = "cordwood://endpoints/logs.all/tables"
    read = run_inspector(inspector, service, transport, "--method", "resources/read", "--uri", uri)
    assert json.loads(read["contents"][0]["text"])["endpoint"] == "logs.all"
