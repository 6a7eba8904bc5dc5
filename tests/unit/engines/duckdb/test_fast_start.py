"""A start and a status request read at most two row groups, however many events are stored."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage.session import DATABASE_FILE_NAME, ROW_GROUP_ROWS
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.unit.engines.duckdb.flushing import flush_pending

GROUP_COUNT = 6
EVENT_COUNT = GROUP_COUNT * ROW_GROUP_ROWS
DELETED_COUNT = 10
SECOND_US = 1_000_000


def open_engine(folder: Path) -> DuckDBEngine:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    return engine


def test_events_of_streams_that_are_not_opened_are_counted(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "data")
    engine.create_stream_tables([stream("t"), stream("u"), stream("empty")])
    engine.append([batch(Event("flushed", NOW_US), to="t")])
    flush_pending(engine, "t")
    events = [Event(f"pending{number}", NOW_US) for number in range(2)]
    engine.append([batch(*events, to=name) for name in ("s", "t", "u")])
    assert engine.count_events_of_unopened_streams() == {}
    engine.close()
    engine = open_engine(tmp_path / "data")
    assert engine.count_events_of_unopened_streams() == {"t": 3, "u": 2}
    assert engine.stream_stats()["s"].events == 2
    engine.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with whole row groups of events, one per second, of which the first were deleted.

    Because of the deletion, DuckDB's statistics do not give the time of the oldest remaining event.
    """
    folder = tmp_path_factory.mktemp("start") / "data"
    engine = open_engine(folder)
    for first in range(0, EVENT_COUNT, ROW_GROUP_ROWS):
        numbers = range(first, first + ROW_GROUP_ROWS)
        engine.append([batch(*(Event(f"e{number}", NOW_US + number * SECOND_US, f"m{number}") for number in numbers))])
        flush_pending(engine)
    with engine._session.cursor() as cursor:
        assert engine._storage.get_store("s").delete_before(NOW_US + DELETED_COUNT * SECOND_US, cursor) == DELETED_COUNT
    engine.close()
    return folder


def row_groups_read(folder: Path, statement: str) -> list[tuple[int, int]]:
    """Return, for each scan that reads a column, the number of row groups that it read and the total number."""
    profile = folder / "profile.json"
    with duckdb.connect() as connection:
        connection.execute(f"attach '{folder / DATABASE_FILE_NAME}' as store (read_only)")
        connection.execute(f"set enable_profiling = 'json'; set profiling_output = '{profile}'")
        connection.execute(statement).fetchall()
    scans = [scan for plan in json.loads(profile.read_text())["operator"] for scan in scans_of(plan)]
    return [(scan["row_groups_scanned"], scan["total_row_groups_to_scan"]) for scan in scans if columns_of(scan)]


def scans_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if plan["type"] == "TABLE_SCAN":
        yield plan
    for child in plan.get("children", ()):
        yield from scans_of(child)


def columns_of(scan: dict[str, Any]) -> object:
    return scan["extra_info"].get("Projections")


def test_newest_and_oldest_are_read_from_two_row_groups(folder: Path) -> None:
    assert row_groups_read(folder, StreamTableStatements("s").select_newest_and_oldest_time()) == [
        (1, GROUP_COUNT),
        (1, GROUP_COUNT),
    ]


def test_text_sizes_are_read_from_one_row_group(folder: Path) -> None:
    assert row_groups_read(folder, StreamTableStatements("s").select_average_event_bytes()) == [(1, GROUP_COUNT)]


def test_count_and_times_are_correct(folder: Path) -> None:
    engine = open_engine(folder)
    facts = engine.stream_stats()["s"]
    engine.close()
    assert facts.events == EVENT_COUNT - DELETED_COUNT
    assert facts.oldest_us == NOW_US + DELETED_COUNT * SECOND_US
    assert facts.newest_us == NOW_US + (EVENT_COUNT - 1) * SECOND_US
