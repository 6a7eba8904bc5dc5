"""Every engine there is, opened empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from tests.contract.engine_asking import NOW_US, stream


def open_duckdb(folder: Path) -> DuckDBEngine:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s"), stream("other.stream-2")])
    return engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_duckdb(tmp_path / "data")
    yield opened
    opened.close()
