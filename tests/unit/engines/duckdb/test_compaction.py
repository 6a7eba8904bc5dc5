"""Compaction sorts flushed row groups by project, without losing or duplicating events, even after a crash."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage import compaction, flusher, memory_reclaimer, session
from cordwood.engines.duckdb.storage.blocks import replace_block_filter
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.manifest import STORE_FORMAT_VERSION
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream

# DuckDB's minimum size of a row group, which is one vector of 2,048 rows.
ROW_GROUP_SIZE = 2048
TOTALS_QUERY = "select count(*), count(distinct id), sum(cast(t.metadata.n as int64)) from `s` as t"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Yield an engine with small row groups, without flushes and compaction in the background."""
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    for module in (session, compaction):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", ROW_GROUP_SIZE)
    monkeypatch.setattr(compaction, "ROW_GROUPS_PER_COMPACTED_RUN", 3)
    monkeypatch.setattr(compaction, "MIN_UNCOMPACTED_ROW_GROUPS", 2)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    yield engine
    engine.close()


def event(number: int) -> Event:
    project = None if number % 11 == 0 else f"p{number * 7919 % 10}"
    metadata = json.dumps({"n": number, "request": {"path": f"/{number}", "tags": ["a", number]}})
    return Event(f"e{number:06}", NOW_US + number, f"message {number}", project, metadata, '{"app":"x"}')


def append_and_flush(engine: DuckDBEngine, group_count: int, *, first: int = 0) -> None:
    """Append events, and flush them in chunks that are not whole row groups."""
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        for start in range(first, first + group_count * ROW_GROUP_SIZE, 1000):
            until = min(start + 1000, first + group_count * ROW_GROUP_SIZE)
            engine.append([batch(*map(event, range(start, until)))])
            while chunk := store.take_chunk(whole_groups_only=False):
                store.flush(chunk, cursor)


def compact_once(engine: DuckDBEngine) -> bool:
    return engine._storage._compactor.compact_oldest_run(engine._storage.get_store("s"))


def expected_totals(count: int) -> list[tuple[object, ...]]:
    return [(count, count, sum(range(count)))]


def compacted_row_groups(engine: DuckDBEngine) -> list[tuple[int, int, int]]:
    """Return the number of rows and of projects of each compacted row group, and whether its rows are sorted."""
    with engine._session.cursor() as cursor:
        sql = "SELECT rowid, coalesce(project, ''), epoch_us(\"timestamp\") FROM store.main.s WHERE settled ORDER BY rowid"
        lying = [row[1:] for row in cursor.execute(sql).fetchall()]
    parts = [lying[first : first + ROW_GROUP_SIZE] for first in range(0, len(lying), ROW_GROUP_SIZE)]
    return [(len(part), len({project for project, _ in part}), part == sorted(part)) for part in parts]


def test_a_run_is_sorted_by_project_in_whole_row_groups(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 5)
    assert compact_once(engine)
    assert [(count, is_sorted) for count, _, is_sorted in compacted_row_groups(engine)] == [(ROW_GROUP_SIZE, True)] * 3
    assert all(projects <= 5 for _, projects, _ in compacted_row_groups(engine))
    assert rows(engine, TOTALS_QUERY) == expected_totals(5 * ROW_GROUP_SIZE)


def test_the_newest_row_groups_are_not_compacted(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 4)
    assert not compact_once(engine)
    append_and_flush(engine, 1, first=4 * ROW_GROUP_SIZE)
    assert compact_once(engine)
    assert not compact_once(engine)
    assert len(compacted_row_groups(engine)) == 3


