"""Measure the memory of processes, as the operating system reports it."""

import os
from collections.abc import Iterable
from pathlib import Path


class ResidentMemoryReader:
    """Reads the resident memory of one process again and again, with only one system call each time."""

    def __init__(self, pid: int) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._statm_file_descriptor: int | None = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
        except OSError:
            self._statm_file_descriptor = None

    def read(self) -> int | None:
        """Return the process's resident memory in bytes, including shared pages.

        Return None if the process has ended, or if the system does not report the memory of processes.
        """
        if self._statm_file_descriptor is None:
            return None
        try:
            return int(os.pread(self._statm_file_descriptor, 128, 0).split()[1]) * self._page_bytes
        except (OSError, IndexError):
            return None

    def close(self) -> None:
        if self._statm_file_descriptor is not None:
            os.close(self._statm_file_descriptor)
            self._statm_file_descriptor = None


def resident_bytes(pid: int) -> int | None:
    """Return a process's resident memory in bytes, including shared pages, or None if the system does not report it.

    This call is cheap, unlike `proportional_set_bytes`.
    """
    memory = ResidentMemoryReader(pid)
    try:
        return memory.read()
    finally:
        memory.close()


def proportional_set_bytes(pid: int) -> int | None:
    """Return the proportional set size (PSS) of a process in bytes, or None if the system does not report it.

    The PSS counts a page that n processes share as 1/n of a page, so that the sum over processes is meaningful. Reading
    the PSS takes milliseconds.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)


def total_memory_bytes(pids: Iterable[int]) -> int | None:
    """Return the total memory of the processes in bytes, or None if the system does not report the memory of any."""
    sizes = [size for pid in pids if (size := proportional_set_bytes(pid) or resident_bytes(pid)) is not None]
    return sum(sizes) if sizes else None
