"""A load is sealed by whole row groups, and has its freed memory again, for as long as it goes on."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.storage import flusher
from cordwood.engines.duckdb.storage.flusher import FlushLimits
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.storage import Storage
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.waiting import until

BATCH = 1_024
# What a row group of these events is held as, about.
GROUP_BYTES = ROW_GROUP_ROWS * 320


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    session = Session(tmp_path, memory_bytes=256 * 10**6, threads=2)
    storage = Storage(session, tmp_path, lambda: NOW_US, lambda _: None)
    storage.prepare([stream("s")])
    yield storage
    storage.close()
    session.close()


def load(storage: Storage, count: int) -> None:
    for first in range(0, count, BATCH):
        storage.append([batch(*(Event(f"e{number}", NOW_US) for number in range(first, first + BATCH)))])


def sealed(storage: Storage) -> list[int]:
    """How many events were sealed at a time."""
    with storage.query_view([]) as shown:
        return [
            int(row[0]) for row in shown.cursor.execute("SELECT last - first FROM store.cordwood.sealed").fetchall()
        ]


def in_the_file(storage: Storage) -> list[int]:
    """The events of each row group that is written and compressed, not only logged."""
    with storage.query_view([]) as shown:
        asked = (
            "SELECT sum(count) FROM pragma_storage_info('store.main.s') WHERE column_name = 'id'"
            " AND segment_type <> 'VALIDITY' AND persistent GROUP BY row_group_id ORDER BY row_group_id"
        )
        return [int(row[0]) for row in shown.cursor.execute(asked).fetchall()]


def test_while_a_row_group_is_under_way_the_next_one_is_waited_for(storage: Storage) -> None:
    storage.start(FlushLimits(2, 2 * GROUP_BYTES))
    load(storage, 6 * ROW_GROUP_ROWS)
    until(lambda: len(sealed(storage)) == 6)
    assert set(sealed(storage)) == {ROW_GROUP_ROWS}


def test_what_can_never_be_a_row_group_is_sealed_before_that(storage: Storage) -> None:
    storage.start(FlushLimits(2, GROUP_BYTES // 2))
    load(storage, 2 * ROW_GROUP_ROWS)
    assert max(sealed(storage)) < ROW_GROUP_ROWS


def test_parts_of_a_row_group_are_written_when_they_are_a_whole_one(storage: Storage) -> None:
    part = ROW_GROUP_ROWS // 5
    storage.start(FlushLimits(1, 8 * GROUP_BYTES, rows_per_flush=part))
    load(storage, 4 * ROW_GROUP_ROWS)
    until(lambda: sum(sealed(storage)) == 4 * ROW_GROUP_ROWS)
    assert max(sealed(storage)) == part
    until(lambda: in_the_file(storage) == [ROW_GROUP_ROWS] * 4)


@pytest.mark.parametrize(("kept_seconds", "is_given_back"), [(3600.0, False), (0.0, True)])
def test_memory_is_kept_for_so_long_while_events_come_and_given_back_after(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, kept_seconds: float, is_given_back: object
) -> None:
    given_back = threading.Event()
    monkeypatch.setattr(flusher, "release_free_memory", given_back.set)
    # A machine that others use may pause for longer by itself.
    monkeypatch.setattr(flusher, "_PAUSE_SECONDS", 3.0)
    storage.start(FlushLimits(2, 4 * GROUP_BYTES, keep_memory_seconds=kept_seconds))
    load(storage, 3 * ROW_GROUP_ROWS)
    assert given_back.is_set() is is_given_back
    assert given_back.wait(30)


def test_a_burst_has_given_it_back_before_what_is_left_of_it_is_sealed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_then: list[int] = []
    store = storage.get_store("s")
    monkeypatch.setattr(flusher, "release_free_memory", lambda: left_then.append(store.pending_rows))
    monkeypatch.setattr(flusher, "_QUIET_SECONDS", 20.0)
    storage.start(FlushLimits(2, 4 * GROUP_BYTES, keep_memory_seconds=3600.0))
    load(storage, ROW_GROUP_ROWS + 10 * BATCH)
    until(lambda: bool(left_then))
    assert left_then[0] == 10 * BATCH
