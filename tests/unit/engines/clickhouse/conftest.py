"""One chDB for all tests of a process: the engine inside the process can be opened in one folder only."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("chdb", reason="chdb is not installed: pip install chdb clickhouse-connect")

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options

_numbers = count(1)


@pytest.fixture(scope="session")
def chdb_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"chdb://{tmp_path_factory.mktemp('chdb')}"


@pytest.fixture
def address(chdb_address: str) -> str:
    """The address of a database that no other test has used."""
    from clickhouse_connect import get_client  # noqa: PLC0415 - the guard above

    name = f"test_{next(_numbers)}"
    client = get_client(dsn=chdb_address)
    client.command(f"CREATE DATABASE {name}")
    client.close()
    return f"{chdb_address}?database={name}"


@pytest.fixture
def engine(address: str, tmp_path: Path) -> Iterator[ClickHouse]:
    engine = ClickHouse(address, Options(pending_folder=tmp_path / "pending"))
    yield engine
    engine.close()
