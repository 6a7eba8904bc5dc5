"""The engine reopens its file if DuckDB's metadata of row groups takes much memory.

No query or append fails because of it.
"""

import json
import platform
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage import memory_reclaimer, session
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.locks import ExclusiveWaitLimits, SharedAccessKind
from cordwood.engines.duckdb.storage.memory_reclaimer import used_heap_bytes
from cordwood.engines.duckdb.storage.session import Session
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import EngineFailed
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.file_identity import file_identity
from tests.unit.engines.duckdb.threads import in_another_thread

# DuckDB's minimum size of a row group, which is one vector of 2,048 rows.
ROW_GROUP_SIZE = 2048
COUNTS_QUERY = "select count(*), count(distinct id), count(t.metadata.a0) from `s` as t"
WIDE_METADATA = json.dumps({f"a{number}": number for number in range(60)})
MEGABYTE = 10**6
LIBRARY, VERSION = platform.libc_ver()
REPORTS_HEAP = LIBRARY == "glibc" and tuple(map(int, VERSION.split("."))) >= (2, 33)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Yield an engine with small row groups and without background work.

    Reopening its file hardly waits for queries and flushes.
    """
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    monkeypatch.setattr(session, "ROW_GROUP_ROWS", ROW_GROUP_SIZE)
    monkeypatch.setattr(memory_reclaimer, "URGENT_EXCLUSIVE_WAIT", ExclusiveWaitLimits(0.0, 0.1, 0.1))
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    yield engine
    engine.close()


def flush_groups(engine: DuckDBEngine, groups: int, *, first: int = 0) -> int:
    """Append and flush whole row groups. Return the total number of events."""
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        for start in range(first, first + groups * ROW_GROUP_SIZE, ROW_GROUP_SIZE):
            events = [
                Event(f"e{number}", NOW_US + number, "m", "p", WIDE_METADATA)
                for number in range(start, start + ROW_GROUP_SIZE)
            ]
            engine.append([batch(*events)])
            chunk = store.take_chunk(whole_groups_only=True, rows=ROW_GROUP_SIZE)
            assert chunk is not None
            store.flush(chunk, cursor)
        engine._session.checkpoint(cursor)
    return first + groups * ROW_GROUP_SIZE


def try_reopen(engine: DuckDBEngine) -> bool:
    """Try to reopen the file, and return whether it was reopened."""
    before = file_identity(engine)
    with engine._session.cursor() as cursor:
        engine._storage._compactor.memory_reclaimer._reopen_database(cursor)
    return file_identity(engine) != before


@pytest.mark.skipif(not REPORTS_HEAP, reason="only glibc 2.33 and later tell what is in use")
def test_reopening_the_file_frees_metadata_of_row_groups(engine: DuckDBEngine) -> None:
    flush_groups(engine, 40)
    before = used_heap_bytes()
    assert try_reopen(engine)
    after = used_heap_bytes()
    assert before is not None
    assert after is not None
    assert after < before - 2 * MEGABYTE


def test_events_are_readable_and_appendable_after_reopening(engine: DuckDBEngine) -> None:
    count = flush_groups(engine, 3)
    for _ in range(2):
        assert try_reopen(engine)
        assert rows(engine, COUNTS_QUERY) == [(count, count, count)]
        count = flush_groups(engine, 1, first=count)
        assert rows(engine, COUNTS_QUERY) == [(count, count, count)]


def test_the_file_is_not_reopened_if_the_heap_size_is_unknown(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reclaimer, before = engine._storage._compactor.memory_reclaimer, file_identity(engine)
    monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda: None)
    for session_bytes in (100 * MEGABYTE, 0):
        monkeypatch.setattr(reclaimer, "_get_pending_event_bytes", lambda bytes_in_use=session_bytes: bytes_in_use)
        reclaim_times(engine)
    assert file_identity(engine) == before


def reclaim_times(engine: DuckDBEngine, times: int = 6) -> None:
    with engine._session.cursor() as cursor:
        for _ in range(times):
            engine._storage._compactor.memory_reclaimer.reclaim(cursor)


def test_the_file_is_reopened_once_the_heap_has_grown_by_a_share_of_the_memory_limit(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, share = file_identity(engine), engine._session.memory_bytes // 12
    for in_use in (50 * MEGABYTE, 50 * MEGABYTE + share):
        monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda bytes_in_use=in_use: bytes_in_use)
        reclaim_times(engine)
        assert file_identity(engine) == before
    monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda: 51 * MEGABYTE + share)
    reclaim_times(engine)
    repeat_until_done = file_identity(engine)
    assert repeat_until_done != before
    # The memory that is in use after reopening becomes the new baseline.
    reclaim_times(engine, 12)
    assert file_identity(engine) == repeat_until_done


def memory_limit_mb(engine: DuckDBEngine) -> float:
    """Return DuckDB's current memory limit in megabytes."""
    with engine._session.cursor() as cursor:
        ((setting,),) = cursor.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = str(setting).split()
    assert unit == "MiB"
    return float(number) * 2**20 / MEGABYTE


