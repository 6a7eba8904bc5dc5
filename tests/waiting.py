"""Polling for conditions that another thread or process makes true."""

import time
from collections.abc import Callable
from pathlib import Path


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)


def until_flushed(data_dir: Path, seconds: float = 300.0) -> None:
    """Wait until all events of the data folder are flushed to the engine's file."""
    until(lambda: not any((data_dir / "journal").glob("*.log")), seconds)
