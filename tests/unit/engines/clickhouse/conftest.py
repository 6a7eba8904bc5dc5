"""Fixtures for the ClickHouse engine on chDB, with a new database for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chdb_databases import IS_INSTALLED, SKIP_REASON, fresh_database

if not IS_INSTALLED:
    pytest.skip(SKIP_REASON, allow_module_level=True)

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from tests.clickhouse_server import ClickHouseServer, serve_clickhouse
from tests.isolation_check import disable_isolation_check


@pytest.fixture
def without_isolation_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the isolation check, because these tests run handwritten statements over tables that are not streams."""
    disable_isolation_check(monkeypatch)


@pytest.fixture
def address() -> str:
    return fresh_database()


@pytest.fixture
def engine(address: str, tmp_path: Path) -> Iterator[ClickHouseEngine]:
    engine = ClickHouseEngine(address, ClickHouseOptions(pending_folder=tmp_path / "pending"))
    yield engine
    engine.close()


@pytest.fixture
def server(address: str) -> Iterator[ClickHouseServer]:
    """Yield a server on loopback with ClickHouse's HTTP interface to the test's database."""
    with serve_clickhouse(address) as server:
        yield server
