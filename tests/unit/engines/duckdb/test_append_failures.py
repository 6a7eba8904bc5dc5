"""If an append fails because of the engine, the fault is retriable, for every error of DuckDB."""

from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BacklogFull
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream


def test_a_failed_lookup_of_ids_is_a_retriable_fault(tmp_path: Path) -> None:
    """Detach the file after opening it with events, because ids are then looked up in the file."""
    engine = open_engine(tmp_path, [])
    engine.append([batch(Event("a", NOW_US))])
    store = engine._storage.get_store("s")
    store._flush_events_below(store.next_event_number, engine._session.cursor())
    engine.close()
    reports: list[str] = []
    reopened = open_engine(tmp_path, reports)
    reopened._session.cursor().execute("DETACH store")
    with pytest.raises(BacklogFull, match="cannot be stored at this moment"):
        reopened.append([batch(Event("b", NOW_US))])
    assert any("store" in report for report in reports)
    assert reopened.must_restart()
    reopened._session.close()


def open_engine(folder: Path, reports: list[str]) -> DuckDBEngine:
    engine = DuckDBEngine(folder, DuckDBTarget(), DuckDBOptions(report_message=reports.append), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    return engine
