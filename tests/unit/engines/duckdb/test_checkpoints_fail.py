"""A checkpoint that fails, for want of memory or of disk: the engine gives up the file, and it is opened anew."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.faults import fault_of
from cordwood.engines.duckdb.storage import session
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import Cancelled, EngineFailed
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.small_disks import small_disk
from tests.unit.engines.duckdb.file_identity import identity
from tests.unit.engines.duckdb.sealing import seal

COUNT = "select count(*), count(distinct id), count(t.metadata.a) from `s` as t"
ROWS = 4096


@pytest.fixture(autouse=True)
def _nothing_behind_its_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "start", lambda *_: None)
    monkeypatch.setattr(Compactor, "start", lambda *_: None)


@contextmanager
def opened(folder: Path) -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    yield engine
    engine.close()


def stored(engine: DuckDBEngine, first: int = 0) -> int:
    """After a part of a row group, which the engine's log and memory have: how many events there are then."""
    numbers = range(first, first + ROWS)
    events = [Event(f"e{n}", NOW_US, metadata=json.dumps({"a": os.urandom(400).hex()})) for n in numbers]
    engine.append([batch(*events)])
    seal(engine)
    return first + ROWS


def assert_there(engine: DuckDBEngine, count: int) -> None:
    assert rows(engine, COUNT) == [(count, count, count)]


def assert_goes_on(engine: DuckDBEngine, count: int, cursor: duckdb.DuckDBPyConnection) -> int:
    """What is there is written into the file, and more is taken; how many events there are then."""
    assert_there(engine, count)
    assert engine._session.checkpoint(cursor)
    count = stored(engine, count)
    assert_there(engine, count)
    return count


def set_memory(cursor: duckdb.DuckDBPyConnection, most: str) -> None:
    cursor.execute("SET GLOBAL memory_limit = $most", {"most": most})


@contextmanager
def full(disk: Path, spare_bytes: int) -> Iterator[None]:
    filler = disk / "filler"
    facts = os.statvfs(disk)
    filler.write_bytes(b"x" * (facts.f_bavail * facts.f_bsize - spare_bytes))
    yield
    filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


def test_without_memory_nothing_is_lost_and_the_next_look_opens_the_file(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine, engine._session.cursor() as cursor:
        count = stored(engine)
        set_memory(cursor, "1MB")
        with pytest.raises(duckdb.IOException):
            engine._session.checkpoint(cursor)
        with pytest.raises(EngineFailed, match="could not be opened again"):
            rows(engine, COUNT)
        set_memory(cursor, "256MB")
        engine._storage._compactor.memory_reclaimer.reclaim(cursor)
        count = assert_goes_on(engine, count, cursor)
    with opened(tmp_path / "data") as engine:
        assert_there(engine, count)


def test_on_a_full_disk_what_was_stored_is_there_at_once(disk: Path) -> None:
    with opened(disk / "data") as engine, engine._session.cursor() as cursor:
        count = stored(engine)
        with full(disk, 1_000_000):
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint(cursor)
            assert_there(engine, count)
        count = assert_goes_on(engine, count, cursor)
    with opened(disk / "data") as engine:
        assert_there(engine, count)


def test_the_file_is_opened_anew_on_a_full_disk_too(disk: Path) -> None:
    with opened(disk / "data") as engine, engine._session.cursor() as cursor:
        count = stored(engine)
        with full(disk, 1_000_000):
            engine._storage._compactor.memory_reclaimer._reopen(cursor)
            assert_there(engine, count)
        assert_goes_on(engine, count, cursor)


def test_one_that_is_interrupted_leaves_the_file_open(tmp_path: Path) -> None:
    class Interrupted:
        def execute(self, _: str) -> None:
            raise duckdb.InterruptException

    with opened(tmp_path / "data") as engine, engine._session.cursor() as cursor:
        count, before = stored(engine), identity(engine)
        with pytest.raises(duckdb.InterruptException):
            engine._session.checkpoint(cast(duckdb.DuckDBPyConnection, Interrupted()))
        assert engine._session.is_open
        assert identity(engine) == before
        assert_goes_on(engine, count, cursor)


def test_the_next_that_is_due_waits_a_while(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(disk / "data") as engine, engine._session.cursor() as cursor:
        stored(engine)
        with full(disk, 1_000_000):
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint_when_due(cursor, now=True)
            assert not engine._session.checkpoint_when_due(cursor, now=True)
            monkeypatch.setattr(session, "_AFTER_FAILURE_SECONDS", 0.0)
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint_when_due(cursor, now=True)


def test_one_that_failed_for_want_of_room_is_due_as_soon_as_there_is_room(disk: Path) -> None:
    with opened(disk / "data") as engine, engine._session.cursor() as cursor:
        stored(engine)
        with full(disk, 1_000_000), pytest.raises(duckdb.IOException):
            engine._session.checkpoint_when_due(cursor, now=True)
        assert engine._session.checkpoint_when_due(cursor, now=True)


def test_nothing_is_added_to_a_long_log_that_cannot_be_written_into_the_file(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the log is in memory: what reads need would be taken by it."""
    monkeypatch.setattr(session, "_LOG_BYTES", 1_000_000)
    with opened(disk / "data") as engine, engine._session.cursor() as cursor:
        sealer = engine._storage._flusher
        monkeypatch.setattr(sealer, "_is_due", lambda _: True)
        count = stored(engine)
        engine.append([batch(Event("later", NOW_US, metadata='{"a": "x"}'))])
        with full(disk, 1_000_000):
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint(cursor)
            assert engine._session.is_stuck
            assert not sealer._flush_one(cursor)
            assert_there(engine, count + 1)
        assert sealer._flush_one(cursor)
        assert_there(engine, count + 1)


def test_who_asks_meanwhile_gets_all_rows_or_is_told_to_ask_again(disk: Path) -> None:
    with opened(disk / "data") as engine, engine._session.cursor() as cursor:
        count, is_over = stored(engine), threading.Event()
        seen: set[object] = set()

        def ask() -> None:
            while not is_over.is_set():
                try:
                    seen.add(tuple(map(tuple, rows(engine, COUNT))))
                except Cancelled as fault:
                    assert fault.retry_after
                    seen.add(Cancelled)

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for one in asking:
            one.start()
        with full(disk, 1_000_000):
            for _ in range(5):
                with pytest.raises(duckdb.IOException):
                    engine._session.checkpoint(cursor)
        is_over.set()
        for one in asking:
            one.join()
        assert seen - {Cancelled} == {((count, count, count),)}
        assert_there(engine, count)


def test_a_query_of_a_file_that_is_to_be_opened_anew_may_be_asked_again(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as engine, engine._session.cursor() as cursor:
        stored(engine)
        set_memory(cursor, "1MB")
        with pytest.raises(duckdb.IOException):
            cursor.execute("CHECKPOINT store")
        set_memory(cursor, "256MB")
        with pytest.raises(duckdb.IOException) as raised:
            cursor.execute("SELECT count(*) FROM store.events")
        assert isinstance(fault_of(raised.value), Cancelled)
