"""A flush sorts the events of each row group by project, and then by time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Yield an engine without background flushes."""
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    yield engine
    engine.close()


def event(number: int) -> Event:
    project = None if number % 7 == 0 else f"p{number * 7919 % 5}"
    return Event(f"e{number:06}", NOW_US + number * 31 % 1000, project=project, metadata=f'{{"n":{number}}}')


def stored_order(engine: DuckDBEngine) -> list[tuple[str, int]]:
    """Return the project and the time of each event, in the order of the file."""
    with engine._session.cursor() as cursor:
        sql = "SELECT coalesce(project, ''), epoch_us(\"timestamp\") FROM store.main.s ORDER BY rowid"
        return [(row[0], row[1]) for row in cursor.execute(sql).fetchall()]


def test_a_row_group_is_sorted_by_project_and_time(engine: DuckDBEngine) -> None:
    engine.append([batch(*map(event, range(1000)))])
    flush_pending(engine)
    assert stored_order(engine) == sorted(stored_order(engine))
    assert len(stored_order(engine)) == 1000


def test_row_groups_are_in_the_order_of_arrival(engine: DuckDBEngine) -> None:
    engine.append([batch(*map(event, range(2 * ROW_GROUP_ROWS)))])
    flush_pending(engine)
    order = stored_order(engine)
    halves = order[:ROW_GROUP_ROWS], order[ROW_GROUP_ROWS:]
    assert [half == sorted(half) for half in halves] == [True, True]
    assert order != sorted(order)


def test_sorting_keeps_the_values_of_each_event(engine: DuckDBEngine) -> None:
    engine.append([batch(*map(event, range(500)), received_us=NOW_US - 5)])
    engine.append([batch(*map(event, range(500, 900)), received_us=NOW_US)])
    flush_pending(engine)
    sql = "select id, project, unix_micros(ingested_at), cast(t.metadata.n as int64) from `s` as t order by id"
    # Each event's receive time is a microsecond after that of the previous event, even across batches.
    assert rows(engine, sql) == [
        (f"e{number:06}", event(number).project, NOW_US - 5 + number, number) for number in range(900)
    ]


@pytest.mark.parametrize(("memory_bytes", "rows_a_group"), [(96 * 10**6, 4_096), (256 * 10**6, ROW_GROUP_ROWS)])
def test_row_groups_are_smaller_with_little_memory(tmp_path: Path, memory_bytes: int, rows_a_group: int) -> None:
    options = DuckDBOptions(memory_bytes=memory_bytes)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), options, clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([batch(*map(event, range(2 * ROW_GROUP_ROWS)))])
    store = engine._storage.get_store("s")
    deadline = time.monotonic() + 30
    while store.first_unflushed_event_number < 2 * rows_a_group and time.monotonic() < deadline:
        time.sleep(0.01)
    with engine._session.cursor() as cursor:
        counts = cursor.execute("SELECT count(*) FROM store.main.s GROUP BY block ORDER BY block").fetchall()
    assert counts[:2] == [(rows_a_group,)] * 2
    engine.close()
