"""Group commit: events are synced to disk before they are acknowledged, and one sync serves all waiting requests."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import BatchAppendResult
from cordwood.ingest.group_commit import GroupCommitter
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.waiting import until

SENDER_COUNT = 50


class BlockingDisk:
    """A disk whose syncs block until the test releases them."""

    def __init__(self) -> None:
        self.syncs = 0
        self.reached = threading.Event()
        self.released = threading.Event()
        self._real_sync = os.fdatasync

    def fdatasync(self, descriptor: int) -> None:
        self.syncs += 1
        self.reached.set()
        self.released.wait(30)
        self._real_sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BlockingDisk:
    disk = BlockingDisk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


@pytest.fixture
def flusher(disk: BlockingDisk, tmp_path: Path) -> Iterator[GroupCommitter]:
    engine = DuckDBEngine(tmp_path, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    flusher = GroupCommitter(engine)
    yield flusher
    disk.released.set()
    flusher.close()
    engine.close()


def append_one(flusher: GroupCommitter, number: int) -> "asyncio.Task[list[BatchAppendResult]]":
    return asyncio.ensure_future(flusher.append([batch(Event(f"e{number}", NOW_US))]))


def test_requests_are_acknowledged_after_the_sync_and_share_the_next_one(
    disk: BlockingDisk, flusher: GroupCommitter
) -> None:
    async def senders() -> list[list[BatchAppendResult]]:
        first = append_one(flusher, 0)
        await asyncio.to_thread(disk.reached.wait, 30)
        other_senders = [append_one(flusher, number) for number in range(1, SENDER_COUNT)]
        acknowledged, _ = await asyncio.wait([first, *other_senders], timeout=0.05)
        assert not acknowledged
        disk.released.set()
        return await asyncio.gather(first, *other_senders)

    outcomes = asyncio.run(senders())

    assert outcomes == [[BatchAppendResult(1, 0)]] * SENDER_COUNT
    assert disk.syncs == 2


def test_a_stored_batch_is_released_at_once(disk: BlockingDisk, flusher: GroupCommitter) -> None:
    disk.released.set()
    stored = batch(Event("e", NOW_US))
    before = sys.getrefcount(stored)
    asyncio.run(flusher.append([stored]))
    until(lambda: sys.getrefcount(stored) == before)
