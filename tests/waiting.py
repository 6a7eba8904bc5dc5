"""Waits for what goes on beside the test: as long as it must, and no longer."""

import time
from collections.abc import Callable
from pathlib import Path


def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)


def until_sealed(data_dir: Path, seconds: float = 300.0) -> None:
    """Until all that was stored in the folder is in the engine's file."""
    until(lambda: not any((data_dir / "journal").glob("*.log")), seconds)
