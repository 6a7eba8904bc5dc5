"""During ingest and queries, retention removes events by age, size and number, and their space is reused."""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.storage.session import _DATABASE_BLOCK_BYTES, ROW_GROUP_ROWS
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.waiting import until, until_flushed

IS_FULL = os.environ.get("TORTURE") == "full"
PROJECT_QUERY = (
    "select project, count(*) from `s` as t cross join unnest(t.metadata) as m where m.status >= 500 group by project"
)
DAY_US = 86_400 * 10**6
DAY_COUNT, STEPS_PER_DAY = (10, 4) if IS_FULL else (5, 4)


class ManualClock:
    def __init__(self) -> None:
        self.now_us = NOW_US

    def __call__(self) -> int:
        return self.now_us


def make_events(first: int, count: int, from_us: int, until_us: int) -> list[Event]:
    """Return events that are evenly spread over a time, with texts that compress badly."""
    dice = random.Random(first)
    step = (until_us - from_us) / count
    return [
        Event(
            f"e{first + place}",
            round(from_us + place * step),
            project=f"p{place % 7}",
            metadata=f'{{"path":"/rest/{dice.randrange(10**9)}","status":{dice.choice([200, 404, 500])}}}',
        )
        for place in range(count)
    ]


class QueryThread(threading.Thread):
    """Thread that repeats a query, and records each duration under the current value of `busy`."""

    def __init__(self, engine: DuckDBEngine) -> None:
        super().__init__()
        self._engine = engine
        self.is_over = False
        self.busy = "sealing"
        self.seconds: dict[str, list[float]] = {"sealing": [], "retention": []}
        self.faults: list[Exception] = []

    def run(self) -> None:
        while not self.is_over:
            busy, began = self.busy, time.perf_counter()
            try:
                rows(self._engine, PROJECT_QUERY)
            except Exception as problem:  # noqa: BLE001 - the test reports any error
                self.faults.append(problem)
            self.seconds[busy].append(time.perf_counter() - began)


@pytest.fixture
def query_threads() -> Iterator[list[QueryThread]]:
    started: list[QueryThread] = []
    yield started
    for thread in started:
        thread.is_over = True
        thread.join()


@pytest.mark.torture
def test_a_stream_with_a_retention_of_two_days_takes_the_space_of_two_days(
    tmp_path: Path, query_threads: list[QueryThread]
) -> None:
    clock, file = ManualClock(), tmp_path / "data" / "events.duckdb"
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=clock)
    engine.create_stream_tables([stream("s", retention_seconds=2 * 86_400.0)])
    query_threads.append(QueryThread(engine))
    query_threads[0].start()
    sizes, step_us = [], DAY_US // STEPS_PER_DAY
    for number in range(DAY_COUNT * STEPS_PER_DAY):
        before_us, clock.now_us = clock.now_us, clock.now_us + step_us
        engine.append(
            [
                batch(
                    *make_events(number * ROW_GROUP_ROWS, ROW_GROUP_ROWS, before_us, clock.now_us),
                    received_us=clock.now_us,
                )
            ]
        )
        until_flushed(tmp_path / "data")
        query_threads[0].busy = "retention"
        engine.delete_expired_events(clock.now_us)
        query_threads[0].busy = "sealing"
        sizes.append(file.stat().st_size)
    query_threads[0].is_over = True
    query_threads[0].join()
    retained_events = 2 * STEPS_PER_DAY * ROW_GROUP_ROWS
    assert rows(engine, "select count(*) from `s`") == [(retained_events,)]
    engine.close()
    two_days = sizes[2 * STEPS_PER_DAY - 1]
    assert max(sizes) <= 1.5 * two_days, [round(size / two_days, 2) for size in sizes]
    assert not query_threads[0].faults
    while_flushing, while_sweeping = (query_threads[0].seconds[name] for name in ("sealing", "retention"))
    assert len(while_sweeping) > 5
    assert median(while_sweeping) < 2 * median(while_flushing)


def test_the_oldest_events_of_all_streams_go_when_the_store_is_too_large(tmp_path: Path) -> None:
    clock = ManualClock()
    limit = 2_600_000
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), DuckDBOptions(max_store_bytes=limit), clock_us=clock)
    engine.create_stream_tables([stream("s"), stream("t")])
    for number in range(12):
        before_us, clock.now_us = clock.now_us, clock.now_us + DAY_US
        new_events = make_events(number * ROW_GROUP_ROWS, ROW_GROUP_ROWS, before_us, clock.now_us)
        engine.append([batch(*new_events, to="st"[number % 2], received_us=clock.now_us)])
        until_flushed(tmp_path / "data")
        engine.delete_expired_events(clock.now_us)
    # The share to delete is estimated from the number of events. The size of the file is a whole number of blocks,
    # about forty here, so it may exceed the limit by one block.
    used = engine._session.used_disk_bytes(engine._session.cursor())
    assert used <= limit + _DATABASE_BLOCK_BYTES
    oldest = [facts.oldest_us or 0 for name, facts in sorted(engine.stream_stats().items())]
    newest = [facts.newest_us or 0 for name, facts in sorted(engine.stream_stats().items())]
    assert newest[1] > clock.now_us - DAY_US
    assert newest[0] > clock.now_us - 2 * DAY_US
    assert min(oldest) > NOW_US + DAY_US
    engine.close()


