"""Every engine there is, opened empty."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from tests.chdb_databases import fresh_database
from tests.contract.engine_asking import NOW_US, stream


def open_duckdb(folder: Path) -> DuckDBEngine:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s"), stream("other.stream-2")])
    return engine


def open_clickhouse() -> Engine:
    """Events of these tests are old by the server's own clock."""
    address = fresh_database()
    room = importlib.import_module("cordwood.engines.clickhouse.clickhouse_engine")
    engine: Engine = room.ClickHouse(address, room.Options(drops_by_itself=False))
    engine.prepare([stream("s"), stream("other.stream-2")])
    return engine


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened = open_duckdb(tmp_path / "data") if request.param == "duckdb" else open_clickhouse()
    yield opened
    opened.close()
