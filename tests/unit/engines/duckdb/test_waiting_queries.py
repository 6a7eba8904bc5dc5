"""A query stops at its time limit or when it is cancelled, even while it waits, and between two of its statements."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query.query_runner import QueryRunner
from cordwood.engines.duckdb.storage.chunk import EventChunk
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, CancelToken
from cordwood.errors import QueryCancelled, QueryOutOfTime, ServiceBusy
from cordwood.model.event import Event
from tests.contract.engine_asking import LIMITS, NOW_US, batch, ids, rows, stream

SHORT_LIMITS = AnswerLimits(10, 0.2)
SQL = "select id from `s`"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    opened = DuckDBEngine(tmp_path, DuckDBTarget(), clock_us=lambda: NOW_US)
    opened.create_stream_tables([stream("s")])
    opened.append([batch(Event("a", NOW_US))])
    yield opened
    opened.close()


@contextmanager
def run_in_thread(hold: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """Run a function in a thread during the block.

    The block begins when the function sets its first event. The second event is set at the end of the block.
    """
    has_begun, is_over = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(has_begun, is_over), daemon=True)
    thread.start()
    assert has_begun.wait(20)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def hold_fill_lock(engine: DuckDBEngine) -> Iterator[None]:
    def hold(has_begun: threading.Event, is_over: threading.Event) -> None:
        with engine._storage.get_store("s").memtable_fill_lock:
            has_begun.set()
            is_over.wait()

    with run_in_thread(hold):
        yield


@contextmanager
def hold_gate_exclusively(engine: DuckDBEngine) -> Iterator[None]:
    def hold(has_begun: threading.Event, is_over: threading.Event) -> None:
        with engine._session.access_lock.exclusive_access(until_block_ends=True):
            has_begun.set()
            is_over.wait()

    with run_in_thread(hold):
        yield


EACH_WAIT = pytest.mark.parametrize("wait", [hold_fill_lock, hold_gate_exclusively])


@EACH_WAIT
def test_a_waiting_query_stops_at_its_time_limit(
    engine: DuckDBEngine, wait: Callable[[DuckDBEngine], AbstractContextManager[None]]
) -> None:
    with wait(engine), pytest.raises(ServiceBusy, match=r"had to wait longer than its 0\.2 s"):
        rows(engine, SQL, SHORT_LIMITS)
    assert ids(engine) == ["a"]


@EACH_WAIT
def test_a_waiting_query_stops_when_it_is_cancelled(
    engine: DuckDBEngine, wait: Callable[[DuckDBEngine], AbstractContextManager[None]]
) -> None:
    cancel = CancelToken()
    threading.Timer(0.2, cancel.cancel).start()
    with wait(engine), pytest.raises(QueryCancelled):
        rows(engine, SQL, LIMITS, cancel)
    assert ids(engine) == ["a"]


def test_a_query_that_stops_while_it_fills_the_memtable_keeps_the_filled_part(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.append([batch(*(Event(f"e{number}", NOW_US) for number in range(10_000)))])
    filled: list[int] = []
    fill = StreamStore._fill_memtable_with

    def fill_slowly(store: StreamStore, chunk: EventChunk, cursor: duckdb.DuckDBPyConnection) -> None:
        fill(store, chunk, cursor)
        filled.append(len(chunk.events))
        is_over.wait(0 if is_over.is_set() else 0.3)

    is_over = threading.Event()
    monkeypatch.setattr(StreamStore, "_fill_memtable_with", fill_slowly)
    with pytest.raises(ServiceBusy):
        rows(engine, SQL, SHORT_LIMITS)
    filled_first = sum(filled)
    is_over.set()
    assert 0 < filled_first < 10_001
    assert rows(engine, "select count(*) from `s`") == [(10_001,)]
    assert sum(filled) == 10_001


NUMBERS = "unnest(generate_array(1, 100000))"
ENDLESS_QUERY = f"select count(*) as n from {NUMBERS} a, {NUMBERS} b, {NUMBERS} c where mod(a * b + c, 7) = 3"


def sleep_between_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make queries sleep between two of their statements, where an interrupt of DuckDB has no effect."""
    column_types = QueryRunner._column_types

    def read_types_and_sleep(*arguments: Any) -> object:
        types = column_types(*arguments)
        time.sleep(0.5)
        return types

    monkeypatch.setattr(QueryRunner, "_column_types", read_types_and_sleep)


def test_a_query_stops_if_its_time_limit_passes_between_two_statements(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep_between_statements(monkeypatch)
    began = time.monotonic()
    with pytest.raises(QueryOutOfTime):
        rows(engine, ENDLESS_QUERY, SHORT_LIMITS)
    # Without this check, the time limit of the test itself could end the query.
    assert time.monotonic() < began + 60


def test_a_query_stops_if_it_is_cancelled_between_two_statements(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep_between_statements(monkeypatch)
    cancel = CancelToken()
    threading.Timer(0.2, cancel.cancel).start()
    began = time.monotonic()
    with pytest.raises(QueryCancelled):
        rows(engine, ENDLESS_QUERY, AnswerLimits(10, 600.0), cancel)
    assert time.monotonic() < began + 60
