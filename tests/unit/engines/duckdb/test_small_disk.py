"""On a full disk, the engine refuses events and answers queries. It recovers without a restart."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import OutOfDisk
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.small_disks import mount_small_disk

COUNTS_QUERY = "select count(*), count(distinct id) from `s`"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "disk") as place:
        yield place


def make_events(first: int) -> list[Event]:
    texts = (os.urandom(400).hex() for _ in range(1000))
    return [Event(f"e{first + place}", NOW_US, metadata=f'{{"a":"{text}"}}') for place, text in enumerate(texts)]


def fill_disk(engine: DuckDBEngine) -> int:
    """Append events until the disk is full. Return the number of stored events."""
    stored = 0
    while stored < 100_000:
        try:
            stored += engine.append([batch(*make_events(stored))])[0].accepted
        except OutOfDisk:
            return stored
    pytest.fail("the disk never filled")


def test_the_engine_recovers_after_a_full_disk(disk: Path) -> None:
    filler = disk / "filler"
    filler.write_bytes(b"x" * 20_000_000)
    engine = DuckDBEngine(disk / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    stored = fill_disk(engine)
    assert rows(engine, COUNTS_QUERY) == [(stored, stored)]
    filler.unlink()
    deadline = time.monotonic() + 20
    for _ in range(2):
        stored += engine.append([batch(*make_events(stored))])[0].accepted
    while any((disk / "data" / "journal").glob("*.log")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any((disk / "data" / "journal").glob("*.log"))
    assert rows(engine, COUNTS_QUERY) == [(stored, stored)]
    engine.close()
    engine = DuckDBEngine(disk / "data", DuckDBTarget())
    engine.create_stream_tables([stream("s")])
    assert rows(engine, COUNTS_QUERY) == [(stored, stored)]
    engine.close()
