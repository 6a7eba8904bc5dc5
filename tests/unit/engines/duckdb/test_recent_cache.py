"""The recent cache answers queries for the newest whole events with the same rows as the file."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Self
from uuid import UUID

import duckdb
import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query.query_runner import RunLimits
from cordwood.engines.duckdb.storage import recent_cache
from cordwood.engines.duckdb.storage.flusher import FlushLimits
from cordwood.engines.duckdb.storage.memtable import RecentEventView
from cordwood.engines.duckdb.storage.recent_cache import MAX_RECENT_CACHE_STREAMS, RecentEventCache
from cordwood.engines.duckdb.storage.session import Session
from cordwood.engines.duckdb.storage.storage import StoppableQuery, Storage, StorageLimits
from cordwood.engines.duckdb.storage.stream_store import StreamStore
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.datatype import Row
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind
from cordwood.model.redaction import RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.plan import EventRange, Plan
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import BoundStatement
from tests.contract.engine_asking import LIMITS, NEVER_CANCELLED, NOW_US, batch, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending
from tests.unit.engines.duckdb.threads import in_another_thread

PAGE_QUERY = "select id, timestamp, event_message, metadata from `s` order by timestamp desc, id limit 5"
SUB_QUERIES = "with e as (select * from `s`), f as (select * from e where project = 'p2')"
JSON_OBJECTS = [
    '{"a":1,"b":[1,2.50,{"c":null}],"z":{"y":"x"}}',
    '{"b":"ü\\u0001\\"","a":12345678901234567890123,"A":-0.0,"e":1e300}',
    "{}",
    "[]",
    "null",
    '"text"',
    None,
    '{"n":{"n":{"n":[[],[{}]]}},"t":"2026-01-01T00:00:00Z","f":1.0}',
]


def event(number: int) -> Event:
    extras = f'{{"level":"l{number}"}}' if number % 3 else None
    return Event(
        f"e{number:05}",
        NOW_US + number,
        f"m{number % 10}",
        f"p{number % 3}",
        JSON_OBJECTS[number % len(JSON_OBJECTS)],
        extras,
    )


def events(*numbers: int) -> ReceivedEventBatch:
    return batch(*map(event, numbers))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    """Yield an engine with forty flushed events."""
    engine = DuckDBEngine(tmp_path / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([msgspec.structs.replace(events(*range(40)), learnt={("metadata",): frozenset({ValueKind.OBJECT})})])
    flush_pending(engine)
    yield engine
    engine.close()


def question(
    engine: DuckDBEngine, sql: str, limit: int = 5000, redaction: RedactionPolicy | None = None
) -> BoundStatement:
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", max_rows=limit))
    statement = compile_saved_query(program, engine.compile_target, engine.shapes_by_stream(), redaction)
    return bind_parameters(statement, {}, NOW_US, engine.regex_error)


def fill_cache(engine: DuckDBEngine) -> None:
    engine._storage.recent_cache.fill_recent_table(engine._storage.get_store("s"))


def answer_from_recent(engine: DuckDBEngine, sql: str, limit: int = 5000) -> list[Row] | None:
    """Return the answer from the recent cache, or None if the cache cannot answer the query."""
    engine._query_runner._recent_table_skipped_until.clear()
    limits = RunLimits.from_answer_limits(msgspec.structs.replace(LIMITS, max_rows=limit))
    recent_rows = engine._query_runner._answer_from_recent_table(question(engine, sql, limit), limits, NEVER_CANCELLED)
    return None if recent_rows is None else [row for part in recent_rows.batches for row in part]


def answer_from_file(engine: DuckDBEngine, sql: str) -> list[Row]:
    answer = engine.answer(without_recent_variant(question(engine, sql)), LIMITS, NEVER_CANCELLED)
    return [row for part in answer.batches for row in part]


def without_recent_variant(page_question: BoundStatement) -> BoundStatement:
    plan = Plan(
        tuple(
            variant
            for variant in page_question.statement.plan.variants
            if variant.event_range is not EventRange.RECENTLY_CACHED
        )
    )
    return msgspec.structs.replace(page_question, statement=msgspec.structs.replace(page_question.statement, plan=plan))


# Tests of queries that the cache may answer


@pytest.mark.parametrize(
    "sql",
    [
        PAGE_QUERY,
        "select * from `s` order by timestamp desc, id limit 5",
        "select id, metadata from `s` where project = 'p1' order by timestamp desc, id limit 5",
        "select id as i, timestamp as t from `s` order by 2 desc, 1 limit 3 offset 4",
        f"{SUB_QUERIES} select id, metadata from f where timestamp > '2001-01-01' order by timestamp desc, id limit 5",
        "select upper(id) as id, metadata, metadata as twice from `s` order by timestamp desc, id limit 5",
    ],
)
def test_the_cache_answers_a_page_with_the_rows_of_the_file(engine: DuckDBEngine, sql: str) -> None:
    expected = answer_from_file(engine, sql)
    assert answer_from_recent(engine, sql) is None
    fill_cache(engine)
    assert answer_from_recent(engine, sql) == expected
    engine.append([events(*range(40, 70))])
    assert answer_from_recent(engine, sql) == answer_from_file(engine, sql) != expected
    expected = answer_from_file(engine, sql)
    flush_pending(engine)
    assert answer_from_recent(engine, sql) == answer_from_file(engine, sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "select id, metadata from `s` order by timestamp limit 5",
        "select id, metadata from `s` order by id desc limit 5",
        "select id, metadata from `s` order by timestamp desc",
        "select id, metadata from `s` order by timestamp desc limit 501",
        "select id as timestamp from `s` order by 1 desc limit 5",
        "select timestamp_trunc(timestamp, hour) as timestamp from `s` order by timestamp desc limit 5",
        "select id, to_json_string(metadata) as m from `s` order by timestamp desc limit 5",
        "select id, t.metadata.a from `s` as t order by timestamp desc limit 5",
        "select id from `s` where event_message like '%message%' order by timestamp desc limit 5",
        "select a.id from `s` as a join `s` as b on a.id = b.id order by a.timestamp desc limit 5",
        "select id from `s` where id in (select id from `s`) order by timestamp desc limit 5",
        "select t.id, x from `s` as t cross join unnest([1, 2]) as x order by timestamp desc limit 5",
        "select distinct timestamp from `s` order by timestamp desc limit 5",
        "select timestamp, count(*) as n from `s` group by 1 order by timestamp desc limit 5",
        "select id, row_number() over (order by id) as n from `s` order by timestamp desc limit 5",
    ],
)
def test_other_queries_have_no_variant_for_the_cache(engine: DuckDBEngine, sql: str) -> None:
    assert question(engine, sql).statement.plan.find_variant_or_fallback(EventRange.RECENTLY_CACHED) is None


# Tests of the answers


def test_a_full_page_does_not_read_the_file(engine: DuckDBEngine) -> None:
    fill_cache(engine)
    expected = rows(engine, PAGE_QUERY)
    engine.append([events(40)])
    flush_pending(engine)
    with engine._session.cursor() as cursor:
        cursor.execute(f"DELETE FROM {StreamTableStatements('s').table}")
    assert [row[0] for row in rows(engine, PAGE_QUERY)] == ["e00040", *(row[0] for row in expected[:4])]


def test_the_file_is_read_if_the_cache_has_too_few_rows(engine: DuckDBEngine) -> None:
    fill_cache(engine)
    sql = "select id from `s` where id < 'e00003' order by timestamp desc limit 5"
    assert answer_from_recent(engine, sql) is None
    assert rows(engine, sql) == [("e00002",), ("e00001",), ("e00000",)]


def test_the_cache_is_not_tried_again_for_a_while_after_a_miss(
    engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_cache(engine)
    opened_streams: list[str] = []
    open_recent_view = engine._storage.open_recent_view

    def record_stream(name: str, query: StoppableQuery) -> AbstractContextManager[RecentEventView | None]:
        opened_streams.append(name)
        return open_recent_view(name, query)

    monkeypatch.setattr(engine._storage, "open_recent_view", record_stream)
    for day in range(3):
        sql = f"select id from `s` where id < 'e00003' order by timestamp desc limit {5 + day % 2}"
        assert len(rows(engine, sql)) == 3
    assert opened_streams == ["s", "s"]


def test_answers_from_the_cache_are_redacted(engine: DuckDBEngine) -> None:
    engine.append(
        [batch(Event(f"x{at}", NOW_US + 99 + at, "of 10.20.30.40", "p", '{"ip":"10.20.30.40"}')) for at in range(5)]
    )
    fill_cache(engine)
    page_question = question(engine, PAGE_QUERY, redaction=RedactionPolicy(RedactMode.REPLACE))
    engine._query_runner._answer_redactor.create_macros(RedactMode.REPLACE)
    recent_rows = engine._query_runner._answer_from_recent_table(
        page_question, RunLimits.from_answer_limits(LIMITS), NEVER_CANCELLED
    )
    assert recent_rows is not None
    (page,) = recent_rows.batches
    assert len(page) == 5
    assert "10.20.30.40" not in str(page)
    assert page == [
        row
        for part in engine.answer(without_recent_variant(page_question), LIMITS, NEVER_CANCELLED).batches
        for row in part
    ]


def test_a_truncated_answer_is_marked(engine: DuckDBEngine) -> None:
    fill_cache(engine)
    page_question = question(engine, PAGE_QUERY, limit=3)
    recent_rows = engine._query_runner._answer_from_recent_table(
        page_question, RunLimits.from_answer_limits(msgspec.structs.replace(LIMITS, max_rows=3)), NEVER_CANCELLED
    )
    assert recent_rows is not None
    assert (recent_rows.is_truncated, [row[0] for row in next(iter(recent_rows.batches))]) == (
        True,
        ["e00039", "e00038", "e00037"],
    )


def random_json(dice: Random, depth: int = 3) -> object:
    """Return random JSON. Its objects share keys, at which the values have different kinds."""
    kind = dice.randrange(9 if depth else 6)
    if kind < 6:
        return (None, True, dice.randrange(-9, 2**40), dice.random() * 1e3, f"t{dice.randrange(99)}", 'ü"\n')[kind]
    if kind == 6:
        return [random_json(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {name: random_json(dice, depth - 1) for name in dice.sample("aAbBcdé", dice.randrange(1, 6))}


def test_json_in_the_cache_equals_that_of_the_file(storage: Storage, session: Session) -> None:
    """Compare JSON from the cache with JSON from the file, where DuckDB shreds objects into columns."""
    store, dice = storage.get_store("s"), Random(7)
    storage.recent_cache.max_table_bytes = 10**8
    storage.recent_cache.fill_recent_table(store)
    texts = [json.dumps(random_json(dice), ensure_ascii=False) for _ in range(3000)]
    storage.append(
        [batch(*(Event(f"e{at}", NOW_US + at, metadata=text, extras=text) for at, text in enumerate(texts)))]
    )
    with session.cursor() as cursor:
        flush_one(store, cursor)
        session.checkpoint(cursor)
        select_sql = "SELECT id, metadata::JSON::VARCHAR, extras::JSON::VARCHAR FROM {} ORDER BY id"
        cached_json, file_json = (
            cursor.execute(select_sql.format(table)).fetchall()
            for table in (store.table_statements.recent_table, store.table_statements.table)
        )
    assert cached_json == file_json
    assert len(cached_json) == 3000


def test_late_events_with_old_timestamps_are_not_cached(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to_ten(monkeypatch)
    fill_cache(engine)
    engine.append([batch(replace_time(event(40), NOW_US - 10**12), event(41))])
    assert answer_from_recent(engine, "select id from `s` order by timestamp desc limit 11") is None
    assert answer_from_recent(engine, PAGE_QUERY) == answer_from_file(engine, PAGE_QUERY)


def test_an_event_with_unreadable_json_is_cached_as_it_is_stored(engine: DuckDBEngine) -> None:
    fill_cache(engine)
    deep = '{"a":' * 2000 + "1" + "}" * 2000
    engine.append([batch(Event("deep", NOW_US + 10**6, metadata=deep), event(41))])
    cached_answer = answer_from_recent(engine, PAGE_QUERY)
    flush_pending(engine)
    assert cached_answer == answer_from_recent(engine, PAGE_QUERY) == answer_from_file(engine, PAGE_QUERY)


def test_events_past_their_retention_are_not_answered(engine: DuckDBEngine) -> None:
    sql = "select id from `s` order by timestamp desc limit 30"
    fill_cache(engine)
    assert len(answer_from_recent(engine, sql) or ()) == 30
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        assert store.delete_before(NOW_US + 20, cursor) == 20
    assert answer_from_recent(engine, sql) is None
    assert len(rows(engine, sql)) == 20
    assert answer_from_recent(engine, PAGE_QUERY) == answer_from_file(engine, PAGE_QUERY)


# Tests of size and expiry


def limit_to_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_cache, "ROW_GROUP_ROWS", 10)


def replace_time(event: Event, timestamp_us: int) -> Event:
    return Event(event.id, timestamp_us, event.event_message, event.project, event.metadata, event.extras)


def cached_ids(engine: DuckDBEngine) -> list[str]:
    with engine._session.cursor() as cursor:
        result_rows = cursor.execute(f"SELECT id FROM {StreamTableStatements('s').recent_table} ORDER BY id").fetchall()
    return [str(row[0]) for row in result_rows]


def test_the_oldest_events_are_evicted_for_newer_ones(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to_ten(monkeypatch)
    fill_cache(engine)
    assert cached_ids(engine) == [f"e{number:05}" for number in range(31, 40)]
    for number in range(40, 60):
        engine.append([events(number)])
        assert answer_from_recent(engine, PAGE_QUERY) == answer_from_file(engine, PAGE_QUERY)
        assert len(cached_ids(engine)) <= 15
    assert cached_ids(engine)[-1] == "e00059"


def test_the_cache_is_dropped_under_load(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to_ten(monkeypatch)
    fill_cache(engine)
    engine.append([events(*range(40, 60))])
    flush_pending(engine)
    assert cached_ids(engine) == []
    assert answer_from_recent(engine, PAGE_QUERY) is None
    assert [row[0] for row in rows(engine, PAGE_QUERY)] == [f"e{number:05}" for number in range(59, 54, -1)]


def test_the_first_query_fills_the_cache(engine: DuckDBEngine) -> None:
    assert not engine._storage.get_store("s").recent_table.is_maintained
    expected = rows(engine, PAGE_QUERY)
    for _ in range(500):
        if engine._storage.get_store("s").recent_table.is_maintained:
            break
        threading.Event().wait(0.01)
    assert answer_from_recent(engine, PAGE_QUERY) == expected


def test_the_cache_expires_without_queries(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(engine, PAGE_QUERY)
    fill_cache(engine)
    monkeypatch.setattr(recent_cache, "_EXPIRY_AFTER_LAST_REQUEST_SECONDS", -1.0)
    engine._storage.recent_cache.drop_expired_tables()
    assert cached_ids(engine) == []
    assert answer_from_recent(engine, PAGE_QUERY) is None


def test_only_the_most_recently_queried_streams_are_cached(engine: DuckDBEngine) -> None:
    names = [f"t{number}" for number in range(MAX_RECENT_CACHE_STREAMS + 1)]
    engine.create_stream_tables(list(map(stream, names)))
    stores = [engine._storage.get_store(name) for name in names]
    cached_streams = RecentEventCache(engine._session, 10**6, lambda _: None)
    for store in stores:
        cached_streams.request_fill(store)
        cached_streams.fill_recent_table(store)
    cached_streams.drop_expired_tables()
    assert [store.recent_table.is_maintained for store in stores] == [False, *(True for _ in names[1:])]


# Tests of concurrent writes


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path, memory_bytes=256 * 10**6, threads=2)
    yield session
    session.close()


@pytest.fixture
def storage(session: Session, tmp_path: Path) -> Iterator[Storage]:
    """Yield a storage that flushes only when a test flushes."""
    limits = StorageLimits(FlushLimits(0, 2**30), max_recent_table_bytes=10**6)
    storage = Storage(session, tmp_path, limits, lambda: NOW_US, lambda _: None)
    storage.start()
    storage.create_stream_tables([stream("s")])
    yield storage
    storage.close()


def flush_one(store: StreamStore, cursor: duckdb.DuckDBPyConnection) -> None:
    chunk = store.take_chunk(whole_groups_only=False)
    assert chunk is not None
    store.flush(chunk, cursor)


@pytest.mark.parametrize("change", ["sealed", "dropped"])
def test_a_flush_or_deletion_during_a_fill_discards_the_fill(
    storage: Storage, session: Session, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    store = storage.get_store("s")
    storage.append([events(1)])
    create = StreamTableStatements.create_recent_table

    def change_during_fill(tables: StreamTableStatements) -> str:
        with session.cursor() as cursor:
            flush_one(store, cursor) if change == "sealed" else store.delete_before(NOW_US, cursor)
        return create(tables)

    monkeypatch.setattr(StreamTableStatements, "create_recent_table", change_during_fill)
    storage.recent_cache.fill_recent_table(store)
    assert not store.recent_table.is_maintained
    monkeypatch.setattr(StreamTableStatements, "create_recent_table", create)
    storage.recent_cache.fill_recent_table(store)
    assert store.recent_table.is_maintained


def test_without_a_cache_a_flush_does_not_wait_for_the_fill_lock(storage: Storage, session: Session) -> None:
    store = storage.get_store("s")
    storage.append([events(1)])
    with store.memtable_fill_lock, session.cursor() as cursor:
        flushing = threading.Thread(target=flush_one, args=(store, cursor))
        flushing.start()
        flushing.join(10)
        assert not flushing.is_alive()


def test_a_flush_of_events_that_are_not_cached_drops_the_cache(storage: Storage) -> None:
    """Drop the cache, because it would otherwise lack the flushed events."""
    store = storage.get_store("s")
    storage.recent_cache.fill_recent_table(store)
    storage.append([events(1)])
    store.recent_table.on_flush(store.next_event_number)
    assert not store.recent_table.is_maintained


def test_events_of_a_failed_flush_are_cached_once(storage: Storage, session: Session) -> None:
    """Return the first of two chunks to the pending events, as after a failed flush.

    The chunk is then behind a later chunk that is still being flushed.
    """
    store = storage.get_store("s")
    storage.recent_cache.fill_recent_table(store)
    for number in (1, 2):
        storage.append([events(number)])
        chunk = store.take_chunk(whole_groups_only=False)
        assert chunk is not None
        if number == 1:
            first = chunk
    store.return_chunk_to_pending(first)
    with session.cursor() as cursor:
        for _ in range(2):
            assert store.refresh_recent_table(cursor)
        assert cursor.execute(f"SELECT count(*) FROM {store.table_statements.recent_table}").fetchall() == [(2,)]


class ConcurrentWork:
    """Threads that flush, fill the recent cache, and check that it has every acknowledged event."""

    def __init__(self, storage: Storage, session: Session) -> None:
        self.acknowledged = 0
        self.checks: list[int] = []
        self.faults: list[str] = []
        self._storage, self._session = storage, session
        self._store = storage.get_store("s")
        self._stopping = threading.Event()
        tasks = (self._flush_chunk, self._flush_chunk, self._fill, self._check_cache)
        self._threads = [threading.Thread(target=self._repeat, args=(task,)) for task in tasks]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, task: Callable[[], None]) -> None:
        while not self._stopping.wait(0.001):
            task()

    def _flush_chunk(self) -> None:
        chunk = self._store.take_chunk(whole_groups_only=False)
        if chunk is not None:
            with self._session.cursor() as cursor:
                self._store.flush(chunk, cursor)

    def _fill(self) -> None:
        self._storage.recent_cache.fill_recent_table(self._store)

    def _check_cache(self) -> None:
        oldest_id = self.acknowledged
        with self._storage.open_recent_view("s") as cached_table:
            if cached_table is None:
                return
            cached_rows = [
                row[0]
                for row in cached_table.cursor.execute(
                    f"SELECT id FROM {self._store.table_statements.recent_table}"
                ).fetchall()
            ]
            if not cached_table.is_still_valid():
                return
        missing = {event(number).id for number in range(oldest_id + 1)} - set(cached_rows)
        self.checks.append(len(cached_rows))
        # If the cached table is empty, another thread dropped it during the check.
        if cached_rows and (missing or len(cached_rows) != len(set(cached_rows))):
            self.faults.append(f"{len(cached_rows)} of {oldest_id}: {sorted(missing)[:3]}")


def test_a_recreated_table_invalidates_open_views(storage: Storage) -> None:
    """Drop and fill the cache while a view of it is open.

    The new table has only the flushed events, and not yet the pending event.
    """
    store = storage.get_store("s")
    storage.recent_cache.fill_recent_table(store)
    storage.append([events(1)])
    with storage.open_recent_view("s") as cached_table:
        assert cached_table is not None
        assert cached_table.is_still_valid()
        in_another_thread(lambda: storage.recent_cache._drop_recent_table(store))
        assert cached_table.is_still_valid()
        in_another_thread(lambda: storage.recent_cache.fill_recent_table(store))
        assert cached_table.cursor.execute(f"SELECT id FROM {store.table_statements.recent_table}").fetchall() == []
        assert not cached_table.is_still_valid()


def test_every_acknowledged_event_is_in_the_cache(storage: Storage, session: Session) -> None:
    storage.append([events(0)])
    with ConcurrentWork(storage, session) as concurrent_work:
        for number in range(1, 600):
            storage.append([events(number)])
            concurrent_work.acknowledged = number
            if number % 100 == 0:
                storage.recent_cache._drop_recent_table(storage.get_store("s"))
    assert concurrent_work.faults == []
    assert len(concurrent_work.checks) > 3
