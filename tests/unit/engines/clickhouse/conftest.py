"""ClickHouse's engine on chDB, each test with a database of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chdb_databases import IS_THERE, REASON, fresh_database

if not IS_THERE:
    pytest.skip(REASON, allow_module_level=True)

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options


@pytest.fixture
def address() -> str:
    return fresh_database()


@pytest.fixture
def engine(address: str, tmp_path: Path) -> Iterator[ClickHouse]:
    engine = ClickHouse(address, Options(pending_folder=tmp_path / "pending"))
    yield engine
    engine.close()
