"""If a checkpoint fails for lack of memory or disk space, DuckDB invalidates the file.

The engine then reopens the file.
"""

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
from cordwood.engines.duckdb.faults import fault_of_error
from cordwood.engines.duckdb.storage import session
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import EngineFailed, QueryCancelled
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.small_disks import mount_small_disk
from tests.unit.engines.duckdb.file_identity import file_identity
from tests.unit.engines.duckdb.flushing import flush_pending

COUNTS_QUERY = "select count(*), count(distinct id), count(t.metadata.a) from `s` as t"
ROW_GROUP_SIZE = 4096


@pytest.fixture(autouse=True)
def _no_background_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)


@contextmanager
def open_engine(folder: Path) -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    yield engine
    engine.close()


def flush_incomplete_row_group(engine: DuckDBEngine, first: int = 0) -> int:
    """Flush a row group whose events are only in DuckDB's log and memory. Return the total number of events."""
    numbers = range(first, first + ROW_GROUP_SIZE)
    events = [Event(f"e{n}", NOW_US, metadata=json.dumps({"a": os.urandom(400).hex()})) for n in numbers]
    engine.append([batch(*events)])
    flush_pending(engine)
    return first + ROW_GROUP_SIZE


def assert_readable(engine: DuckDBEngine, count: int) -> None:
    assert rows(engine, COUNTS_QUERY) == [(count, count, count)]


def assert_writable(engine: DuckDBEngine, count: int, cursor: duckdb.DuckDBPyConnection) -> int:
    """Check that a checkpoint and another flush succeed. Return the total number of events."""
    assert_readable(engine, count)
    assert engine._session.checkpoint(cursor)
    count = flush_incomplete_row_group(engine, count)
    assert_readable(engine, count)
    return count


def set_memory(cursor: duckdb.DuckDBPyConnection, limit: str) -> None:
    cursor.execute("SET GLOBAL memory_limit = $limit", {"limit": limit})


@contextmanager
def fill_disk(disk: Path, spare_bytes: int) -> Iterator[None]:
    filler = disk / "filler"
    facts = os.statvfs(disk)
    filler.write_bytes(b"x" * (facts.f_bavail * facts.f_bsize - spare_bytes))
    yield
    filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "disk") as place:
        yield place


def test_without_memory_nothing_is_lost_and_the_reclaimer_reopens_the_file(tmp_path: Path) -> None:
    with open_engine(tmp_path / "data") as engine, engine._session.cursor() as cursor:
        count = flush_incomplete_row_group(engine)
        set_memory(cursor, "1MB")
        with pytest.raises(duckdb.IOException):
            engine._session.checkpoint(cursor)
        with pytest.raises(EngineFailed, match="could not be opened again"):
            rows(engine, COUNTS_QUERY)
        set_memory(cursor, "256MB")
        engine._storage._compactor.memory_reclaimer.reclaim(cursor)
        count = assert_writable(engine, count, cursor)
    with open_engine(tmp_path / "data") as engine:
        assert_readable(engine, count)


def test_on_a_full_disk_stored_events_stay_readable(disk: Path) -> None:
    with open_engine(disk / "data") as engine, engine._session.cursor() as cursor:
        count = flush_incomplete_row_group(engine)
        with fill_disk(disk, 1_000_000):
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint(cursor)
            assert_readable(engine, count)
        count = assert_writable(engine, count, cursor)
    with open_engine(disk / "data") as engine:
        assert_readable(engine, count)


def test_the_file_can_be_reopened_on_a_full_disk(disk: Path) -> None:
    with open_engine(disk / "data") as engine, engine._session.cursor() as cursor:
        count = flush_incomplete_row_group(engine)
        with fill_disk(disk, 1_000_000):
            engine._storage._compactor.memory_reclaimer._reopen_database(cursor)
            assert_readable(engine, count)
        assert_writable(engine, count, cursor)