def test_growth_of_the_heap_lowers_the_memory_limit(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = engine._session.memory_bytes / MEGABYTE
    for in_use, expected_megabytes in (
        (50, limit),
        (53, limit),
        (71, limit - 20),
        (350, limit * 2 / 3),
        (62, limit - 12),
        (40, limit),
    ):
        monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda bytes_in_use=in_use: bytes_in_use * MEGABYTE)
        reclaim_times(engine, 12)
        assert memory_limit_mb(engine) == pytest.approx(expected_megabytes, abs=0.2)


def test_releasing_blocks_keeps_the_lowered_memory_limit(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for in_use in (50, 70):
        monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda bytes_in_use=in_use: bytes_in_use * MEGABYTE)
        reclaim_times(engine, 6)
    with engine._session.cursor() as cursor:
        engine._session.release_cached_blocks(cursor)
    assert memory_limit_mb(engine) == pytest.approx(engine._session.memory_bytes / MEGABYTE - 20, abs=0.2)


def test_a_short_peak_of_the_heap_does_not_reopen_the_file(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, share = file_identity(engine), engine._session.memory_bytes // 12
    uses = cycle([50 * MEGABYTE, 60 * MEGABYTE + share, 70 * MEGABYTE + share])
    monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda: next(uses))
    reclaim_times(engine, 30)
    assert file_identity(engine) == before


