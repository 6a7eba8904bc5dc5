"""While events move from the write-ahead log through the memtable to the file, queries see each of them once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.storage.chunk import EventChunk
from cordwood.engines.duckdb.storage.flusher import FlushLimits
from cordwood.engines.duckdb.storage.session import Session
from cordwood.engines.duckdb.storage.storage import Storage, StorageLimits
from cordwood.engines.duckdb.storage.stream_store import FlushOutOfOrderError, StreamStore
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.unit.engines.duckdb.threads import in_another_thread


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path, memory_bytes=256 * 10**6, threads=2)
    yield session
    session.close()


@pytest.fixture
def storage(session: Session, tmp_path: Path) -> Iterator[Storage]:
    """Yield a storage that flushes only when a test flushes."""
    storage = Storage(session, tmp_path, StorageLimits(FlushLimits(0, 2**30)), lambda: NOW_US, lambda _: None)
    storage.start()
    storage.create_stream_tables([stream("s")])
    yield storage
    storage.close()


def make_events(first: int, count: int) -> list[Event]:
    return [Event(f"e{number}", NOW_US, metadata=f'{{"n":{number}}}') for number in range(first, first + count)]


def two_chunks(storage: Storage) -> tuple[StreamStore, EventChunk, EventChunk]:
    """Return two consecutive chunks of ten events each."""
    store = storage.get_store("s")
    storage.append([batch(*make_events(0, 10))])
    first = store.take_chunk(whole_groups_only=False)
    storage.append([batch(*make_events(10, 10))])
    second = store.take_chunk(whole_groups_only=False)
    assert first is not None
    assert second is not None
    return store, first, second


def visible_ids(storage: Storage) -> list[str]:
    with storage.open_query_view(["s"]) as view:
        return sorted(str(row[0]) for row in view.cursor.execute('SELECT id FROM "s"').fetchall())


def ids_up_to(count: int) -> list[str]:
    return sorted(f"e{number}" for number in range(count))


def test_events_are_visible_before_during_and_after_their_flush(storage: Storage, session: Session) -> None:
    store, cursor = storage.get_store("s"), session.cursor()
    storage.append([batch(*make_events(0, 700))])
    chunk = store.take_chunk(whole_groups_only=False)
    assert chunk is not None
    storage.append([batch(*make_events(700, 30))])
    assert visible_ids(storage) == ids_up_to(730)
    store.flush(chunk, cursor)
    assert visible_ids(storage) == ids_up_to(730)
    storage.append([batch(*make_events(730, 1))])
    assert visible_ids(storage) == ids_up_to(731)
    assert cursor.execute(f"SELECT count(*) FROM {store.table_statements.table}").fetchall() == [(700,)]


def test_the_memtable_is_dropped_once_its_events_are_flushed(storage: Storage, session: Session) -> None:
    store, cursor = storage.get_store("s"), session.cursor()
    storage.append([batch(*make_events(0, 600))])
    assert visible_ids(storage) == ids_up_to(600)
    assert memtable_parts(cursor) == 1
    flush_pending(store, cursor)
    assert memtable_parts(cursor) == 0
    assert visible_ids(storage) == ids_up_to(600)


def test_a_query_sees_the_events_of_its_start(storage: Storage, session: Session) -> None:
    store, cursor = storage.get_store("s"), session.cursor()
    storage.append([batch(*make_events(0, 600))])
    with storage.open_query_view(["s"]) as view:
        in_another_thread(lambda: storage.append([batch(*make_events(600, 5))]))
        flush_pending(store, cursor)
        assert view.cursor.execute('SELECT count(*) FROM "s"').fetchall() == [(600,)]
    assert visible_ids(storage) == ids_up_to(605)


def test_chunks_are_committed_in_the_order_of_their_events(storage: Storage, session: Session) -> None:
    store, first, second = two_chunks(storage)
    later = threading.Thread(target=store.flush, args=(second, session.cursor()))
    later.start()
    later.join(0.2)
    assert later.is_alive()
    store.flush(first, session.cursor())
    later.join()
    assert store.first_unflushed_event_number == 20


def test_a_chunk_after_a_failed_one_is_pending_again(storage: Storage, session: Session) -> None:
    store, first, second = two_chunks(storage)
    store.return_chunk_to_pending(first)
    with pytest.raises(FlushOutOfOrderError):
        store.flush(second, session.cursor())
    store.return_chunk_to_pending(second)
    flush_pending(store, session.cursor())
    assert visible_ids(storage) == ids_up_to(20)


def test_any_text_and_null_survive_a_large_flush(storage: Storage, session: Session) -> None:
    texts = ["plain", "", "ümläut €", "\N{GRINNING FACE}", "a\x00b", None]
    events = [
        Event(f"e{place}", NOW_US + place, texts[place % 6], timestamp_inferred=place % 3 == 0) for place in range(2000)
    ]
    storage.append([batch(*events)])
    flush_pending(storage.get_store("s"), session.cursor())
    stored_rows = session.cursor().execute(
        f"SELECT id, epoch_us(timestamp), event_message, timestamp_inferred, extras IS NULL"
        f" FROM {storage.get_store('s').table_statements.table} ORDER BY timestamp"
    )
    expected = [(event.id, event.timestamp_us, event.event_message, event.timestamp_inferred, True) for event in events]
    assert stored_rows.fetchall() == expected


def flush_pending(store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> None:
    while chunk := store.take_chunk(whole_groups_only=False):
        store.flush(chunk, cursor)


def memtable_parts(cursor: duckdb.DuckDBPyConnection) -> int:
    row = cursor.execute("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'parts'").fetchone()
    return int(row[0]) if row else -1


def test_an_unexpected_exception_does_not_end_the_flusher(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_flush, failures = StreamStore.flush, iter([RuntimeError("a bug"), RuntimeError("another")])
    reports: list[str] = []
    flushed = threading.Event()
    storage = Storage(session, tmp_path, StorageLimits(FlushLimits(1, 2**30)), lambda: NOW_US, reports.append)

    def fail_twice(store: StreamStore, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> None:
        # The engine of another test, which may still be open, flushes without failures.
        is_mine = store is storage.get_store("s")
        for failure in failures if is_mine else ():
            raise failure
        real_flush(store, chunk, cursor)
        if is_mine:
            flushed.set()

    monkeypatch.setattr(StreamStore, "flush", fail_twice)
    monkeypatch.setattr("cordwood.engines.duckdb.storage.flusher._IDLE_SECONDS_BEFORE_PARTIAL_FLUSH", 0.0)
    monkeypatch.setattr("cordwood.engines.duckdb.storage.flusher._MIN_PARTIAL_FLUSH_ROWS", 1)
    storage.start()
    storage.create_stream_tables([stream("s")])
    storage.append([batch(*make_events(0, 700))])

    assert flushed.wait(30)
    assert visible_ids(storage) == ids_up_to(700)
    assert any("a bug" in sentence for sentence in reports)
    storage.close()
