"""Run the README and the guide from top to bottom, with each command exactly as it is printed.

Each page has its own empty folder, its own shell, and a service that `cordwood serve` starts in this folder. The words
after the language of a fence say how its text is used:

- ```sh                 typed into the shell; it must succeed
- ```sh background      typed, and left running: the service that the rest of the page uses
- ```sh not run: WHY    not typed; commands of cordwood in it must still exist
- ```LANGUAGE save FILE saved as a file with this name
"""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
# The pages, in the order in which a new reader reads them.
PAGES = (
    "README.md",
    *(f"docs/guide/{name}.md" for name in re.findall(r"\]\(([a-z-]+)\.md\)", (GUIDE / "README.md").read_text())),
)
SHELLS = ("sh", "bash", "console")
# Programs that steps need besides cordwood and a shell's tools. Each has a Debian package of the same name.
PROGRAMS = ("curl", "gzip")
# The port at which the guide's receiver of alerts listens.
GUIDE_RECEIVER_PORT = "4080"
MAX_STEP_SECONDS = 60

_FENCE = re.compile(r"^(?P<mark>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=mark)$", re.MULTILINE | re.DOTALL)
_DONE_MARKER = "the step is done"


@dataclass(frozen=True, slots=True)
class Step:
    """A fence of a page that is typed or saved, or is marked as not run."""

    page: str
    number: int
    line: int
    language: str
    note: str
    text: str

    @property
    def is_typed(self) -> bool:
        return self.language in SHELLS and not self.note.startswith("not run")

    @property
    def saved_as(self) -> str | None:
        word, _, name = self.note.partition(" ")
        return name if word == "save" else None

    def __str__(self) -> str:
        return f"{self.page.removeprefix('docs/guide/')}:{self.line}"


def steps_of(page: str) -> list[Step]:
    text = (ROOT / page).read_text()
    steps: list[Step] = []
    for match in _FENCE.finditer(text):
        language, _, note = match["info"].strip().partition(" ")
        step = Step(page, len(steps), text[: match.start()].count("\n") + 1, language, note.strip(), match["text"])
        if language in SHELLS or step.saved_as:
            steps.append(step)
    return steps


def programs_until(step: Step) -> list[str]:
    """Return the programs that this step and the earlier steps of its page need."""
    commands = "\n".join(
        earlier_step.text for earlier_step in steps_of(step.page)[: step.number + 1] if earlier_step.is_typed
    )
    return [program for program in PROGRAMS if re.search(rf"\b{program}\b", commands)]


STEPS = [step for page in PAGES for step in steps_of(page)]


class StepFailedError(AssertionError):
    """Raised if a command of a step fails."""


@dataclass
class GuidePageRun:
    """A run of one page of the guide: its folder, its shell and its service."""

    page: str
    folder: Path
    port: int = 0
    receiver_port: int = 0
    steps: list[Step] = field(default_factory=list)
    done_steps: int = 0
    outputs: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.steps = steps_of(self.page)
        self.port = free_port()
        self.receiver_port = free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "backups").mkdir()
        self._served: list[subprocess.Popen[bytes]] = []
        self._shell = self._open_shell()

    def run_until(self, number: int) -> str:
        """Run all steps up to this one, and return its output. A step that has failed is not run again."""
        if not self._served and not any(step.note == "background" for step in self.steps):
            self._serve("cordwood serve --demo" if self.page == "README.md" else "cordwood serve")
        while self.done_steps <= number:
            step = self.steps[self.done_steps]
            self.outputs[step.number] = self._run_step(step)
            self.done_steps += 1
        return self.outputs[number]

    def stop(self) -> None:
        self._shell.kill()
        self._shell.wait(MAX_STEP_SECONDS)
        for pipe in (self._shell.stdout, self._shell.stdin):
            if pipe is not None:
                pipe.close()
        for process in self._served:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(MAX_STEP_SECONDS)

    def _run_step(self, step: Step) -> str:
        if step.saved_as:
            file = self.folder / step.saved_as
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._with_free_ports(step.text))
            return ""
        if not step.is_typed:
            return ""
        text = self._with_free_ports(step.text)
        if step.note == "background":
            self._serve(text)
            return ""
        return self._run_command(text, step)

    def _with_free_ports(self, text: str) -> str:
        """Replace the ports of the service and of the receiver of alerts by free ports."""
        own = {"localhost:4000": f"localhost:{self.port}", "127.0.0.1:4000": f"127.0.0.1:{self.port}"}
        for port in (f"127.0.0.1:{GUIDE_RECEIVER_PORT}", f'"127.0.0.1", {GUIDE_RECEIVER_PORT}'):
            own[port] = port.replace(GUIDE_RECEIVER_PORT, str(self.receiver_port))
        for address_pattern, free in own.items():
            text = text.replace(address_pattern, free)
        return text

    def _run_command(self, text: str, step: Step) -> str:
        file = self.folder / ".step.sh"
        file.write_text(text)
        assert self._shell.stdin is not None
        if self._shell.poll() is not None:
            raise StepFailedError(f"{step}: an earlier step of the page failed")
        line = f"set -euo pipefail; source {file} </dev/null; set +eu; echo; echo '{_DONE_MARKER}'\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        return self._read_until_done(step)

    def _read_until_done(self, step: Step) -> str:
        assert self._shell.stdout is not None
        output = b""
        deadline = time.monotonic() + MAX_STEP_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(timeout=1.0):
                    continue
                piece = os.read(self._shell.stdout.fileno(), 65536)
                output += piece
                if output.endswith(f"{_DONE_MARKER}\n".encode()):
                    return output.decode().removesuffix(f"\n{_DONE_MARKER}\n")
                if not piece:
                    break
        self._shell.kill()
        raise StepFailedError(f"{step} failed or never ended:\n{step.text}\nIt said:\n{output.decode()}")

    def _serve(self, command: str) -> None:
        log = self.folder.with_name(f"{self.folder.name}.{len(self._served)}.log")
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", command], cwd=self.folder, env=self._environment(), stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self._served.append(process)
        key = self._wait_until_healthy(process, log)
        for name in ("CORDWOOD_KEY", "LOGFLARE_PRIVATE_ACCESS_TOKEN"):
            self._run_command(f"export {name}={key}", self.steps[0])
        self._run_command(f"export CORDWOOD_URL=http://127.0.0.1:{self.port}", self.steps[0])

    def _wait_until_healthy(self, process: "subprocess.Popen[bytes]", log: Path) -> str:
        """Wait until the service answers and has printed its key. Return the key."""
        deadline = time.monotonic() + MAX_STEP_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                key = re.search(r"^  private  (\S+)|^The key of this demo: (\S+)", log.read_text(), re.MULTILINE)
                if httpx.get(f"http://127.0.0.1:{self.port}/health").status_code == 200 and key is not None:
                    return str(key[1] or key[2])
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise StepFailedError(log.read_text())

    def _open_shell(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["bash", "--norc"], cwd=self.folder, env=self._environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _environment(self) -> Mapping[str, str]:
        """Return the environment of a reader, which lacks this machine's variables for cordwood."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CORDWOOD", "LOGFLARE"))}
        return {
            **inherited,
            "PATH": f"{Path(sys.executable).parent}:{inherited['PATH']}",
            "HOME": str(self.folder),
            "CORDWOOD_WEB_PORT": str(self.port),
            "BACKUPS": str(self.folder / "backups"),
        }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
