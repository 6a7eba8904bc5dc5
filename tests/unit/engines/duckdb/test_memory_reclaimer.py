"""While no query runs, cached blocks of the file are evicted.

For this, DuckDB's memory limit is lowered for a moment and then restored.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.query.query_runner import _parse_select
from cordwood.engines.duckdb.storage import memory_reclaimer, session
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.locks import SharedAccessKind
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import Fault, QueryRefused
from cordwood.model.event import Event
from cordwood.sql.plan import BlockFilter, Plan, PlanVariant, SqlSegment
from cordwood.sql.stages import BoundStatement, Statement
from tests.contract.engine_asking import LIMITS, NEVER_CANCELLED, NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending

MEMORY_BYTES = 100 * 10**6
MAX_CACHED_BYTES = 200_000
EVENT_COUNT = 20_000


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Yield an engine without background compaction, whose events are all in its file. It counts as idle at once."""
    monkeypatch.setattr(session, "_MAX_IDLE_BLOCK_CACHE_BYTES", MAX_CACHED_BYTES)
    monkeypatch.setattr(memory_reclaimer, "_MIN_ENGINE_IDLE_SECONDS", 1e-6)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    options = DuckDBOptions(memory_bytes=MEMORY_BYTES)
    first = DuckDBEngine(tmp_path / "data", DuckDBTarget(), options, clock_us=lambda: NOW_US)
    first.create_stream_tables([stream("s")])
    first.append([batch(*(Event(f"{number * 7919**3:x}" * 8, NOW_US, "m") for number in range(EVENT_COUNT)))])
    flush_pending(first)
    first.close()
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), options, clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    yield engine
    engine.close()


def cached_bytes(engine: DuckDBEngine) -> int:
    with engine._session.cursor() as cursor:
        ((cached,),) = cursor.execute(
            "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'BASE_TABLE'"
        ).fetchall()
    return int(cached)


def reclaim_repeatedly(engine: DuckDBEngine) -> None:
    """Reclaim memory several times, because one run evicts less if other memory is in use at this moment."""
    reclaimer = engine._storage._compactor.memory_reclaimer
    with engine._session.cursor() as cursor:
        for _ in range(5):
            reclaimer.record_activity()
            reclaimer.reclaim_when_quiet(cursor)


def memory_limit(engine: DuckDBEngine) -> object:
    with engine._session.cursor() as cursor:
        return cursor.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]


def test_the_block_cache_is_evicted_while_idle(engine: DuckDBEngine) -> None:
    before = memory_limit(engine)
    assert rows(engine, "select count(distinct id) from `s`") == [(EVENT_COUNT,)]
    assert cached_bytes(engine) > MAX_CACHED_BYTES
    reclaim_repeatedly(engine)
    assert cached_bytes(engine) <= MAX_CACHED_BYTES
    assert memory_limit(engine) == before
    assert rows(engine, "select count(distinct id) from `s`") == [(EVENT_COUNT,)]


def test_the_block_cache_is_evicted_during_a_flush(engine: DuckDBEngine) -> None:
    rows(engine, "select count(distinct id) from `s`")
    with engine._session.access_lock.shared_access(SharedAccessKind.FLUSH):
        reclaim_repeatedly(engine)
    assert cached_bytes(engine) <= MAX_CACHED_BYTES


def test_a_running_write_is_not_spilled_by_an_eviction(engine: DuckDBEngine) -> None:
    before = memory_limit(engine)
    rows(engine, "select count(distinct id) from `s`")
    with engine._session.cursor() as writing, engine._session.access_lock.shared_access(SharedAccessKind.FLUSH):
        writing.execute("BEGIN; CREATE TEMP TABLE half AS SELECT random() AS number FROM range(2000000)")
        assert cached_bytes(engine) > MAX_CACHED_BYTES
        reclaim_repeatedly(engine)
        assert cached_bytes(engine) <= MAX_CACHED_BYTES
        assert writing.execute("SELECT count(*) FROM duckdb_temporary_files()").fetchall() == [(0,)]
        writing.execute("INSERT INTO half SELECT random() FROM range(1000000)")
        assert writing.execute("SELECT count(*) FROM half").fetchall() == [(3_000_000,)]
        writing.execute("ROLLBACK")
    assert memory_limit(engine) == before


def test_the_block_cache_is_not_evicted_during_a_query(engine: DuckDBEngine) -> None:
    rows(engine, "select count(distinct id) from `s`")
    before = cached_bytes(engine)
    with engine._session.access_lock.shared_access(SharedAccessKind.QUERY):
        reclaim_repeatedly(engine)
        assert cached_bytes(engine) == before
    reclaim_repeatedly(engine)
    assert cached_bytes(engine) < before


@pytest.mark.parametrize("statement", ["SET GLOBAL threads = 1", "SET GLOBAL enable_external_access = true"])
def test_other_settings_are_locked(engine: DuckDBEngine, statement: str) -> None:
    with engine._session.cursor() as cursor, pytest.raises(duckdb.InvalidInputException, match="Cannot change"):
        cursor.execute(statement)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1) LIMIT 0; SET GLOBAL memory_limit = '1TB'; FROM (SELECT 1",
        "SELECT 1) AS answer(c0) LIMIT 1; SET GLOBAL memory_limit = '1TB'; FROM (SELECT 1",
    ],
)
@pytest.mark.parametrize("filters", [(), (BlockFilter("s", ("abcdef",)),)])
def test_a_statement_with_more_than_one_select_is_refused(
    engine: DuckDBEngine, sql: str, filters: tuple[SqlSegment, ...]
) -> None:
    before = memory_limit(engine)
    statement = Statement(Plan((PlanVariant((sql, *filters)),)), (), (), ("s",), column_names=("a",))
    with pytest.raises(Fault):
        engine.answer(BoundStatement(statement), LIMITS, NEVER_CANCELLED)
    assert memory_limit(engine) == before


@pytest.mark.parametrize("sql", ["SELECT 1; SET memory_limit = '1TB'", "SET threads = 1"])
def test_only_a_single_select_is_accepted(engine: DuckDBEngine, sql: str) -> None:
    with engine._session.cursor() as cursor, pytest.raises(QueryRefused):
        _parse_select(cursor, sql)
