"""What the engine notes of row groups is forgotten once it is much: the file is opened again, and nobody sees it."""

import json
import platform
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage import memory_reclaimer, session
from cordwood.engines.duckdb.storage.allocator import heap_bytes
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.file_gate import ExclusiveWait, FileAccess
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.session import Session
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import EngineFailed
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.file_identity import identity
from tests.unit.engines.duckdb.threads import in_another_thread

# DuckDB's least: a row group is one vector.
ROWS = 2048
ALL = "select count(*), count(distinct id), count(t.metadata.a0) from `s` as t"
METADATA = json.dumps({f"a{number}": number for number in range(60)})
MB = 10**6
LIBRARY, VERSION = platform.libc_ver()
TELLS = LIBRARY == "glibc" and tuple(map(int, VERSION.split("."))) >= (2, 33)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Nothing is done behind its back; row groups are small, and nobody is waited for."""
    monkeypatch.setattr(Flusher, "start", lambda *_: None)
    monkeypatch.setattr(Compactor, "start", lambda *_: None)
    monkeypatch.setattr(session, "ROW_GROUP_ROWS", ROWS)
    monkeypatch.setattr(memory_reclaimer, "URGENT", ExclusiveWait(0.0, 0.1, 0.1))
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.prepare([stream("s")])
    yield engine
    engine.close()


def filled(engine: DuckDBEngine, groups: int, *, first: int = 0) -> int:
    """How many events there are then, all of them sealed."""
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        for start in range(first, first + groups * ROWS, ROWS):
            events = [Event(f"e{number}", NOW_US + number, "m", "p", METADATA) for number in range(start, start + ROWS)]
            engine.append([batch(*events)])
            chunk = store.take_chunk(whole_groups_only=True, rows=ROWS)
            assert chunk is not None
            store.flush(chunk, cursor)
        engine._session.checkpoint(cursor)
    return first + groups * ROWS


def forget(engine: DuckDBEngine) -> bool:
    """Whether the file was opened again."""
    before = identity(engine)
    with engine._session.cursor() as cursor:
        engine._storage._compactor.memory_reclaimer._reopen(cursor)
    return identity(engine) != before


@pytest.mark.skipif(not TELLS, reason="only glibc 2.33 and later tell what is in use")
def test_what_was_noted_of_row_groups_is_forgotten(engine: DuckDBEngine) -> None:
    filled(engine, 40)
    before = heap_bytes()
    assert forget(engine)
    after = heap_bytes()
    assert before is not None
    assert after is not None
    assert after < before - 2 * MB


def test_events_are_there_as_before_and_more_can_come(engine: DuckDBEngine) -> None:
    count = filled(engine, 3)
    for _ in range(2):
        assert forget(engine)
        assert rows(engine, ALL) == [(count, count, count)]
        count = filled(engine, 1, first=count)
        assert rows(engine, ALL) == [(count, count, count)]


def test_never_where_the_c_library_does_not_tell(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    work, before = engine._storage._compactor.memory_reclaimer, identity(engine)
    monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda: None)
    for held in (100 * MB, 0):
        monkeypatch.setattr(work, "_pending_bytes", lambda found=held: found)
        look(engine)
    assert identity(engine) == before


def look(engine: DuckDBEngine, times: int = 6) -> None:
    with engine._session.cursor() as cursor:
        for _ in range(times):
            engine._storage._compactor.memory_reclaimer.reclaim(cursor)


def test_only_when_it_has_grown_by_a_share_of_what_the_engine_may_have(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, share = identity(engine), engine._session.memory_bytes // 12
    for in_use in (50 * MB, 50 * MB + share):
        monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda found=in_use: found)
        look(engine)
        assert identity(engine) == before
    monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda: 51 * MB + share)
    look(engine)
    again = identity(engine)
    assert again != before
    # What is in use then is the new beginning.
    look(engine, 12)
    assert identity(engine) == again


def allowed(engine: DuckDBEngine) -> float:
    """What the engine may take now, in megabytes."""
    with engine._session.cursor() as cursor:
        ((told,),) = cursor.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = str(told).split()
    assert unit == "MiB"
    return float(number) * 2**20 / MB


def test_the_engine_has_so_much_less_for_all_else(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    most = engine._session.memory_bytes / MB
    for in_use, rest in ((50, most), (53, most), (71, most - 20), (350, most * 2 / 3), (62, most - 12), (40, most)):
        monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda found=in_use: found * MB)
        look(engine, 12)
        assert allowed(engine) == pytest.approx(rest, abs=0.2)


def test_a_rest_leaves_it_at_that(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for in_use in (50, 70):
        monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda found=in_use: found * MB)
        look(engine, 6)
    with engine._session.cursor() as cursor:
        engine._session.release_blocks(cursor)
    assert allowed(engine) == pytest.approx(engine._session.memory_bytes / MB - 20, abs=0.2)


def test_what_is_under_way_for_a_moment_is_none_of_it(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, share = identity(engine), engine._session.memory_bytes // 12
    uses = cycle([50 * MB, 60 * MB + share, 70 * MB + share])
    monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda: next(uses))
    look(engine, 30)
    assert identity(engine) == before


def test_texts_of_events_that_wait_are_no_notes(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, held = identity(engine), 0
    monkeypatch.setattr(memory_reclaimer, "heap_bytes", lambda: 50 * MB + held)
    monkeypatch.setattr(engine._storage._compactor.memory_reclaimer, "_pending_bytes", lambda: held)
    look(engine)
    held = engine._session.memory_bytes
    look(engine)
    assert identity(engine) == before


def test_not_while_a_query_is_under_way_nor_again_at_once(engine: DuckDBEngine) -> None:
    count = filled(engine, 2)
    with engine._session.gate.shared(FileAccess.QUERY):
        assert not in_another_thread(lambda: forget(engine))
    work, before = engine._storage._compactor.memory_reclaimer, identity(engine)
    work._baseline_heap_bytes = -(10**12)
    look(engine, 5)
    assert identity(engine) == before
    look(engine, 1)
    assert identity(engine) != before
    assert rows(engine, ALL) == [(count, count, count)]


def test_whoever_asks_or_appends_meanwhile_waits_and_fails_at_nothing(engine: DuckDBEngine) -> None:
    count = filled(engine, 10)
    # An id that comes back is looked up in the file.
    known = Event("e1", NOW_US, "m", "p", METADATA, received_us=NOW_US)
    done, right = threading.Event(), []

    def again(work: Callable[[], bool]) -> None:
        while not done.is_set():
            right.append(work())

    works: list[Callable[[], bool]] = [
        lambda: rows(engine, ALL) == [(count, count, count)],
        lambda: [appended.accepted for appended in engine.append([batch(known)])] == [0],
        lambda: engine.is_regex("a+") is None,
    ]
    others = [threading.Thread(target=again, args=(work,)) for work in works]
    for other in others:
        other.start()
    forgotten = sum(forget(engine) for _ in range(30))
    done.set()
    for other in others:
        other.join()
    assert forgotten > 10
    assert right
    assert all(right)


def test_a_transaction_that_did_not_pass_by_is_waited_for(engine: DuckDBEngine) -> None:
    count = filled(engine, 2)
    with engine._session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM store.main.s").fetchall()
        ending = threading.Timer(0.3, lambda: cursor.execute("COMMIT"))
        ending.start()
        assert forget(engine)
        ending.join()
    assert rows(engine, ALL) == [(count, count, count)]


def test_not_while_a_backup_reads_the_files(engine: DuckDBEngine) -> None:
    filled(engine, 1)
    with engine.snapshot():
        assert not forget(engine)
    assert forget(engine)


def test_not_when_the_file_is_gone_or_is_another_one(engine: DuckDBEngine, tmp_path: Path) -> None:
    count = filled(engine, 2)
    file = tmp_path / "data" / "events.duckdb"
    file.rename(tmp_path / "elsewhere")
    assert not forget(engine)
    file.touch()
    assert not forget(engine)
    assert rows(engine, ALL) == [(count, count, count)]
    (tmp_path / "elsewhere").rename(file)


def test_a_file_that_cannot_be_opened_again_is_said_and_tried_until_it_can(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = filled(engine, 2)
    monkeypatch.setattr(session, "_ATTACH_ATTEMPTS", 2)
    with engine._session.cursor() as cursor, monkeypatch.context() as broken:
        broken.setattr(Session, "_attach_sql", "ATTACH '/nowhere/at/all' AS store")
        with pytest.raises(duckdb.Error):
            engine._storage._compactor.memory_reclaimer._reopen(cursor)
        with pytest.raises(EngineFailed, match="could not be opened again"):
            rows(engine, ALL)
        # Not refused as wrong: whoever sends them tries again.
        with pytest.raises(EngineFailed, match="could not be opened again"):
            engine.append([batch(Event("e1", NOW_US, "m", "p", METADATA, received_us=NOW_US))])
    with engine._session._root.cursor() as cursor:
        engine._storage._compactor.memory_reclaimer.reclaim(cursor)
    assert rows(engine, ALL) == [(count, count, count)]


def test_no_other_file_can_be_read(engine: DuckDBEngine, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    with engine._session.cursor() as cursor:
        for place in (other, "/etc/hostname"):
            with pytest.raises(duckdb.PermissionException):
                cursor.execute(f"SELECT * FROM read_text('{place}')").fetchall()
        with pytest.raises(duckdb.PermissionException):
            cursor.execute(f"ATTACH '{tmp_path / 'other.duckdb'}'")


@pytest.mark.parametrize("name", ['it\'s "here"', "a b%41é", "../up"])
def test_wherever_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "from").mkdir()
    monkeypatch.chdir(tmp_path / "from")
    engine = DuckDBEngine(Path(name), DuckDBTarget(), clock_us=lambda: NOW_US)
    assert forget(engine)
    engine.close()
