"""Large events are converted and flushed in chunks of a few megabytes."""

import itertools
import json
import random
import string
from pathlib import Path

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.storage.chunk import MAX_FLUSHED_LARGE_EVENT_BYTES, EventChunk, split_into_chunks
from cordwood.engines.duckdb.storage.flusher import Flusher
from cordwood.engines.duckdb.storage.wal import WalRecord
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event, ReceivedEventBatch
from tests.contract.engine_asking import NOW_US, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending

MEBIBYTE = 2**20
# The memory that a service with --memory 512MB leaves to DuckDB.
MEMORY_BYTES = 200 * 10**6

LETTERS = "".join(random.Random(1).choices(string.ascii_letters, k=2 * MEBIBYTE))


def make_event(name: str, project: str, size: int) -> Event:
    start = random.Random(name).randrange(MEBIBYTE)
    letters = (LETTERS * (1 + (start + size) // len(LETTERS)))[start : start + size]
    return Event(name, NOW_US, "m", project, json.dumps({"t": letters, "a": {"b": name}}))


def make_record(*events: Event, first: int = 0) -> WalRecord:
    return WalRecord("s", first, NOW_US, list(events))


def test_a_chunk_ends_before_its_large_events_exceed_the_limit() -> None:
    large = [make_event(f"{number}", "p", MEBIBYTE * 3 // 2) for number in range(5)]
    small_events = [make_event(f"s{number}", "p", 10) for number in range(5000)]
    chunks = split_into_chunks([make_record(*small_events, *large), make_record(*small_events, first=5005)], 10_005)
    assert [event for part in chunks for event in part.events] == [*small_events, *large, *small_events]
    assert [part.first_event_number for part in chunks] == [0, 5002, 5004]
    assert all(part.end_event_number == after.first_event_number for part, after in itertools.pairwise(chunks))


def test_an_event_above_the_limit_is_a_chunk_by_itself() -> None:
    chunks = split_into_chunks([make_record(*[make_event(f"{number}", "p", 5 * MEBIBYTE) for number in range(2)])], 1)
    assert [(part.first_event_number, part.end_event_number) for part in chunks] == [(0, 1)]
    assert EventChunk(0).count_fitting_events([make_event("x", "p", 5 * MEBIBYTE)], MEBIBYTE) == 1


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckDBEngine:
    """Return an engine that flushes only when a test flushes."""
    monkeypatch.setattr(Flusher, "flush_next", lambda _: 60.0)
    engine = DuckDBEngine(
        tmp_path / "data", DuckDBTarget(), DuckDBOptions(memory_bytes=MEMORY_BYTES, max_unflushed_bytes=2**40)
    )
    engine.create_stream_tables([stream("s")])
    return engine


def test_many_large_events_are_queried_and_flushed_within_little_memory(engine: DuckDBEngine) -> None:
    """Query and flush 50 MB of large events.

    Converting 49 MB of events to VARIANT in one statement took over 190 MB and blocked the stream. Therefore the engine
    converts them in chunks.
    """
    engine.append(
        [ReceivedEventBatch("s", [make_event(f"small{number}", "good", 10) for number in range(600)], NOW_US)]
    )
    for number in range(50):
        engine.append([ReceivedEventBatch("s", [make_event(f"large{number}", "evil", 1_000_000)], NOW_US)])
    query_of_small_events = "select count(*) as n from s where project = 'good'"
    assert list(rows(engine, query_of_small_events)) == [(600,)]
    flush_pending(engine)
    assert engine._session.checkpoint(engine._session.cursor())
    assert list(rows(engine, query_of_small_events)) == [(600,)]
    assert (
        len(rows(engine, "select id, metadata from s where project = 'good' order by timestamp desc limit 100")) == 100
    )
    engine.close()


def test_large_events_are_flushed_before_they_fill_a_row_group(engine: DuckDBEngine) -> None:
    store = engine._storage.get_store("s")
    engine.append([ReceivedEventBatch("s", [make_event("small", "good", 10)], NOW_US)])
    assert store.take_chunk(whole_groups_only=True) is None
    for number in range(9):
        engine.append([ReceivedEventBatch("s", [make_event(f"{number}", "evil", MEBIBYTE)], NOW_US)])
    chunk = store.take_chunk(whole_groups_only=True)
    assert chunk is not None
    assert MAX_FLUSHED_LARGE_EVENT_BYTES - 2 * MEBIBYTE < chunk.large_event_bytes <= MAX_FLUSHED_LARGE_EVENT_BYTES
    assert store.take_chunk(whole_groups_only=True) is None
    store.return_chunk_to_pending(chunk)
    assert store.take_chunk(whole_groups_only=True) == chunk
    engine.close()
