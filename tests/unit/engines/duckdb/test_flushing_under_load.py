"""Under load the flusher writes whole row groups and releases freed memory."""

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

BATCH = 1_024
# Approximate size of a row group of these events in memory.
GROUP_BYTES = ROW_GROUP_ROWS * 320


Started = Callable[[FlushLimits], Storage]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Yield a function that starts a storage with the given limits."""
    with ExitStack() as cleanup:

        def start(limits: FlushLimits) -> Storage:
            session = Session(tmp_path, memory_bytes=256 * 10**6, threads=2)
            cleanup.callback(session.close)
            storage = Storage(session, tmp_path, StorageLimits(limits), lambda: NOW_US, lambda _: None)
            cleanup.callback(storage.close)
            storage.prepare([stream("s")])
            storage.start()
            return storage

        yield start


def load(storage: Storage, count: int) -> None:
    for first in range(0, count, BATCH):
        storage.append([batch(*(Event(f"e{number}", NOW_US) for number in range(first, first + BATCH)))])


def flush_sizes(storage: Storage) -> list[int]:
    """Return the number of events of each flush."""
    with storage.query_view([]) as shown:
        return [
            int(row[0]) for row in shown.cursor.execute("SELECT last - first FROM store.cordwood.sealed").fetchall()
        ]


def persistent_groups(storage: Storage) -> list[int]:
    """Return the events of each row group that is in the file and not only in DuckDB's log."""
    with storage.query_view([]) as shown:
        asked = (
            "SELECT sum(count) FROM pragma_storage_info('store.main.s') WHERE column_name = 'id'"
            " AND segment_type <> 'VALIDITY' AND persistent GROUP BY row_group_id ORDER BY row_group_id"
        )
        return [int(row[0]) for row in shown.cursor.execute(asked).fetchall()]


def test_a_load_is_flushed_in_whole_row_groups(started: Started) -> None:
    storage = started(FlushLimits(2, 2 * GROUP_BYTES))
    load(storage, 6 * ROW_GROUP_ROWS)
    until(lambda: len(flush_sizes(storage)) == 6)
    assert set(flush_sizes(storage)) == {ROW_GROUP_ROWS}


def test_parts_are_flushed_if_memory_does_not_suffice_for_a_row_group(started: Started) -> None:
    storage = started(FlushLimits(2, GROUP_BYTES // 2))
    load(storage, 2 * ROW_GROUP_ROWS)
    assert max(flush_sizes(storage)) < ROW_GROUP_ROWS


def test_flushed_parts_are_checkpointed_once_they_fill_a_row_group(started: Started) -> None:
    part = ROW_GROUP_ROWS // 5
    storage = started(FlushLimits(1, 8 * GROUP_BYTES, rows_per_flush=part))
    load(storage, 4 * ROW_GROUP_ROWS)
    until(lambda: sum(flush_sizes(storage)) == 4 * ROW_GROUP_ROWS)
    assert max(flush_sizes(storage)) == part
    until(lambda: persistent_groups(storage) == [ROW_GROUP_ROWS] * 4)


@pytest.mark.parametrize(("kept_seconds", "is_given_back"), [(3600.0, False), (0.0, True)])
def test_freed_memory_is_kept_for_the_set_time_under_load_and_released_after(
    started: Started, monkeypatch: pytest.MonkeyPatch, kept_seconds: float, is_given_back: object
) -> None:
    given_back = threading.Event()
    monkeypatch.setattr(flusher, "release_free_memory", given_back.set)
    # A loaded machine may pause the test for longer.
    monkeypatch.setattr(flusher, "_PAUSE_SECONDS", 3.0)
    storage = started(FlushLimits(2, 4 * GROUP_BYTES, keep_memory_seconds=kept_seconds))
    load(storage, 3 * ROW_GROUP_ROWS)
    assert given_back.is_set() is is_given_back
    assert given_back.wait(30)


def test_memory_is_released_after_a_burst_before_its_remainder_is_flushed(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_then: list[int] = []
    storages: list[Storage] = []

    def note_pending_rows() -> None:
        left_then.extend(storage.get_store("s").pending_rows for storage in storages)

    monkeypatch.setattr(flusher, "release_free_memory", note_pending_rows)
    monkeypatch.setattr(flusher, "_QUIET_SECONDS", 20.0)
    storage = started(FlushLimits(2, 4 * GROUP_BYTES, keep_memory_seconds=3600.0))
    storages.append(storage)
    load(storage, ROW_GROUP_ROWS + 10 * BATCH)
    until(lambda: bool(left_then))
    assert left_then[0] == 10 * BATCH
