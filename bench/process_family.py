"""The memory and processor time of a service's processes: the process that was started, and its descendants."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cordwood.processes.memory_use import total_memory_bytes


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, each before its own children. Return none if the process has ended."""
    pids: list[int] = []
    # Linux lists a child process under the thread that forked it.
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                pids += [child, *descendants(child)]
    return pids


def family_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants. Memory that they share is counted once."""
    return total_memory_bytes((pid, *descendants(pid))) or 0


def processor_seconds(pid: int) -> float:
    """Return the processor time of one process since its start, in seconds, with a resolution of nanoseconds.

    Linux has a clock for each process. The clock's id is computed from the process id, as `clock_getcpuclockid` does.
    """
    return time.clock_gettime(~pid << 3 | 2)


def family_processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its descendants that are still running."""
    used = 0.0
    for each in (pid, *descendants(pid)):
        # A process that has ended in the meantime is not counted.
        with suppress(OSError):
            used += processor_seconds(each)
    return used


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class MemoryProbe(threading.Thread):
    """A thread that repeatedly measures the memory of a process and its descendants, and keeps the maximum."""

    def __init__(self, pid: int, interval_seconds: float = 0.1) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.stopped = threading.Event()
        self._pid = pid
        self._interval_seconds = interval_seconds

    def run(self) -> None:
        while not self.stopped.wait(self._interval_seconds):
            self.measure()

    def measure(self) -> int:
        """Return the present memory, which also counts for the maximum."""
        size = family_bytes(self._pid)
        self.peak_bytes = max(self.peak_bytes, size)
        return size


@contextmanager
def memory_probe(pid: int) -> Iterator[MemoryProbe]:
    """Yield a probe that measures only twice a second during the block, because a measurement takes milliseconds."""
    probe = MemoryProbe(pid, interval_seconds=0.5)
    probe.start()
    try:
        yield probe
    finally:
        probe.stopped.set()
        probe.join()
