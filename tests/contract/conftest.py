"""Fixtures that open each engine without events."""

import importlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from cordwood.engines.hosted.engine_process import run_engine
from cordwood.engines.hosted.hosted_engine import EngineDialect, HostedEngine
from cordwood.engines.hosted.supervisor import LaunchOptions
from cordwood.observe.observation import RecordObservation, ignore_observation
from cordwood.processes.fork_server import ForkServer
from tests.chdb_databases import fresh_database
from tests.contract.engine_asking import NOW_US, stream


def open_duckdb(folder: Path) -> DuckDBEngine:
    engine = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s"), stream("other.stream-2")])
    return engine


def open_clickhouse() -> Engine:
    """Open an engine without TTL, because by the server's clock the events of these tests are past their retention."""
    address = fresh_database()
    module = importlib.import_module("cordwood.engines.clickhouse.clickhouse_engine")
    engine: Engine = module.ClickHouseEngine(address, module.ClickHouseOptions(has_ttl=False))
    engine.create_stream_tables([stream("s"), stream("other.stream-2")])
    return engine


def duckdb_process(link: socket.socket) -> None:
    """Run the embedded engine with the clock of these tests. The function is the entry point of a forked process."""
    run_engine(link, lambda folder, _: DuckDBEngine(Path(folder), DuckDBTarget(), clock_us=lambda: NOW_US))


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer("tests.contract.conftest:duckdb_process")
    yield server
    server.close()


def open_hosted(
    folder: Path,
    fork_server: ForkServer,
    record: RecordObservation = ignore_observation,
    memory_limit_bytes: int = 10**9,
) -> HostedEngine:
    """Open the embedded engine in a separate process.

    In the settings for low memory, the folder ends with a slash, so that a test can recognise them.
    """
    plan = LaunchOptions(str(folder), memory_limit_bytes, lambda _: None, low_memory_settings=f"{folder}/")
    engine = HostedEngine(
        fork_server,
        plan,
        EngineDialect(DuckDBTarget(), lambda stream_name: StreamTableStatements(stream_name).select_events()),
        record,
    )
    engine.create_stream_tables([stream("s"), stream("other.stream-2")])
    return engine


@pytest.fixture(params=["duckdb", "hosted", "clickhouse"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened: Engine
    if request.param == "duckdb":
        opened = open_duckdb(tmp_path / "data")
    elif request.param == "hosted":
        opened = open_hosted(tmp_path / "data", request.getfixturevalue("fork_server"))
    else:
        opened = open_clickhouse()
    yield opened
    opened.close()
