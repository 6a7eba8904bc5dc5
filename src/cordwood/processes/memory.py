"""How much memory processes hold, as the system tells it."""

import os
from collections.abc import Iterable
from pathlib import Path


def resident_bytes(pid: int) -> int | None:
    """What is resident of a process, pages that it shares with others too; None where the system does not tell. Cheap."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(pid: int) -> int | None:
    """As `resident_bytes`, but a page that n processes share counts by an n-th. It takes milliseconds to tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)


def bytes_together(pids: Iterable[int]) -> int | None:
    """What several processes hold together; None where the system tells it of none of them."""
    found = [held for pid in pids if (held := proportional_bytes(pid) or resident_bytes(pid)) is not None]
    return sum(found) if found else None