def test_an_event_at_the_start_of_1970_does_not_stop_retention_after_a_restart(tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    old_events = make_events(0, ROW_GROUP_ROWS - 2, NOW_US - 3 * DAY_US, NOW_US - 2 * DAY_US)
    engine.append([batch(Event("epoch", 0), *old_events, Event("young", NOW_US))])
    until_flushed(tmp_path / "data")
    engine.close()
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s", retention_seconds=86_400.0)])
    assert engine.delete_expired_events(NOW_US) == ROW_GROUP_ROWS - 1
    assert rows(engine, "select id from `s`") == [("young",)]
    engine.close()


def test_with_an_open_reader_sweeps_rewrite_the_remaining_events_only_once(tmp_path: Path) -> None:
    """Sweep while a reader holds the old events.

    Otherwise each sweep would rewrite the remaining events again and leave one more copy of them.
    """
    limit = 1_500_000
    engine = DuckDBEngine(
        tmp_path / "data", DuckDBTarget(), DuckDBOptions(max_store_bytes=limit), clock_us=ManualClock()
    )
    engine.create_stream_tables([stream("s")])
    engine.append([batch(*make_events(0, 6 * ROW_GROUP_ROWS, NOW_US, NOW_US + DAY_US))])
    until_flushed(tmp_path / "data")
    reader, view = engine._session.cursor(), engine._session.cursor()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM store.main.s").fetchall()
    used = [engine._session.used_disk_bytes(view)]
    for _ in range(6):
        engine.delete_expired_events(NOW_US)
        used.append(engine._session.used_disk_bytes(view))
    size_of_copy = used[1] - used[0]
    assert size_of_copy > 1_000_000
    assert used[-1] - used[1] < size_of_copy
    reader.execute("COMMIT")
    for _ in range(2):
        engine.delete_expired_events(NOW_US)
    assert engine._session.used_disk_bytes(view) <= limit
    assert rows(engine, "select count(*) - count(distinct id) from `s`") == [(0,)]
    engine.close()


def test_the_size_of_a_stream_is_its_share_of_the_file(tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=ManualClock())
    engine.create_stream_tables([stream("s"), stream("t")])
    for number in range(3):
        engine.append([batch(*make_events(number * ROW_GROUP_ROWS, ROW_GROUP_ROWS, NOW_US - DAY_US, NOW_US), to="s")])
        until_flushed(tmp_path / "data")
    cursor = engine._session.cursor()
    engine._session.checkpoint(cursor)
    used = engine._session.used_disk_bytes(cursor)
    sizes = engine.stored_bytes_by_stream()
    engine.close()
    assert 0.8 * used < sizes["s"] <= used
    assert sizes["t"] == 0


def test_sizes_of_streams_are_estimated_by_their_bytes(tmp_path: Path) -> None:
    """Estimate the sizes both with new events, and after a restart without new events."""
    long_text, count = "x" * 10_000, ROW_GROUP_ROWS
    for is_new in (True, False):
        engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=ManualClock())
        engine.create_stream_tables([stream("s"), stream("t"), stream("none")])
        if is_new:
            engine.append([batch(*(Event(f"{n}", NOW_US, long_text[: n * 7919 % 2000]) for n in range(count)), to="s")])
            engine.append([batch(*(Event(f"{n}", NOW_US, "x") for n in range(count)), to="t")])
            until_flushed(tmp_path / "data")
            waiting = engine.stored_bytes_by_stream()["none"]
            engine.append([batch(Event("waits", NOW_US, long_text), to="none")])
            assert waiting == 0 < len(long_text) <= engine.stored_bytes_by_stream()["none"]
        sizes = engine.stored_bytes_by_stream()
        with engine._session.cursor() as cursor:
            used = engine._session.used_disk_bytes(cursor)
        engine.close()
        assert used * 0.99 < sizes["s"] + sizes["t"] <= used
        assert 3 < sizes["s"] / sizes["t"] < 5


def test_a_maximum_number_of_events_keeps_the_newest(tmp_path: Path) -> None:
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=ManualClock())
    limit, sent = 30_000, 50_000
    engine.create_stream_tables([stream("s", max_events=limit)])
    for first in range(0, sent, 5000):
        engine.append([batch(*make_events(first, 5000, NOW_US + first * 1000, NOW_US + (first + 5000) * 1000))])
    until(lambda: engine._storage.get_store("s").first_unflushed_event_number >= 2 * ROW_GROUP_ROWS, 60)
    engine.delete_expired_events(NOW_US + DAY_US)
    stored_range = rows(engine, "select count(*), min(id), max(id) from `s`")
    engine.close()
    assert stored_range == [(limit, f"e{sent - limit}", f"e{sent - 1}")]


def test_a_sweep_ends_while_old_events_keep_arriving(tmp_path: Path) -> None:
    clock, is_over = ManualClock(), threading.Event()
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=clock)
    engine.create_stream_tables([stream("s", retention_seconds=86_400.0)])

    def send() -> None:
        number = 0
        while not is_over.is_set():
            engine.append([batch(*make_events(number * 500, 500, NOW_US - 3 * DAY_US, NOW_US - 2 * DAY_US))])
            number += 1

    sending = threading.Thread(target=send)
    sending.start()
    time.sleep(0.2)
    retention = threading.Thread(target=engine.delete_expired_events, args=(NOW_US,), daemon=True)
    retention.start()
    retention.join(60)
    ended = not retention.is_alive()
    is_over.set()
    sending.join()
    engine.close()
    assert ended
