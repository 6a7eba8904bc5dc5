"""What the engine keeps of the file is given back once nobody asks, and its bound is what it was."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, Options
from cordwood.engines.duckdb.query.answers import _extract_select
from cordwood.engines.duckdb.storage import memory_reclaimer, session
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.file_gate import FileAccess
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import Fault, QueryRefused
from cordwood.model.event import Event
from cordwood.sql.plan import BlockFilter, Plan, Segment, Variant
from cordwood.sql.stages import Question, Statement
from tests.contract.engine_asking import LIMITS, NOBODY, NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.sealing import seal

MEMORY = 100 * 10**6
KEPT = 200_000
EVENTS = 20_000


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """An engine whose events are all in its file, without background compaction, and idle at once."""
    monkeypatch.setattr(session, "_MAX_IDLE_CACHE_BYTES", KEPT)
    monkeypatch.setattr(memory_reclaimer, "_QUIET_SECONDS", 1e-6)
    monkeypatch.setattr(Compactor, "start", lambda *_: None)
    options = Options(memory_bytes=MEMORY)
    first = DuckDBEngine(tmp_path / "data", DuckDBTarget(), options, clock_us=lambda: NOW_US)
    first.prepare([stream("s")])
    first.append([batch(*(Event(f"{number * 7919**3:x}" * 8, NOW_US, "m") for number in range(EVENTS)))])
    seal(first)
    first.close()
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), options, clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    yield engine
    engine.close()


def kept(engine: DuckDBEngine) -> int:
    with engine._session.cursor() as cursor:
        ((found,),) = cursor.execute(
            "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'BASE_TABLE'"
        ).fetchall()
    return int(found)


def rest(engine: DuckDBEngine) -> None:
    """Reclaim several times: a look that counts memory used for a moment evicts that much less."""
    reclaimer = engine._storage._compactor.memory_reclaimer
    with engine._session.cursor() as cursor:
        for _ in range(5):
            reclaimer.mark_active()
            reclaimer.reclaim_when_quiet(cursor)


def bound(engine: DuckDBEngine) -> object:
    with engine._session.cursor() as cursor:
        return cursor.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]


def test_what_is_kept_of_the_file_goes_when_nobody_asks(engine: DuckDBEngine) -> None:
    before = bound(engine)
    assert rows(engine, "select count(distinct id) from `s`") == [(EVENTS,)]
    assert kept(engine) > KEPT
    rest(engine)
    assert kept(engine) <= KEPT
    assert bound(engine) == before
    assert rows(engine, "select count(distinct id) from `s`") == [(EVENTS,)]


def test_and_while_events_are_stored(engine: DuckDBEngine) -> None:
    rows(engine, "select count(distinct id) from `s`")
    with engine._session.gate.shared(FileAccess.FLUSH):
        rest(engine)
    assert kept(engine) <= KEPT


def test_what_is_under_way_stays_in_memory_and_goes_on(engine: DuckDBEngine) -> None:
    before = bound(engine)
    rows(engine, "select count(distinct id) from `s`")
    with engine._session.cursor() as writing, engine._session.gate.shared(FileAccess.FLUSH):
        writing.execute("BEGIN; CREATE TEMP TABLE half AS SELECT random() AS number FROM range(2000000)")
        assert kept(engine) > KEPT
        rest(engine)
        assert kept(engine) <= KEPT
        assert writing.execute("SELECT count(*) FROM duckdb_temporary_files()").fetchall() == [(0,)]
        writing.execute("INSERT INTO half SELECT random() FROM range(1000000)")
        assert writing.execute("SELECT count(*) FROM half").fetchall() == [(3_000_000,)]
        writing.execute("ROLLBACK")
    assert bound(engine) == before


def test_not_while_somebody_asks(engine: DuckDBEngine) -> None:
    rows(engine, "select count(distinct id) from `s`")
    before = kept(engine)
    with engine._session.gate.shared(FileAccess.QUERY):
        rest(engine)
        assert kept(engine) == before
    rest(engine)
    assert kept(engine) < before


@pytest.mark.parametrize("statement", ["SET GLOBAL threads = 1", "SET GLOBAL enable_external_access = true"])
def test_nothing_else_can_be_set(engine: DuckDBEngine, statement: str) -> None:
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
def test_an_answer_runs_one_select_whatever_was_compiled(
    engine: DuckDBEngine, sql: str, filters: tuple[Segment, ...]
) -> None:
    before = bound(engine)
    statement = Statement(Plan((Variant((sql, *filters)),)), (), (), ("s",), column_names=("a",))
    with pytest.raises(Fault):
        engine.answer(Question(statement), LIMITS, NOBODY)
    assert bound(engine) == before


@pytest.mark.parametrize("sql", ["SELECT 1; SET memory_limit = '1TB'", "SET threads = 1"])
def test_nothing_but_one_select_is_a_statement(engine: DuckDBEngine, sql: str) -> None:
    with engine._session.cursor() as cursor, pytest.raises(QueryRefused):
        _extract_select(cursor, sql)
