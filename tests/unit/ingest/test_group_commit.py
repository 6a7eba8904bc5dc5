"""Events are on disk before anybody is told so, and one sync does for all who wait."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Appended
from cordwood.ingest.group_commit import GroupCommit
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.waiting import until

SENDERS = 50


class Disk:
    """One whose syncs wait until they are let through."""

    def __init__(self) -> None:
        self.syncs = 0
        self.reached = threading.Event()
        self.lets_through = threading.Event()
        self._really = os.fdatasync

    def fdatasync(self, descriptor: int) -> None:
        self.syncs += 1
        self.reached.set()
        self.lets_through.wait(30)
        self._really(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


@pytest.fixture
def flusher(disk: Disk, tmp_path: Path) -> Iterator[GroupCommit]:
    engine = DuckDBEngine(tmp_path, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    flusher = GroupCommit(engine)
    yield flusher
    disk.lets_through.set()
    flusher.close()
    engine.close()


def sent(flusher: GroupCommit, number: int) -> "asyncio.Task[list[Appended]]":
    return asyncio.ensure_future(flusher.append([batch(Event(f"e{number}", NOW_US))]))


def test_nobody_is_told_before_the_sync_and_one_sync_does_for_all_who_came_meanwhile(
    disk: Disk, flusher: GroupCommit
) -> None:
    async def senders() -> list[list[Appended]]:
        first = sent(flusher, 0)
        await asyncio.to_thread(disk.reached.wait, 30)
        others = [sent(flusher, number) for number in range(1, SENDERS)]
        told, _ = await asyncio.wait([first, *others], timeout=0.05)
        assert not told
        disk.lets_through.set()
        return await asyncio.gather(first, *others)

    outcomes = asyncio.run(senders())

    assert outcomes == [[Appended(1, 0)]] * SENDERS
    assert disk.syncs == 2


def test_what_was_stored_is_not_kept_until_the_next_comes(disk: Disk, flusher: GroupCommit) -> None:
    disk.lets_through.set()
    stored = batch(Event("e", NOW_US))
    before = sys.getrefcount(stored)
    asyncio.run(flusher.append([stored]))
    until(lambda: sys.getrefcount(stored) == before)
