"""What the README tells people to type works, in the order in which it stands there."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(bash|console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
PATIENCE_SECONDS = 60


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(README) if found == kind]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A demo service of its own, and the environment in which the README's commands find it."""
    folder = tmp_path_factory.mktemp("readme")
    port = free_port()
    command = [sys.executable, "-m", "cordwood", "serve", "--demo", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        key = printed_key(folder / "log")
        yield {**os.environ, "CORDWOOD_URL": f"http://127.0.0.1:{port}", "CORDWOOD_KEY": key, "CW_DIR": str(folder)}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def printed_key(log: Path) -> str:
    """The key that the demo prints with its curl lines."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = re.search(r"X-API-KEY: ([^'\"\s]+)", log.read_text(), re.IGNORECASE)
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.mark.parametrize("block", blocks("bash"), ids=lambda block: block.splitlines()[0][:50])
def test_a_block_runs_against_a_real_service(block: str, service: dict[str, str]) -> None:
    tools = str(Path(sys.executable).parent)
    environment = {**service, "PATH": f"{tools}:{service['PATH']}"}
    script = f"set -euo pipefail\n{block}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=service["CW_DIR"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert '"error"' not in done.stdout


def test_the_command_is_found_where_make_puts_it() -> None:
    assert README.index('export PATH="$PWD/.venv/bin:$PATH"') < README.index("\ncordwood ")


def test_ci_runs_what_the_readme_says_the_tests_are() -> None:
    section = README.split("\n## Tests\n")[1].split("\n## ")[0]
    told = [line.split("#")[0].strip() for _, text in BLOCK.findall(section) for line in text.strip().splitlines()]
    runs = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("exec ")]
    assert [shlex.split(line)[1:3] for line in runs] == [shlex.split(line) for line in told]


def test_every_verb_that_the_readme_names_is_a_verb_of_make() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= known


def test_every_link_of_the_readme_leads_somewhere() -> None:
    assert not [target for target in LINK.findall(README) if not (ROOT / target).exists()]
