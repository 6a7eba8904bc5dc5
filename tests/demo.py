"""A running demo: the process of `cordwood serve --demo` and its output."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60
# The number of curl commands in the output of a demo. The last of them ends the output.
_CURL_COMMANDS = 3


@dataclass(frozen=True)
class Demo:
    """A demo process, with its output and its temporary folder."""

    process: "subprocess.Popen[str]"
    output: str
    temporary: Path
    url: str
    key: str

    @property
    def sign_in_url(self) -> str:
        """Return the sign-in link that the demo printed."""
        return _find_in_output(r"(\S+/sign-in#\S+)", self.output)

    def curl_commands(self) -> list[str]:
        """Return the curl commands that the demo printed."""
        return [line for line in self.output.splitlines() if line.startswith("curl ")]


@contextmanager
def start_demo(temporary: Path) -> Iterator[Demo]:
    log = temporary / "told.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood", "serve", "--demo", "--port", "0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
    try:
        output = _wait_for_output(process, log)
        yield Demo(
            process,
            output,
            temporary,
            _find_in_output(r"listens on (\S+),", output),
            _find_in_output(r"(cw_\S+)", output),
        )
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def _wait_for_output(process: "subprocess.Popen[str]", log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        output = log.read_text()
        if output.count("curl ") >= _CURL_COMMANDS:
            return output
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _find_in_output(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    assert match, output
    return match[1]