def test_an_interrupted_checkpoint_leaves_the_file_open(tmp_path: Path) -> None:
    class Interrupted:
        def execute(self, _: str) -> None:
            raise duckdb.InterruptException

    with open_engine(tmp_path / "data") as engine, engine._session.cursor() as cursor:
        count, before = flush_incomplete_row_group(engine), file_identity(engine)
        with pytest.raises(duckdb.InterruptException):
            engine._session.checkpoint(cast(duckdb.DuckDBPyConnection, Interrupted()))
        assert engine._session.is_open
        assert file_identity(engine) == before
        assert_writable(engine, count, cursor)


def test_the_next_checkpoint_is_delayed_after_a_failure(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_engine(disk / "data") as engine, engine._session.cursor() as cursor:
        flush_incomplete_row_group(engine)
        with fill_disk(disk, 1_000_000):
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint_when_due(cursor, now=True)
            assert not engine._session.checkpoint_when_due(cursor, now=True)
            monkeypatch.setattr(session, "_CHECKPOINT_RETRY_SECONDS", 0.0)
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint_when_due(cursor, now=True)


def test_a_checkpoint_that_lacked_disk_is_retried_once_there_is_space(disk: Path) -> None:
    with open_engine(disk / "data") as engine, engine._session.cursor() as cursor:
        flush_incomplete_row_group(engine)
        with fill_disk(disk, 1_000_000), pytest.raises(duckdb.IOException):
            engine._session.checkpoint_when_due(cursor, now=True)
        assert engine._session.checkpoint_when_due(cursor, now=True)


def test_flushes_stop_while_a_long_log_cannot_be_checkpointed(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop flushing, because DuckDB holds its log in memory. A longer log would leave less memory to queries."""
    monkeypatch.setattr(session, "_MAX_DATABASE_LOG_BYTES", 1_000_000)
    with open_engine(disk / "data") as engine, engine._session.cursor() as cursor:
        flusher = engine._storage._flusher
        monkeypatch.setattr(flusher, "_is_flush_due", lambda _: True)
        count = flush_incomplete_row_group(engine)
        engine.append([batch(Event("later", NOW_US, metadata='{"a": "x"}'))])
        with fill_disk(disk, 1_000_000):
            with pytest.raises(duckdb.IOException):
                engine._session.checkpoint(cursor)
            assert engine._session.is_checkpoint_stuck
            assert not flusher._flush_due_chunk()
            assert_readable(engine, count + 1)
        assert flusher._flush_due_chunk()
        assert_readable(engine, count + 1)


def test_concurrent_queries_get_all_rows_or_a_retriable_fault(disk: Path) -> None:
    with open_engine(disk / "data") as engine, engine._session.cursor() as cursor:
        count, is_over = flush_incomplete_row_group(engine), threading.Event()
        results: set[object] = set()

        def query_repeatedly() -> None:
            while not is_over.is_set():
                try:
                    results.add(tuple(map(tuple, rows(engine, COUNTS_QUERY))))
                except QueryCancelled as fault:
                    assert fault.retry_after
                    results.add(QueryCancelled)

        query_threads = [threading.Thread(target=query_repeatedly) for _ in range(3)]
        for query_thread in query_threads:
            query_thread.start()
        with fill_disk(disk, 1_000_000):
            for _ in range(5):
                with pytest.raises(duckdb.IOException):
                    engine._session.checkpoint(cursor)
        is_over.set()
        for item in query_threads:
            item.join()
        assert results - {QueryCancelled} == {((count, count, count),)}
        assert_readable(engine, count)


def test_a_query_of_an_invalidated_file_fails_with_a_retriable_fault(tmp_path: Path) -> None:
    with open_engine(tmp_path / "data") as engine, engine._session.cursor() as cursor:
        flush_incomplete_row_group(engine)
        set_memory(cursor, "1MB")
        with pytest.raises(duckdb.IOException):
            cursor.execute("CHECKPOINT store")
        set_memory(cursor, "256MB")
        with pytest.raises(duckdb.IOException) as raised:
            cursor.execute("SELECT count(*) FROM store.events")
        assert isinstance(fault_of_error(raised.value), QueryCancelled)