def test_a_compacted_stream_is_not_examined_before_its_next_flush(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_COMPACTION_DELAY_AFTER_FLUSH_SECONDS", -1.0)
    work, examined_count = engine._storage._compactor, 0

    def count_examination(store: StreamStore) -> bool:
        nonlocal examined_count
        examined_count += 1
        return Compactor.compact_oldest_run(work, store)

    monkeypatch.setattr(work, "compact_oldest_run", count_examination)
    for round_ in (1, 2):
        append_and_flush(engine, 5 if round_ == 1 else 3, first=0 if round_ == 1 else 5 * ROW_GROUP_SIZE)
        work.on_flush()
        for _ in range(5):
            work.compact_all()
        assert len(compacted_row_groups(engine)) == 3 * round_
        assert examined_count == 3 * round_


def test_ngrams_are_indexed_only_for_uncompacted_blocks(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_COMPACTION_DELAY_AFTER_FLUSH_SECONDS", -1.0)
    indexed_blocks = []

    def record_indexed_block(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, block: int) -> None:
        indexed_blocks.append(block)
        replace_block_filter(cursor, tables, block)

    monkeypatch.setattr(compaction, "replace_block_filter", record_indexed_block)
    append_and_flush(engine, 5)
    for _ in range(5):
        engine._storage._compactor.compact_all()
    assert len(compacted_row_groups(engine)) == 3
    with engine._session.cursor() as cursor:
        blocks = cursor.execute("SELECT DISTINCT block FROM store.main.s WHERE NOT settled ORDER BY 1 DESC").fetchall()
    assert indexed_blocks == [block for (block,) in blocks]


def test_compaction_skipped_while_busy_is_done_later(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_COMPACTION_DELAY_AFTER_FLUSH_SECONDS", -1.0)
    work = engine._storage._compactor
    append_and_flush(engine, 5)
    monkeypatch.setattr(work, "_are_flushes_behind", lambda: True)
    work.compact_all()
    assert compacted_row_groups(engine) == []
    # The flusher becomes idle only after all streams were skipped, so the next attempt compacts.
    busy = iter([True, True])
    monkeypatch.setattr(work, "_are_flushes_behind", lambda: next(busy, False))
    work.compact_all()
    assert compacted_row_groups(engine) == []
    work.compact_all()
    assert len(compacted_row_groups(engine)) == 3


@pytest.mark.parametrize(("calm_share", "is_compacted"), [(1.0, True), (0.0, False)])
def test_under_constant_load_compaction_runs_if_enough_of_the_time_is_calm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calm_share: float, is_compacted: object
) -> None:
    for module in (session, compaction, flusher):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", ROW_GROUP_SIZE)
    for name, value in {
        "ROW_GROUPS_PER_COMPACTED_RUN": 3,
        "MIN_UNCOMPACTED_ROW_GROUPS": 2,
        "_DUE_WORK_POLL_SECONDS": 0.05,
        "_MAX_FLUSHING_TIME_SHARE": calm_share,
    }.items():
        monkeypatch.setattr(compaction, name, value)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    count = 0
    # Without a pause of five seconds between appends, the engine never counts as quiet.
    while count < 12 * ROW_GROUP_SIZE or (
        is_compacted and not compacted_row_groups(engine) and count < 100 * ROW_GROUP_SIZE
    ):
        engine.append([batch(*map(event, range(count, count + ROW_GROUP_SIZE)))])
        count += ROW_GROUP_SIZE
        time.sleep(0.15)
    assert bool(compacted_row_groups(engine)) is is_compacted
    assert rows(engine, TOTALS_QUERY) == expected_totals(count)
    engine.close()


def test_compaction_waits_for_the_checkpoint_of_a_long_log(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_and_flush(engine, 5)
    with monkeypatch.context() as crowded:
        crowded.setattr(session, "_MAX_DATABASE_LOG_BYTES", 200_000)
        assert not compact_once(engine)
        assert compacted_row_groups(engine) == []
        # The next call of `compact_all` runs a checkpoint before it compacts.
        crowded.setattr(compaction, "_COMPACTION_DELAY_AFTER_FLUSH_SECONDS", -1.0)
        engine._storage._compactor.compact_all()
    assert len(compacted_row_groups(engine)) == 3


@pytest.mark.parametrize(("pause_seconds", "is_released"), [(0.0, True), (3600.0, False)])
def test_memory_is_released_between_row_groups_unless_queries_run(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch, pause_seconds: float, is_released: object
) -> None:
    monkeypatch.setattr(memory_reclaimer, "_MIN_ENGINE_IDLE_SECONDS", pause_seconds)
    release_blocks: list[str] = []
    monkeypatch.setattr(engine._session, "release_cached_blocks", lambda _: release_blocks.append("of the file"))
    monkeypatch.setattr(memory_reclaimer, "release_free_memory", lambda: release_blocks.append("of what was freed"))
    append_and_flush(engine, 5)
    assert compact_once(engine)
    assert release_blocks == [*(["of the file"] if is_released else []), "of what was freed"] * 3


def test_compaction_leaves_events_unchanged(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 5)
    sql = (
        "select id, timestamp, event_message, project, to_json_string(metadata) as m, cast(app as string) as app,"
        " ingested_at from `s` order by id limit 9000"
    )
    before = rows(engine, sql)
    assert compact_once(engine)
    assert rows(engine, sql) == before
    assert len(before) == 9000


def test_a_query_of_one_project_reads_few_row_groups(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 11)
    while compact_once(engine):
        pass
    with engine._session.cursor() as cursor:
        sql = "explain analyze SELECT count(event_message) FROM store.main.s WHERE settled AND project = 'p3'"
        ((_, plan),) = cursor.execute(sql).fetchall()
    scanned = plan.partition("Row Groups Scanned: ")[2].split()[0]
    assert int(scanned) <= 2 * 3


def test_queries_during_compaction_see_every_event_once(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 11)
    results: list[list[tuple[object, ...]]] = []
    done = threading.Event()

    def query_repeatedly() -> None:
        while not done.is_set():
            results.append([tuple(row) for row in rows(engine, TOTALS_QUERY)])

    querying = threading.Thread(target=query_repeatedly)
    querying.start()
    while compact_once(engine):
        pass
    done.set()
    querying.join()
    assert len(compacted_row_groups(engine)) == 9
    assert {tuple(result) for result in results} == {tuple(expected_totals(11 * ROW_GROUP_SIZE))}


def test_events_can_be_flushed_during_compaction(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 5)
    flushing = threading.Thread(target=append_and_flush, args=(engine, 2), kwargs={"first": 5 * ROW_GROUP_SIZE})
    flushing.start()
    assert compact_once(engine)
    flushing.join()
    assert rows(engine, TOTALS_QUERY) == expected_totals(7 * ROW_GROUP_SIZE)


def test_an_interrupted_compaction_changes_nothing(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    append_and_flush(engine, 5)
    answers = iter([False, False, True])
    monkeypatch.setattr(engine._storage._compactor, "_are_flushes_behind", lambda: next(answers))
    assert not compact_once(engine)
    assert compacted_row_groups(engine) == []
    assert rows(engine, TOTALS_QUERY) == expected_totals(5 * ROW_GROUP_SIZE)


def test_deleted_events_stay_deleted(engine: DuckDBEngine) -> None:
    append_and_flush(engine, 5)
    with engine._storage._compactor.deletion_lock, engine._session.cursor() as cursor:
        cursor.execute("DELETE FROM store.main.s WHERE project = 'p1'")
    remaining = [number for number in range(5 * ROW_GROUP_SIZE) if event(number).project != "p1"]
    append_and_flush(engine, 2, first=5 * ROW_GROUP_SIZE)
    remaining += range(5 * ROW_GROUP_SIZE, 7 * ROW_GROUP_SIZE)
    assert compact_once(engine)
    assert rows(engine, TOTALS_QUERY) == [(len(remaining), len(remaining), sum(remaining))]


DYING_PROGRAM = """
import os, sys
from pathlib import Path
import duckdb
from cordwood.engines.duckdb.storage import compaction
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage.manifest import STORE_FORMAT_VERSION
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from tests.contract.engine_asking import stream
Flusher.flush_next = compaction.Compactor.run_due_work = lambda _: 60.0
compaction.ROW_GROUP_ROWS, compaction.ROW_GROUPS_PER_COMPACTED_RUN, compaction.MIN_UNCOMPACTED_ROW_GROUPS = 2048, 3, 2
engine = DuckDBEngine(Path(sys.argv[1]), DuckDBTarget())
engine.create_stream_tables([stream("s")])
checkpoint = engine._session.checkpoint
if sys.argv[2] == "before":
    StreamTableStatements.delete_run_rows = lambda self: os.kill(os.getpid(), 9)
else:
    engine._session.checkpoint = lambda _: os.kill(os.getpid(), 9)
engine._storage._compactor.compact_oldest_run(engine._storage.get_store("s"))
"""


@pytest.mark.parametrize(("crash_point", "count_examination"), [("before", 0), ("after", 3)])
def test_a_crash_before_or_after_the_commit_leaves_every_event_once(
    tmp_path: Path, crash_point: str, count_examination: int, engine: DuckDBEngine
) -> None:
    append_and_flush(engine, 5)
    engine.close()
    folder = tmp_path / "data"
    outcome = subprocess.run(
        [sys.executable, "-c", DYING_PROGRAM, str(folder), crash_point], capture_output=True, check=False
    )
    assert outcome.returncode == -9, outcome.stderr
    reopened = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    reopened.create_stream_tables([stream("s")])
    assert rows(reopened, TOTALS_QUERY) == expected_totals(5 * ROW_GROUP_SIZE)
    assert len(compacted_row_groups(reopened)) == count_examination
    reopened.close()


def test_a_store_of_version_1_is_migrated(engine: DuckDBEngine, tmp_path: Path) -> None:
    append_and_flush(engine, 5)
    engine.close()
    file = tmp_path / "data" / "events.duckdb"
    with duckdb.connect(str(file)) as store:
        store.execute("ALTER TABLE s DROP COLUMN settled")
        store.execute("UPDATE cordwood.stamp SET version = 1")
    reopened = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    reopened.create_stream_tables([stream("s")])
    assert compact_once(reopened)
    assert rows(reopened, TOTALS_QUERY) == expected_totals(5 * ROW_GROUP_SIZE)
    with reopened._session.cursor() as cursor:
        assert cursor.execute("SELECT version FROM store.cordwood.stamp").fetchall() == [(STORE_FORMAT_VERSION,)]
    reopened.close()
