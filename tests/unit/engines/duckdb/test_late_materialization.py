"""Queries for the first few rows limit each table separately and read wide columns last.

They return the same rows as a query that reads all columns at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query import scan_planning
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.stages import Statement
from tests.contract.engine_asking import NOW_US, rows, stream
from tests.plans import flushed_sql
from tests.unit.engines.duckdb.flushing import flush_pending

OBJECT, NUMBER = (frozenset({kind}) for kind in (ValueKind.OBJECT, ValueKind.NUMBER))
LEARNT_SHAPE: ValueKindsByPath = {
    ("metadata",): OBJECT,
    ("metadata", "status"): NUMBER,
    ("metadata", "tags"): frozenset({ValueKind.ARRAY}),
    ("metadata", "user"): OBJECT,
    ("metadata", "user", "Name"): frozenset({ValueKind.TEXT}),
}
PER_TABLE_LIMIT_MARK = '"first of each"'
LATE_READ_MARK = '"newest events" AS MATERIALIZED'


def event(number: int) -> Event:
    metadata = (
        f'{{"status":{200 + number % 7 * 50},"tags":["a{number}","b"],"user":{{"Name":"n{number}"}}}}'
        if number % 11
        else None
    )
    message = None if number % 5 == 0 else f"m{number * 7919 % 100}"
    return Event(f"e{number:03}", NOW_US + number // 3, message, f"p{number % 3}", metadata)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    """Yield an engine with 300 flushed and 100 pending events."""
    with open_engine(tmp_path_factory.mktemp("late")) as engine:
        flush_pending(engine)
        engine.append([ReceivedEventBatch("s", [event(number) for number in range(300, 400)], NOW_US)])
        yield engine


@pytest.fixture(scope="module")
def flushed_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    """Yield an engine with the same 400 events, all flushed."""
    with open_engine(tmp_path_factory.mktemp("rest")) as engine:
        engine.append([ReceivedEventBatch("s", [event(number) for number in range(300, 400)], NOW_US)])
        flush_pending(engine)
        yield engine


@contextmanager
def open_engine(folder: Path) -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(folder / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([ReceivedEventBatch("s", [event(number) for number in range(300)], NOW_US, LEARNT_SHAPE)])
    yield engine
    engine.close()


def compile_query(engine: DuckDBEngine, sql: str) -> Statement:
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", max_rows=5000))
    return compile_saved_query(program, engine.compile_target, engine.shapes_by_stream())


def printed_sql(engine: DuckDBEngine, sql: str) -> str:
    return compile_query(engine, sql).sql


SUB_QUERIES = "with e as (select id, timestamp, event_message, metadata from `s` where project = 'p1')"

UNION_SUB_QUERY = "with e as (select id, metadata from `s` union all select id, metadata from `s`)"

LATE_QUERIES = [
    "select id, timestamp from `s` order by timestamp desc, id limit 10",
    "select id, metadata from `s` order by timestamp desc, id limit 10",
    "select id, metadata from `s` order by timestamp, id limit 10",
    "select id, metadata from `s` order by timestamp desc, id limit 7 offset 60",
    "select id, metadata from `s` order by timestamp desc, id limit 1000",
    f"{SUB_QUERIES} select id, timestamp, metadata from e order by timestamp desc, id limit 50",
    f"{SUB_QUERIES} select id, metadata from e order by event_message, id limit 60",
    f"{SUB_QUERIES} select id, metadata from e order by event_message desc nulls first, id limit 60",
    f"{SUB_QUERIES} select id, metadata from e where e.metadata.status >= 400 order by 1 desc limit 20",
    f"{SUB_QUERIES}, f as (select id as i, metadata as whole from e) select i, whole from f order by i desc limit 5",
    "select t.id, t.metadata from (select id, metadata from `s`) as t order by t.id limit 5",
    "select t.id, t.metadata, tag from `s` as t cross join unnest(t.metadata.tags) as tag order by t.id, tag limit 9",
    "select t.id, t.metadata, n from `s` as t join unnest(['e001', 'e350']) as n on n = t.id order by t.id limit 9",
    "select id, metadata from `s` where id in (select x from unnest(['e001', 'e399']) as x) order by id limit 9",
    "select id, metadata from `s` order by upper(event_message) desc, id limit 9",
    "select id, metadata from `s` order by length(event_message) nulls last, timestamp desc, id limit 9 offset 2",
    "select id, id as twice, metadata from `s` order by twice desc limit 4",
    "select id, t.metadata.tags from `s` as t order by timestamp desc, id limit 10",
    "select t.metadata.user, t.metadata from `s` as t where t.metadata.status >= 400 order by timestamp, id limit 20",
    f"{SUB_QUERIES} select e.metadata.user, e.metadata.tags, e.metadata.user.Name from e order by id desc limit 20",
    "select m.user from `s` as t cross join unnest(t.metadata) as m order by t.id limit 30",
    "select t.metadata.user, u.Name from `s` as t cross join unnest(t.metadata.user) as u order by t.id limit 30",
    "select id, metadata, case when id = 'e399' then 'last' end as place from `s` order by id desc limit 3",
]

OTHER_QUERIES = [
    "select id, timestamp from `s` where timestamp is not null order by timestamp desc, id limit 2500",
    "select id, metadata from `s` order by timestamp desc, id limit 4000",
    "select id, metadata, row_number() over (order by id) as n from `s` order by id desc limit 3",
    "select count(*) as n from `s` order by 1 limit 3",
    "select distinct id, to_json_string(metadata) as m from `s` order by id limit 3",
    f"{SUB_QUERIES} select a.id, a.metadata from e as a join e as b on a.id = b.id order by a.id limit 5",
    f"{SUB_QUERIES} select id, metadata, (select count(*) from e) as n from e order by id limit 5",
    "select i, b.metadata from unnest(['x', 'e001']) as i left join `s` as b on b.id = i order by i limit 5",
    "select id, metadata from (select id, metadata from `s` order by id limit 9) as t order by id desc limit 3",
    f"{UNION_SUB_QUERY} select id, metadata from e order by id limit 5",
]


@pytest.mark.parametrize("sql", [*LATE_QUERIES, *OTHER_QUERIES])
def test_the_rows_are_those_of_a_plan_without_late_reads(
    engine: DuckDBEngine, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result_rows = rows(engine, sql)
    monkeypatch.setattr(scan_planning, "_selects_first_rows", lambda *_: False)
    assert PER_TABLE_LIMIT_MARK not in printed_sql(engine, sql)
    assert rows(engine, sql) == result_rows
    assert result_rows


@pytest.mark.parametrize("sql", LATE_QUERIES)
def test_the_limit_is_applied_to_each_table(engine: DuckDBEngine, sql: str) -> None:
    assert PER_TABLE_LIMIT_MARK in printed_sql(engine, sql)


@pytest.mark.parametrize("sql", OTHER_QUERIES)
def test_other_queries_do_not_limit_each_table(engine: DuckDBEngine, sql: str) -> None:
    assert PER_TABLE_LIMIT_MARK not in printed_sql(engine, sql)


@pytest.mark.parametrize("sql", [*LATE_QUERIES, *OTHER_QUERIES])
def test_the_rows_are_the_same_at_rest(engine: DuckDBEngine, flushed_engine: DuckDBEngine, sql: str) -> None:
    assert rows(flushed_engine, sql) == rows(engine, sql)
    assert "memory.memtable" not in str(flushed_sql(compile_query(flushed_engine, sql)))


def test_each_table_is_limited_before_their_union_is(engine: DuckDBEngine) -> None:
    sql = printed_sql(engine, "select id, metadata from `s` order by timestamp desc limit 7 offset 3")
    in_file, _, in_memory = sql.partition(" UNION ALL ")
    # The file's table is limited twice: in the scan that finds row ids, and in the scan that reads the rows.
    assert (in_file.count("LIMIT 10"), in_memory.count("LIMIT 10")) == (2, 1)
    assert "store.main" not in in_memory
    assert in_memory.endswith("LIMIT 7 OFFSET 3")


def test_wide_columns_of_flushed_events_are_read_by_a_semi_join_of_row_ids(flushed_engine: DuckDBEngine) -> None:
    statement = compile_query(flushed_engine, "select id, metadata from `s` order by timestamp desc limit 700")
    assert LATE_READ_MARK in str(flushed_sql(statement))
    with flushed_engine._storage.open_query_view(("s",)) as (cursor, is_at_rest):
        assert is_at_rest
        ((_, plan),) = cursor.execute(f"explain {flushed_sql(statement)}").fetchall()
    assert "SEMI" in plan


@pytest.mark.parametrize(
    "sql",
    [
        "select id, event_message from `s` order by timestamp desc limit 7",
        "select id, metadata from `s` where regexp_contains(event_message, '9$') order by id limit 7",
    ],
)
def test_messages_are_read_late_if_all_events_are_scanned(flushed_engine: DuckDBEngine, sql: str) -> None:
    assert LATE_READ_MARK in str(flushed_sql(compile_query(flushed_engine, sql)))


@pytest.mark.parametrize(
    "sql",
    [
        "select id, event_message from `s` where project = 'p1' order by timestamp desc limit 7",
        "select id, event_message from `s` where event_message like '%9' order by timestamp desc limit 7",
        "select id, event_message from `s` where regexp_contains(event_message, '9$') order by id limit 7",
        "select id, timestamp from `s` order by timestamp desc limit 7",
    ],
)
def test_messages_are_not_read_late_if_few_events_match_or_a_filter_reads_them(
    flushed_engine: DuckDBEngine, sql: str
) -> None:
    assert LATE_READ_MARK not in str(flushed_sql(compile_query(flushed_engine, sql)))


def test_filters_are_not_repeated_if_each_event_gives_one_row(flushed_engine: DuckDBEngine) -> None:
    sql = f"{SUB_QUERIES} select id, metadata from e where regexp_contains(event_message, '9$') order by timestamp desc limit 7"
    sql_of_flushed = str(flushed_sql(compile_query(flushed_engine, sql)))
    assert LATE_READ_MARK in sql_of_flushed
    assert (sql_of_flushed.count("'p1'"), sql_of_flushed.count("'9$'")) == (1, 1)


def test_filters_are_repeated_if_a_join_gives_several_rows_per_event(flushed_engine: DuckDBEngine) -> None:
    sql = (
        f"{SUB_QUERIES} select e.id, e.metadata, tag from e cross join unnest(e.metadata.tags) as tag"
        " where tag like 'b%' order by e.id limit 9"
    )
    finding, _, reading = str(flushed_sql(compile_query(flushed_engine, sql))).partition(' AS "found")')
    assert ("'b%'" in finding, "'b%'" in reading) == (True, True)
    assert len(rows(flushed_engine, sql)) == 9


def test_at_rest_wide_columns_beside_a_join_are_read_late(flushed_engine: DuckDBEngine) -> None:
    sql = "select t.id, t.metadata, tag from `s` as t cross join unnest(t.metadata.tags) as tag order by t.id limit 9"
    assert LATE_READ_MARK in str(flushed_sql(compile_query(flushed_engine, sql)))


def test_the_search_for_rows_names_no_column_that_is_only_answered(flushed_engine: DuckDBEngine) -> None:
    sql = f"{SUB_QUERIES} select id, metadata from e order by timestamp desc limit 7"
    finding, _, _ = str(flushed_sql(compile_query(flushed_engine, sql))).partition("LIMIT 7")
    assert LATE_READ_MARK in finding
    assert '"timestamp"' in finding
    assert '"metadata"' not in finding


@pytest.mark.parametrize(
    ("sql", "wide_object"),
    [
        ("select id, t.metadata.user from `s` as t order by timestamp desc limit 7", '"metadata"."user"'),
        ("select t.metadata.tags from `s` as t where t.metadata.status > 0 order by id limit 7", '"metadata"."tags"'),
    ],
)
def test_a_nested_object_is_extracted_from_the_found_events(
    flushed_engine: DuckDBEngine, sql: str, wide_object: str
) -> None:
    """Extract the object only for the found events. The engine would otherwise assemble it for every event that it
    scans.
    """
    finding, _, reading = str(flushed_sql(compile_query(flushed_engine, sql))).partition("LIMIT 7")
    assert LATE_READ_MARK in finding
    assert wide_object not in finding
    assert reading.index(wide_object) < reading.index("SELECT", reading.index(wide_object))


def test_a_scalar_path_is_read_as_a_column_of_the_scan(flushed_engine: DuckDBEngine) -> None:
    sql = "select id, t.metadata.status from `s` as t where t.project = 'p1' order by timestamp desc limit 7"
    assert LATE_READ_MARK not in str(flushed_sql(compile_query(flushed_engine, sql)))


def test_whole_events_become_text_before_they_are_sorted(flushed_engine: DuckDBEngine) -> None:
    sql = f"{SUB_QUERIES} select id, metadata from e order by timestamp desc limit 7"
    assert '"metadata"::JSON' in str(flushed_sql(compile_query(flushed_engine, sql)))


@pytest.mark.parametrize(
    "sql",
    [
        "select id, metadata, to_json_string(metadata) as text from `s` order by id desc limit 7",
        "select id, metadata from `s` where metadata is not null order by to_json_string(metadata), id limit 7",
    ],
)
def test_whole_events_that_the_query_uses_otherwise_are_not_made_text(
    engine: DuckDBEngine, flushed_engine: DuckDBEngine, sql: str
) -> None:
    assert '"metadata"::JSON AS' not in str(flushed_sql(compile_query(flushed_engine, sql)))
    assert rows(flushed_engine, sql) == rows(engine, sql)
