"""Events with thousands of distinct fields are flushed and compacted with little memory."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.statement_check import StatementChecker
from cordwood.engines.duckdb.storage import session
from cordwood.engines.duckdb.storage.chunk import EventChunk
from cordwood.engines.duckdb.storage.compaction import Compactor
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.isolation import IsolationCheck
from cordwood.model.event import Event, EventShape, ReceivedEventBatch, ValueKind
from cordwood.observe.observation import ignore_observation
from tests.contract.engine_asking import NOW_US, rows, stream
from tests.waiting import until

# The memory that a service with --memory 512MB leaves to DuckDB.
MEMORY_BYTES = 200 * 10**6
FIELDS_PER_EVENT = 300
NESTED_TOO_DEEPLY = '{"a":' * 3_000 + "1" + "}" * 3_000


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    monkeypatch.setattr(Compactor, "run_due_work", lambda _: 60.0)
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), DuckDBOptions(memory_bytes=MEMORY_BYTES))
    engine.create_stream_tables([stream("s")])
    yield engine
    engine.close()


def append_events(engine: DuckDBEngine, first: int, count: int, *, many_field_events: int) -> None:
    """Append `count` events: ordinary events of one project, and `many_field_events` of another project.

    Each event of the other project has fields that no other event has.
    """
    ordinary = [
        Event(f"e{n}", NOW_US, "m", "good", '{"a":{"b":1}}') for n in range(first, first + count - many_field_events)
    ]
    fields = [{f"f{first + n}_{field}": field for field in range(FIELDS_PER_EVENT)} for n in range(many_field_events)]
    odd = [Event(f"o{first + n}", NOW_US, "m", "evil", json.dumps(metadata)) for n, metadata in enumerate(fields)]
    engine.append([ReceivedEventBatch("s", [*odd, *ordinary], NOW_US)])


def shredded_rows(engine: DuckDBEngine) -> int:
    with engine._session.cursor() as cursor:
        ((result_rows,),) = cursor.execute("SELECT current_setting('variant_minimum_shredding_size')").fetchall()
    return int(result_rows)


def test_events_with_many_fields_are_flushed_and_checkpointed(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_events(engine, 0, ROW_GROUP_ROWS + 5_000, many_field_events=20)
    store = engine._storage.get_store("s")
    until(lambda: store.first_unflushed_event_number >= ROW_GROUP_ROWS, 60)
    assert shredded_rows(engine) == -1
    with engine._session.cursor() as cursor:
        # A checkpoint is refused while the flusher writes, so it is tried repeatedly.
        until(lambda: engine._session.checkpoint(cursor), 60)
        monkeypatch.setattr(session, "_SHREDDING_PAUSE_SECONDS", 0.0)
        engine._session.resume_shredding_when_due(cursor)
        assert shredded_rows(engine) == -1
        engine._session.pause_shredding(cursor)
        engine._session.resume_shredding_when_due(cursor)
        assert shredded_rows(engine) == session._SHREDDED_ROWS
    count_sql = "select count(*) as n, countif(json_value(metadata, '$.a.b') = '1') as good from s"
    assert rows(engine, count_sql) == [(ROW_GROUP_ROWS + 5_000, ROW_GROUP_ROWS + 4_980)]


def test_events_with_many_fields_are_flushed_without_shredding(engine: DuckDBEngine) -> None:
    """Flush 8 MB of events with many fields without shredding them.

    Shredding them takes 3 GB, which DuckDB does not count. The memory watchdog would then end the engine.
    """
    store = engine._storage.get_store("s")
    store.add_kinds({("metadata",): frozenset({ValueKind.UNLISTED_DESCENDANTS})})
    append_events(engine, 0, 2_000, many_field_events=2_000)
    until(lambda: store.first_unflushed_event_number >= 2_000, 60)
    assert shredded_rows(engine) == -1
    with engine._session.cursor() as cursor:
        until(lambda: engine._session.checkpoint(cursor), 60)
    assert rows(engine, "select count(*) as n from s") == [(2_000,)]


def test_an_engine_can_start_without_shredding(tmp_path: Path) -> None:
    """Start the engine without shredding, as after a process was ended for its memory.

    The new process writes the same row groups again, so it must not shred them.
    """
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), DuckDBOptions(starts_without_shredding=True))
    assert shredded_rows(engine) == -1
    engine.close()


def fields_of(*documents: object) -> EventChunk:
    return EventChunk(
        0, [Event(f"e{n}", NOW_US, metadata=json.dumps(document)) for n, document in enumerate(documents)]
    )


@pytest.mark.parametrize(
    ("documents", "count"),
    [
        ([{"a": 1, "b": {"c": None}}, {"b": {"c": 2}, "a": "x"}], 3),
        ([{"a": [{"b": 1}, {"c": [[{"d": 1}]]}, 5, "e"]}], 4),
        ([{"a": {"a": {"b": 1}}}, {"b": 1}], 4),
        ([[{"a": 1}], "text", None, 7], 1),
    ],
    ids=["repeated", "arrays", "levels", "other values"],
)
def test_fields_are_counted_once(documents: list[object], count: int) -> None:
    many_listed = EventShape({("metadata", str(number)): frozenset({ValueKind.NUMBER}) for number in range(10)})
    assert fields_of(*documents).has_more_fields_than(count - 1, many_listed)
    assert not fields_of(*documents).has_more_fields_than(count, many_listed)


@pytest.mark.parametrize("text", [NESTED_TOO_DEEPLY, '{"a":1e999,"b":2}'], ids=["deep", "large number"])
def test_json_that_cannot_be_decoded_has_at_most_as_many_fields_as_colons(text: str) -> None:
    chunk = EventChunk(0, [Event("e", NOW_US, metadata=text)])
    assert chunk.has_more_fields_than(text.count(":") - 1, EventShape({}))
    assert not chunk.has_more_fields_than(
        text.count(":"), EventShape({}, paths_with_unlisted_descendants=frozenset({("metadata",)}))
    )


def test_the_fields_of_events_are_counted_if_one_has_many_or_not_all_are_listed() -> None:
    narrow = fields_of(*({f"f{n}": 1} for n in range(100)))
    assert not narrow.has_more_fields_than(50, EventShape({}))
    assert narrow.has_more_fields_than(50, EventShape({}, paths_with_unlisted_descendants=frozenset({("metadata",)})))
    assert fields_of({f"f{n}": 1 for n in range(100)}).has_more_fields_than(50, EventShape({}))


def test_unflushed_events_with_many_fields_are_inserted_in_small_chunks() -> None:
    documents = [{f"f{n}_{field}": 1 for field in range(5_000)} for n in range(100)]
    parts = list(fields_of(*documents).split_for_insert())
    assert [len(part.events) for part in parts] == [15] * 6 + [10]
    assert [event for part in parts for event in part.events] == fields_of(*documents).events
    assert len(list(fields_of(*([{"a": 1}] * 4_000)).split_for_insert())) == 1


def test_parts_of_a_row_group_are_checkpointed(engine: DuckDBEngine) -> None:
    store = engine._storage.get_store("s")
    for first in range(0, ROW_GROUP_ROWS, 2_000):
        append_events(engine, first, 2_000, many_field_events=2)
        chunk = store.take_chunk(whole_groups_only=False)
        with engine._session.cursor() as cursor:
            if chunk is not None:
                store.flush(chunk, cursor)
    with engine._session.cursor() as cursor:
        assert engine._session.checkpoint(cursor)
    assert shredded_rows(engine) == -1
    batches = -(-ROW_GROUP_ROWS // 2_000)
    assert rows(engine, "select count(*) as n from s where project = 'good'") == [(batches * 1_998,)]


def test_a_write_that_runs_out_of_memory_is_retried_without_shredding(engine: DuckDBEngine) -> None:
    compactor, tries = engine._storage._compactor, list[int]()

    def change(_: StreamTableStatements) -> bool:
        tries.append(shredded_rows(engine))
        if len(tries) == 1:
            raise duckdb.OutOfMemoryException("could not allocate block")
        return False

    assert not compactor._run_or_retry_without_shredding(change, engine._storage.get_store("s").table_statements)
    assert tries == [session._SHREDDED_ROWS, -1]


def test_out_of_memory_in_the_statement_check_is_not_a_breach() -> None:
    class Cursor:
        """A fake cursor that answers as DuckDB does while other queries hold all memory."""

        def extract_statements(self, _: str) -> list[object]:
            return [object()]

        def execute(self, *_: object) -> "Cursor":
            return self

        def fetchall(self) -> list[tuple[str]]:
            error_text = "failed to allocate data of size 8.0 KiB (209.5 MiB/209.5 MiB used)"
            return [(json.dumps({"error": True, "error_type": "out of memory", "error_message": error_text}),)]

    check = StatementChecker(IsolationCheck("duckdb", ignore_observation))
    with pytest.raises(duckdb.OutOfMemoryException):
        check.check(Cursor(), "SELECT 1", ["s"])  # type: ignore[arg-type] # the check calls only these methods
