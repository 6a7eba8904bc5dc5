"""A slice of sealed events is laid by project, in whole row groups: nothing is lost or doubled, whoever looks or dies."""

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
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.manifest import VERSION
from cordwood.engines.duckdb.storage.ngram_index import replace_ngrams
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream

# DuckDB's least: a row group is one vector.
ROWS = 2048
ALL = "select count(*), count(distinct id), sum(cast(t.metadata.n as int64)) from `s` as t"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Nothing is sealed or settled behind its back; row groups are small."""
    monkeypatch.setattr(Flusher, "start", lambda *_: None)
    monkeypatch.setattr(Compactor, "start", lambda *_: None)
    for module in (session, compaction):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", ROWS)
    monkeypatch.setattr(compaction, "RUN_GROUPS", 3)
    monkeypatch.setattr(compaction, "UNCOMPACTED_GROUPS", 2)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    yield engine
    engine.close()


def event(number: int) -> Event:
    project = None if number % 11 == 0 else f"p{number * 7919 % 10}"
    metadata = json.dumps({"n": number, "request": {"path": f"/{number}", "tags": ["a", number]}})
    return Event(f"e{number:06}", NOW_US + number, f"message {number}", project, metadata, '{"app":"x"}')


def filled(engine: DuckDBEngine, groups: int, *, first: int = 0) -> None:
    """Sealed in pieces, some of them short."""
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        for start in range(first, first + groups * ROWS, 1000):
            until = min(start + 1000, first + groups * ROWS)
            engine.append([batch(*map(event, range(start, until)))])
            while chunk := store.take_chunk(whole_groups_only=False):
                store.flush(chunk, cursor)


def settle(engine: DuckDBEngine) -> bool:
    return engine._storage._compactor.compact(engine._storage.get_store("s"))


def totals(count: int) -> list[tuple[object, ...]]:
    return [(count, count, sum(range(count)))]


def groups(engine: DuckDBEngine) -> list[tuple[int, int, int]]:
    """Of each row group that is settled: its events, projects, and whether it is in order."""
    with engine._session.cursor() as cursor:
        asked = "SELECT rowid, coalesce(project, ''), epoch_us(\"timestamp\") FROM store.main.s WHERE settled ORDER BY rowid"
        lying = [row[1:] for row in cursor.execute(asked).fetchall()]
    parts = [lying[first : first + ROWS] for first in range(0, len(lying), ROWS)]
    return [(len(part), len({project for project, _ in part}), part == sorted(part)) for part in parts]


def test_a_slice_is_laid_by_project_in_whole_row_groups(engine: DuckDBEngine) -> None:
    filled(engine, 5)
    assert settle(engine)
    assert [(count, is_sorted) for count, _, is_sorted in groups(engine)] == [(ROWS, True)] * 3
    assert all(projects <= 5 for _, projects, _ in groups(engine))
    assert rows(engine, ALL) == totals(5 * ROWS)


def test_the_newest_stay_as_they_came(engine: DuckDBEngine) -> None:
    filled(engine, 4)
    assert not settle(engine)
    filled(engine, 1, first=4 * ROWS)
    assert settle(engine)
    assert not settle(engine)
    assert len(groups(engine)) == 3


def test_once_all_is_settled_nobody_looks_before_the_next_seal(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", -1.0)
    work, looked = engine._storage._compactor, 0

    def settled(store: StreamStore) -> bool:
        nonlocal looked
        looked += 1
        return Compactor.compact(work, store)

    monkeypatch.setattr(work, "compact", settled)
    for round_ in (1, 2):
        filled(engine, 5 if round_ == 1 else 3, first=0 if round_ == 1 else 5 * ROWS)
        work.on_flush()
        for _ in range(5):
            work.compact_all()
        assert len(groups(engine)) == 3 * round_
        assert looked == 3 * round_


def test_pieces_are_found_only_for_what_stays_as_it_came(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", -1.0)
    found = []

    def added(cursor: duckdb.DuckDBPyConnection, tables: StreamTables, block: int) -> None:
        found.append(block)
        replace_ngrams(cursor, tables, block)

    monkeypatch.setattr(compaction, "replace_ngrams", added)
    filled(engine, 5)
    for _ in range(5):
        engine._storage._compactor.compact_all()
    assert len(groups(engine)) == 3
    with engine._session.cursor() as cursor:
        blocks = cursor.execute("SELECT DISTINCT block FROM store.main.s WHERE NOT settled ORDER BY 1 DESC").fetchall()
    assert found == [block for (block,) in blocks]


def test_what_was_put_off_is_done_later(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", -1.0)
    work = engine._storage._compactor
    filled(engine, 5)
    monkeypatch.setattr(work, "_is_busy", lambda: True)
    work.compact_all()
    assert groups(engine) == []
    # Sealing has caught up just when everything was passed over.
    busy = iter([True, True])
    monkeypatch.setattr(work, "_is_busy", lambda: next(busy, False))
    work.compact_all()
    assert groups(engine) == []
    work.compact_all()
    assert len(groups(engine)) == 3


@pytest.mark.parametrize(("calm_share", "is_settled"), [(1.0, True), (0.0, False)])
def test_events_that_come_without_a_pause_are_settled_between_where_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calm_share: float, is_settled: object
) -> None:
    for module in (session, compaction, flusher):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", ROWS)
    for name, value in {
        "RUN_GROUPS": 3,
        "UNCOMPACTED_GROUPS": 2,
        "_POLL_SECONDS": 0.05,
        "_CALM_SHARE": calm_share,
    }.items():
        monkeypatch.setattr(compaction, name, value)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    count = 0
    # No pause of the five seconds that it takes to be quiet.
    while count < 12 * ROWS or (is_settled and not groups(engine) and count < 100 * ROWS):
        engine.append([batch(*map(event, range(count, count + ROWS)))])
        count += ROWS
        time.sleep(0.15)
    assert bool(groups(engine)) is is_settled
    assert rows(engine, ALL) == totals(count)
    engine.close()


def test_nothing_is_settled_while_much_waits_in_the_log(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(engine, 5)
    with monkeypatch.context() as crowded:
        crowded.setattr(session, "_LOG_BYTES", 200_000)
        assert not settle(engine)
        assert groups(engine) == []
        # Whoever looks again writes the log first.
        crowded.setattr(compaction, "_QUIET_SECONDS", -1.0)
        engine._storage._compactor.compact_all()
    assert len(groups(engine)) == 3


@pytest.mark.parametrize(("rest_seconds", "is_let_go"), [(0.0, True), (3600.0, False)])
def test_between_row_groups_memory_is_given_back_unless_somebody_asks(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch, rest_seconds: float, is_let_go: object
) -> None:
    monkeypatch.setattr(memory_reclaimer, "_QUIET_SECONDS", rest_seconds)
    release_blocks: list[str] = []
    monkeypatch.setattr(engine._session, "release_blocks", lambda _: release_blocks.append("of the file"))
    monkeypatch.setattr(memory_reclaimer, "release_free_memory", lambda: release_blocks.append("of what was freed"))
    filled(engine, 5)
    assert settle(engine)
    assert release_blocks == [*(["of the file"] if is_let_go else []), "of what was freed"] * 3


def test_events_are_what_they_were(engine: DuckDBEngine) -> None:
    filled(engine, 5)
    sql = (
        "select id, timestamp, event_message, project, to_json_string(metadata) as m, cast(app as string) as app,"
        " ingested_at from `s` order by id limit 9000"
    )
    before = rows(engine, sql)
    assert settle(engine)
    assert rows(engine, sql) == before
    assert len(before) == 9000


def test_a_question_about_one_project_reads_few_row_groups(engine: DuckDBEngine) -> None:
    filled(engine, 11)
    while settle(engine):
        pass
    with engine._session.cursor() as cursor:
        asked = "explain analyze SELECT count(event_message) FROM store.main.s WHERE settled AND project = 'p3'"
        ((_, plan),) = cursor.execute(asked).fetchall()
    scanned = plan.partition("Row Groups Scanned: ")[2].split()[0]
    assert int(scanned) <= 2 * 3


def test_queries_meanwhile_see_every_event_once(engine: DuckDBEngine) -> None:
    filled(engine, 11)
    seen: list[list[tuple[object, ...]]] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append([tuple(row) for row in rows(engine, ALL)])

    looking = threading.Thread(target=look)
    looking.start()
    while settle(engine):
        pass
    done.set()
    looking.join()
    assert len(groups(engine)) == 9
    assert {tuple(one) for one in seen} == {tuple(totals(11 * ROWS))}


def test_events_may_be_sealed_meanwhile(engine: DuckDBEngine) -> None:
    filled(engine, 5)
    sealing = threading.Thread(target=filled, args=(engine, 2), kwargs={"first": 5 * ROWS})
    sealing.start()
    assert settle(engine)
    sealing.join()
    assert rows(engine, ALL) == totals(7 * ROWS)


def test_a_slice_that_is_broken_off_stays_as_it_was(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(engine, 5)
    answers = iter([False, False, True])
    monkeypatch.setattr(engine._storage._compactor, "_is_busy", lambda: next(answers))
    assert not settle(engine)
    assert groups(engine) == []
    assert rows(engine, ALL) == totals(5 * ROWS)


def test_what_is_dropped_meanwhile_stays_dropped(engine: DuckDBEngine) -> None:
    filled(engine, 5)
    with engine._storage._compactor.deletion_lock, engine._session.cursor() as cursor:
        cursor.execute("DELETE FROM store.main.s WHERE project = 'p1'")
    kept = [number for number in range(5 * ROWS) if event(number).project != "p1"]
    filled(engine, 2, first=5 * ROWS)
    kept += range(5 * ROWS, 7 * ROWS)
    assert settle(engine)
    assert rows(engine, ALL) == [(len(kept), len(kept), sum(kept))]


DYING = """
import os, sys
from pathlib import Path
import duckdb
from cordwood.engines.duckdb.storage import compaction
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage.manifest import VERSION
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.target import DuckDBTarget
from tests.contract.engine_asking import stream
Flusher.start = compaction.Compactor.start = lambda *_: None
compaction.ROW_GROUP_ROWS, compaction.RUN_GROUPS, compaction.UNCOMPACTED_GROUPS = 2048, 3, 2
engine = DuckDBEngine(Path(sys.argv[1]), DuckDBTarget())
engine.prepare([stream("s")])
checkpoint = engine._session.checkpoint
if sys.argv[2] == "before":
    StreamTables.drop_run = lambda self: os.kill(os.getpid(), 9)
