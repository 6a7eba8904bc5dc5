"""Under load, the flusher writes whole row groups and releases freed memory."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cordwood.engines.duckdb.storage import flusher
from cordwood.engines.duckdb.storage.flusher import FlushLimits
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.storage import Storage, StorageLimits
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.waiting import until

BATCH_SIZE = 1_024
# The approximate size in memory of a row group of these events.
GROUP_BYTES = ROW_GROUP_ROWS * 320


StartStorage = Callable[[FlushLimits], Storage]


@pytest.fixture
def start_storage(tmp_path: Path) -> Iterator[StartStorage]:
    """Yield a function that starts a storage with the given limits."""
    with ExitStack() as cleanup:

        def start(limits: FlushLimits) -> Storage:
            session = Session(tmp_path, memory_bytes=256 * 10**6, threads=2)
            cleanup.callback(session.close)
            storage = Storage(session, tmp_path, StorageLimits(limits), lambda: NOW_US, lambda _: None)
            cleanup.callback(storage.close)
            storage.create_stream_tables([stream("s")])
            storage.start()
            return storage

        yield start


def append_events(storage: Storage, count: int) -> None:
    for first in range(0, count, BATCH_SIZE):
        storage.append([batch(*(Event(f"e{number}", NOW_US) for number in range(first, first + BATCH_SIZE)))])


def flush_sizes(storage: Storage) -> list[int]:
    """Return the number of events of each flush."""
    with storage.open_query_view([]) as view:
        return [int(row[0]) for row in view.cursor.execute("SELECT last - first FROM store.cordwood.sealed").fetchall()]


def persistent_groups(storage: Storage) -> list[int]:
    """Return the number of events of each row group that is in the file, and not only in DuckDB's log."""
    with storage.open_query_view([]) as view:
        sql = (
            "SELECT sum(count) FROM pragma_storage_info('store.main.s') WHERE column_name = 'id'"
            " AND segment_type <> 'VALIDITY' AND persistent GROUP BY row_group_id ORDER BY row_group_id"
        )
        return [int(row[0]) for row in view.cursor.execute(sql).fetchall()]


def test_a_load_is_flushed_in_whole_row_groups(start_storage: StartStorage) -> None:
    storage = start_storage(FlushLimits(2, 2 * GROUP_BYTES))
    append_events(storage, 6 * ROW_GROUP_ROWS)
    until(lambda: len(flush_sizes(storage)) == 6)
    assert set(flush_sizes(storage)) == {ROW_GROUP_ROWS}


def test_parts_are_flushed_if_memory_does_not_suffice_for_a_row_group(start_storage: StartStorage) -> None:
    storage = start_storage(FlushLimits(2, GROUP_BYTES // 2))
    append_events(storage, 2 * ROW_GROUP_ROWS)
    assert max(flush_sizes(storage)) < ROW_GROUP_ROWS


def test_flushed_parts_are_checkpointed_once_they_fill_a_row_group(start_storage: StartStorage) -> None:
    part = ROW_GROUP_ROWS // 5
    storage = start_storage(FlushLimits(1, 8 * GROUP_BYTES, rows_per_flush=part))
    append_events(storage, 4 * ROW_GROUP_ROWS)
    until(lambda: sum(flush_sizes(storage)) == 4 * ROW_GROUP_ROWS)
    assert max(flush_sizes(storage)) == part
    until(lambda: persistent_groups(storage) == [ROW_GROUP_ROWS] * 4)


@pytest.mark.parametrize(("retention_seconds", "is_released"), [(3600.0, False), (0.0, True)])
def test_freed_memory_is_kept_for_the_set_time_under_load_and_released_after(
    start_storage: StartStorage, monkeypatch: pytest.MonkeyPatch, retention_seconds: float, is_released: object
) -> None:
    released = threading.Event()
    monkeypatch.setattr(flusher, "release_free_memory", released.set)
    # The pause is long, because a loaded machine may stop the test for a while.
    monkeypatch.setattr(flusher, "_MEMORY_RELEASE_IDLE_SECONDS", 3.0)
    storage = start_storage(FlushLimits(2, 4 * GROUP_BYTES, keep_freed_memory_seconds=retention_seconds))
    append_events(storage, 3 * ROW_GROUP_ROWS)
    assert released.is_set() is is_released
    assert released.wait(30)


def test_memory_is_released_after_a_burst_before_its_remainder_is_flushed(
    start_storage: StartStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending_at_release: list[int] = []
    storages: list[Storage] = []

    def note_pending_rows() -> None:
        pending_at_release.extend(storage.get_store("s").pending_rows for storage in storages)

    monkeypatch.setattr(flusher, "release_free_memory", note_pending_rows)
    monkeypatch.setattr(flusher, "_IDLE_SECONDS_BEFORE_PARTIAL_FLUSH", 20.0)
    storage = start_storage(FlushLimits(2, 4 * GROUP_BYTES, keep_freed_memory_seconds=3600.0))
    storages.append(storage)
    append_events(storage, ROW_GROUP_ROWS + 10 * BATCH_SIZE)
    until(lambda: bool(pending_at_release))
    assert pending_at_release[0] == 10 * BATCH_SIZE
