"""The memory and processor time of a service's processes: the one that was started and its descendants."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from cordwood.processes.memory_use import total_bytes


def children(pid: int) -> list[int]:
    """Return all descendants of a process, each before its own children; none if the process has ended."""
    found: list[int] = []
    # Linux lists a child under the thread that forked it.
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                found += [child, *children(child)]
    return found


def family_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; pages that they share count once."""
    return total_bytes((pid, *children(pid))) or 0


def processor_seconds(pid: int) -> float:
    """Return the processor time of one process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class MemoryProbe(threading.Thread):
    """A thread that measures the memory of a process and its descendants ten times a second, and keeps the maximum."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.stopped = threading.Event()
        self._pid = pid

    def run(self) -> None:
        while not self.stopped.wait(0.1):
            self.peak_bytes = max(self.peak_bytes, family_bytes(self._pid))