else:
    engine._session.checkpoint = lambda _: os.kill(os.getpid(), 9)
engine._storage._compactor.compact(engine._storage.get_store("s"))
"""


@pytest.mark.parametrize(("moment", "settled"), [("before", 0), ("after", 3)])
def test_a_crash_before_or_after_the_commit_leaves_every_event_once(
    tmp_path: Path, moment: str, settled: int, engine: DuckDBEngine
) -> None:
    filled(engine, 5)
    engine.close()
    folder = tmp_path / "data"
    died = subprocess.run([sys.executable, "-c", DYING, str(folder), moment], capture_output=True, check=False)
    assert died.returncode == -9, died.stderr
    again = DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US)
    again.prepare([stream("s")])
    assert rows(again, ALL) == totals(5 * ROWS)
    assert len(groups(again)) == settled
    again.close()


def test_a_store_of_the_first_version_is_brought_up(engine: DuckDBEngine, tmp_path: Path) -> None:
    filled(engine, 5)
    engine.close()
    file = tmp_path / "data" / "events.duckdb"
    with duckdb.connect(str(file)) as store:
        store.execute("ALTER TABLE s DROP COLUMN settled")
        store.execute("UPDATE cordwood.stamp SET version = 1")
    again = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    again.prepare([stream("s")])
    assert settle(again)
    assert rows(again, ALL) == totals(5 * ROWS)
    with again._session.cursor() as cursor:
        assert cursor.execute("SELECT version FROM store.cordwood.stamp").fetchall() == [(VERSION,)]
    again.close()
