"""Compacted blocks are registered with their times, under an id that changes when the rows of the block change."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage import compaction, session
from cordwood.engines.duckdb.storage.blocks import BlockReader, RegisteredBlock
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.retention import _rewrite_oldest_rows
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event
from tests.contract.engine_asking import NOW_US, batch, stream
from tests.unit.engines.duckdb.flushing import flush_pending

ROW_GROUP_SIZE = 2048
BLOCK_TIMES_QUERY = "SELECT block, epoch_us(min(timestamp)), epoch_us(max(timestamp)) FROM store.main.s WHERE settled GROUP BY block ORDER BY block"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """Yield an engine with a compacted run of three blocks, and with two row groups that are not compacted."""
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    for module in (session, compaction):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", ROW_GROUP_SIZE)
    monkeypatch.setattr(compaction, "ROW_GROUPS_PER_COMPACTED_RUN", 3)
    monkeypatch.setattr(compaction, "MIN_UNCOMPACTED_ROW_GROUPS", 2)
    monkeypatch.setattr(compaction, "_COMPACTION_DELAY_AFTER_FLUSH_SECONDS", -1.0)
    engine = open_engine(tmp_path)
    for first in range(0, 5 * ROW_GROUP_SIZE, 1000):
        events = range(first, min(first + 1000, 5 * ROW_GROUP_SIZE))
        engine.append([batch(*(Event(f"e{n}", NOW_US + n, project=f"p{n % 5}") for n in events))])
        flush_pending(engine)
    assert engine._storage._compactor.compact_oldest_run(engine._storage.get_store("s"))
    yield engine
    engine.close()


def open_engine(folder: Path) -> DuckDBEngine:
    engine = DuckDBEngine(folder / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    return engine


def registered_blocks(engine: DuckDBEngine) -> list[RegisteredBlock]:
    with engine._session.cursor() as cursor:
        return list(BlockReader().read_blocks(cursor, "s").registered_blocks)


def stored_block_times(engine: DuckDBEngine) -> list[tuple[int, int, int]]:
    with engine._session.cursor() as cursor:
        return cursor.execute(BLOCK_TIMES_QUERY).fetchall()


def block_facts(blocks: list[RegisteredBlock]) -> list[tuple[int, int, int]]:
    return [(block.number, block.oldest_us, block.newest_us) for block in blocks]


def drop_before(engine: DuckDBEngine, time_us: int) -> None:
    with engine._storage._compactor.deletion_lock, engine._session.cursor() as cursor:
        engine._storage.get_store("s").delete_before(time_us, cursor)


def test_each_compacted_block_is_registered_with_its_times(engine: DuckDBEngine) -> None:
    assert block_facts(registered_blocks(engine)) == stored_block_times(engine)
    assert len({block.content_id for block in registered_blocks(engine)}) == 3


def test_all_blocks_are_listed(engine: DuckDBEngine) -> None:
    with engine._session.cursor() as cursor:
        numbers = sorted(BlockReader().read_blocks(cursor, "s").block_numbers)
        blocks = cursor.execute("SELECT DISTINCT block FROM store.main.s ORDER BY block").fetchall()
    assert numbers == [block for (block,) in blocks]


def test_retention_gives_the_blocks_that_it_changes_another_id(engine: DuckDBEngine) -> None:
    before = registered_blocks(engine)
    drop_before(engine, before[0].oldest_us + 3)
    after = registered_blocks(engine)
    changed = [old.oldest_us < before[0].oldest_us + 3 for old in before]
    assert any(changed)
    assert [old.content_id != new.content_id for old, new in zip(before, after, strict=True)] == changed
    for block, (number, oldest_us, newest_us) in zip(after, stored_block_times(engine), strict=True):
        assert (block.number, block.newest_us) == (number, newest_us)
        assert block.oldest_us <= oldest_us


def test_blocks_whose_events_were_deleted_are_unregistered(engine: DuckDBEngine) -> None:
    drop_before(engine, NOW_US + 4 * ROW_GROUP_SIZE)
    assert registered_blocks(engine) == []


def test_a_failed_deletion_leaves_blocks_and_ids(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = registered_blocks(engine)

    def fail(*_: object) -> None:
        raise duckdb.OutOfMemoryException("for a test")

    monkeypatch.setattr("cordwood.engines.duckdb.storage.stream_store.update_registry_after_deletion", fail)
    with pytest.raises(duckdb.OutOfMemoryException):
        drop_before(engine, before[0].oldest_us + 3)
    assert registered_blocks(engine) == before
    assert block_facts(before) == stored_block_times(engine)


def test_moved_rows_keep_their_block_and_its_id(engine: DuckDBEngine) -> None:
    before = registered_blocks(engine)
    with engine._session.cursor() as cursor:
        _rewrite_oldest_rows(engine._storage.get_store("s").table_statements, 100, cursor)
    assert registered_blocks(engine) == before
    assert block_facts(before) == stored_block_times(engine)


def test_ids_are_kept_at_a_restart(engine: DuckDBEngine, tmp_path: Path) -> None:
    before = registered_blocks(engine)
    engine.close()
    reopened = open_engine(tmp_path)
    assert registered_blocks(reopened) == before
    reopened.close()


def test_blocks_of_earlier_releases_are_registered_in_the_background(engine: DuckDBEngine, tmp_path: Path) -> None:
    before = registered_blocks(engine)
    engine.close()
    with duckdb.connect(str(tmp_path / "data" / "events.duckdb")) as store:
        store.execute("DROP TABLE cordwood.block")
        store.execute("UPDATE cordwood.stamp SET version = 3")
    reopened = open_engine(tmp_path)
    assert registered_blocks(reopened) == []
    reopened._storage._compactor.compact_all()
    assert block_facts(registered_blocks(reopened)) == block_facts(before)
    reopened.close()


def test_a_block_whose_rows_are_compacted_again_is_unregistered(engine: DuckDBEngine) -> None:
    old = {block.content_id for block in registered_blocks(engine)}
    with engine._session.cursor() as cursor:
        cursor.execute("UPDATE store.main.s SET settled = false")
    assert engine._storage._compactor.compact_oldest_run(engine._storage.get_store("s"))
    assert len(old - {block.content_id for block in registered_blocks(engine)}) == 1
    with engine._session.cursor() as cursor:
        all_blocks = cursor.execute(BLOCK_TIMES_QUERY.replace("WHERE settled ", "")).fetchall()
    assert set(block_facts(registered_blocks(engine))) <= set(all_blocks)


def test_a_large_flushed_block_is_registered_until_it_is_compacted(engine: DuckDBEngine) -> None:
    before = registered_blocks(engine)
    engine.append([batch(*(Event(f"f{n}", NOW_US - n, project=f"p{n % 5}") for n in range(3 * ROW_GROUP_SIZE)))])
    flush_pending(engine)
    (flushed,) = [block for block in registered_blocks(engine) if block not in before]
    assert (flushed.oldest_us, flushed.newest_us) == (NOW_US - 3 * ROW_GROUP_SIZE + 1, NOW_US)
    assert engine._storage._compactor.compact_oldest_run(engine._storage.get_store("s"))
    after = registered_blocks(engine)
    assert flushed not in after
    assert set(before) < set(after)
    assert block_facts(after) == stored_block_times(engine)