def test_pending_events_are_not_counted_as_metadata(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, reported_bytes = file_identity(engine), 0
    monkeypatch.setattr(memory_reclaimer, "used_heap_bytes", lambda: 50 * MEGABYTE + reported_bytes)
    monkeypatch.setattr(engine._storage._compactor.memory_reclaimer, "_get_pending_event_bytes", lambda: reported_bytes)
    reclaim_times(engine)
    reported_bytes = engine._session.memory_bytes
    reclaim_times(engine)
    assert file_identity(engine) == before


def test_reopening_waits_for_running_queries_and_is_retried_later(engine: DuckDBEngine) -> None:
    count = flush_groups(engine, 2)
    with engine._session.access_lock.shared_access(SharedAccessKind.QUERY):
        assert not in_another_thread(lambda: try_reopen(engine))
    reclaimer, before = engine._storage._compactor.memory_reclaimer, file_identity(engine)
    reclaimer._baseline_heap_bytes = -(10**12)
    reclaim_times(engine, 5)
    assert file_identity(engine) == before
    reclaim_times(engine, 1)
    assert file_identity(engine) != before
    assert rows(engine, COUNTS_QUERY) == [(count, count, count)]


def test_queries_and_appends_during_reopening_wait_and_succeed(engine: DuckDBEngine) -> None:
    count = flush_groups(engine, 10)
    # The id of this event is already stored, so that each append looks it up in the file.
    known = Event("e1", NOW_US, "m", "p", WIDE_METADATA, received_us=NOW_US)
    done, outcomes = threading.Event(), []

    def repeat_until_done(task: Callable[[], bool]) -> None:
        while not done.is_set():
            outcomes.append(task())

    tasks: list[Callable[[], bool]] = [
        lambda: rows(engine, COUNTS_QUERY) == [(count, count, count)],
        lambda: [appended.accepted for appended in engine.append([batch(known)])] == [0],
        lambda: engine.regex_error("a+") is None,
    ]
    task_threads = [threading.Thread(target=repeat_until_done, args=(work,)) for work in tasks]
    for other in task_threads:
        other.start()
    reopened = sum(try_reopen(engine) for _ in range(30))
    done.set()
    for other in task_threads:
        other.join()
    assert reopened > 10
    assert outcomes
    assert all(outcomes)


def test_reopening_waits_for_a_transaction_outside_the_file_gate(engine: DuckDBEngine) -> None:
    count = flush_groups(engine, 2)
    with engine._session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM store.main.s").fetchall()
        ending = threading.Timer(0.3, lambda: cursor.execute("COMMIT"))
        ending.start()
        assert try_reopen(engine)
        ending.join()
    assert rows(engine, COUNTS_QUERY) == [(count, count, count)]


def test_the_file_is_not_reopened_during_a_backup(engine: DuckDBEngine) -> None:
    flush_groups(engine, 1)
    with engine.open_backup_snapshot():
        assert not try_reopen(engine)
    assert try_reopen(engine)


def test_a_missing_or_replaced_file_is_not_reopened(engine: DuckDBEngine, tmp_path: Path) -> None:
    count = flush_groups(engine, 2)
    file = tmp_path / "data" / "events.duckdb"
    file.rename(tmp_path / "elsewhere")
    assert not try_reopen(engine)
    file.touch()
    assert not try_reopen(engine)
    assert rows(engine, COUNTS_QUERY) == [(count, count, count)]
    (tmp_path / "elsewhere").rename(file)


def test_a_failed_reopening_is_reported_and_retried(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    count = flush_groups(engine, 2)
    monkeypatch.setattr(session, "_ATTACH_ATTEMPTS", 2)
    with engine._session.cursor() as cursor, monkeypatch.context() as broken:
        broken.setattr(Session, "_attach_sql", "ATTACH '/nowhere/at/all' AS store")
        with pytest.raises(duckdb.Error):
            engine._storage._compactor.memory_reclaimer._reopen_database(cursor)
        with pytest.raises(EngineFailed, match="could not be opened again"):
            rows(engine, COUNTS_QUERY)
        # The fault of an append is retriable, so that the sender repeats the events.
        with pytest.raises(EngineFailed, match="could not be opened again"):
            engine.append([batch(Event("e1", NOW_US, "m", "p", WIDE_METADATA, received_us=NOW_US))])
    with engine._session._root_connection.cursor() as cursor:
        engine._storage._compactor.memory_reclaimer.reclaim(cursor)
    assert rows(engine, COUNTS_QUERY) == [(count, count, count)]


def test_other_files_cannot_be_read(engine: DuckDBEngine, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    with engine._session.cursor() as cursor:
        for place in (other, "/etc/hostname"):
            with pytest.raises(duckdb.PermissionException):
                cursor.execute(f"SELECT * FROM read_text('{place}')").fetchall()
        with pytest.raises(duckdb.PermissionException):
            cursor.execute(f"ATTACH '{tmp_path / 'other.duckdb'}'")


@pytest.mark.parametrize("name", ['it\'s "here"', "a b%41é", "../up"])
def test_a_file_at_any_path_can_be_reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "from").mkdir()
    monkeypatch.chdir(tmp_path / "from")
    engine = DuckDBEngine(Path(name), DuckDBTarget(), clock_us=lambda: NOW_US)
    assert try_reopen(engine)
    engine.close()
