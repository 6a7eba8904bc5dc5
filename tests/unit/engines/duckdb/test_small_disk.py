"""A disk that fills to the end refuses events, answers questions, and recovers by itself."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import OutOfDisk
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream

COUNT = "select count(*), count(distinct id) from `s`"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a file system of limited size cannot be mounted here: that needs root")
    yield place
    subprocess.run(["umount", place], check=True)


def events(first: int) -> list[Event]:
    texts = (os.urandom(400).hex() for _ in range(1000))
    return [Event(f"e{first + place}", NOW_US, metadata=f'{{"a":"{text}"}}') for place, text in enumerate(texts)]


def fill(engine: DuckDBEngine) -> int:
    """Append until the disk is full; how many events were stored."""
    stored = 0
    while stored < 100_000:
        try:
            stored += engine.append([batch(*events(stored))])[0].accepted
        except OutOfDisk:
            return stored
    pytest.fail("the disk never filled")


def test_a_full_disk_is_survived(disk: Path) -> None:
    filler = disk / "filler"
    filler.write_bytes(b"x" * 20_000_000)
    engine = DuckDBEngine(disk / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    stored = fill(engine)
    assert rows(engine, COUNT) == [(stored, stored)]
    filler.unlink()
    deadline = time.monotonic() + 20
    stored += engine.append([batch(*events(stored))])[0].accepted
    while any((disk / "data" / "journal").glob("*.log")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert rows(engine, COUNT) == [(stored, stored)]
    engine.close()
    engine = DuckDBEngine(disk / "data", DuckDBTarget())
    engine.prepare([stream("s")])
    assert rows(engine, COUNT) == [(stored, stored)]
    engine.close()
