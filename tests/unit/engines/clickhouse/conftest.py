"""ClickHouse's engine on chDB, each test with a database of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chdb_databases import IS_THERE, REASON, fresh_database

if not IS_THERE:
    pytest.skip(REASON, allow_module_level=True)

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options
from tests.clickhouse_server import ClickHouseServer, serving
from tests.second_wall import switch_off


@pytest.fixture
def written_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """For statements that no compiler makes, over tables that are no streams."""
    switch_off(monkeypatch)


@pytest.fixture
def address() -> str:
    return fresh_database()


@pytest.fixture
def engine(address: str, tmp_path: Path) -> Iterator[ClickHouse]:
    engine = ClickHouse(address, Options(pending_folder=tmp_path / "pending"))
    yield engine
    engine.close()


@pytest.fixture
def server(address: str) -> Iterator[ClickHouseServer]:
    """ClickHouse's own interface on loopback, in front of the test's database."""
    with serving(address) as server:
        yield server
