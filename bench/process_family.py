"""The processes of a running service, the one that was started and all below it: their memory and processor time."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from cordwood.processes.memory_use import total_bytes


def children(pid: int) -> list[int]:
    """All processes below `pid`, nearest first; none where it is gone."""
    found: list[int] = []
    # A child belongs to the thread that forked it.
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                found += [child, *children(child)]
    return found


def family_bytes(pid: int) -> int:
    """Return what the process and all below it hold together; shared pages count once."""
    return total_bytes((pid, *children(pid))) or 0


def processor_seconds(pid: int) -> float:
    """Return the processor time of one process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class MemoryProbe(threading.Thread):
    """Measures the memory of a process and of all below it, ten times a second; keeps the most."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self.over = threading.Event()
        self._pid = pid

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.most = max(self.most, family_bytes(self._pid))
