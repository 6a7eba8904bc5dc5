"""A sub-query that only selects columns and filters is merged into the query that reads it, with the same rows."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from cordwood.engines.duckdb import target
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from tests.contract.engine_asking import NOW_US, rows, stream
from tests.plans import flushed_sql

LEARNT_SHAPE: ValueKindsByPath = {
    ("metadata",): frozenset({ValueKind.OBJECT}),
    ("metadata", "status"): frozenset({ValueKind.NUMBER}),
    ("metadata", "tags"): frozenset({ValueKind.ARRAY}),
}
SUB_QUERY = (
    "with e as (select id as name, timestamp, project as event_message, metadata from `s` where project like 'p%')"
)

FLATTENED_QUERIES = [
    f"{SUB_QUERY} select name, event_message from e where e.event_message = 'p1' order by name",
    f"{SUB_QUERY} select event_message as name, count(*) as n from e group by name order by name",
    f"{SUB_QUERY} select e.metadata.status as project, count(*) as n from e group by project order by n desc, project",
    f"{SUB_QUERY} select upper(name) as id from e order by id desc limit 4",
    f"{SUB_QUERY} select name, row_number() over (order by name) as n from e order by n",
    f"{SUB_QUERY} select distinct event_message from e order by 1",
    f"{SUB_QUERY} select count(*) as n from e where name > 'e010' or e.metadata.status = 200",
    f"{SUB_QUERY}, f as (select name as id, event_message as name from e where name > 'e010') select id, name from f order by id",
    "select t.i from (select id as i from `s` where project = 'p0' or project = 'p2') as t where t.i > 'e005' order by t.i",
    "select t.id from (select t.id, t.project from `s` as t) as t where t.project = 'p1' order by t.id",
]

OTHER_QUERIES = [
    f"{SUB_QUERY} select a.name from e as a join e as b on a.name = b.name order by a.name",
    f"{SUB_QUERY} select name from e where name in (select max(name) from e) order by name",
    f"{SUB_QUERY} select name, tag from e cross join unnest(e.metadata.tags) as tag order by name",
    "with e as (select upper(id) as name from `s`) select name from e where name > 'E010' order by name",
    "with e as (select distinct project from `s`) select project from e order by project",
    "with e as (select id from `s` order by id limit 5) select id from e order by id desc",
    "with e as (select project, count(*) as n from `s` group by project) select n from e where project = 'p1'",
    "select id, a from (select id, project from `s`) pivot(count(*) for project in ('p1' as a)) order by id",
    "with e as (select id from `s` union all select id from `s`) select count(*) as n from e",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(tmp_path_factory.mktemp("flat") / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([ReceivedEventBatch("s", [event(number) for number in range(30)], NOW_US, LEARNT_SHAPE)])
    yield engine
    engine.close()


def event(number: int) -> Event:
    metadata = f'{{"status":{200 + number % 3 * 100},"tags":["a","b"]}}' if number % 5 else None
    return Event(f"e{number:03}", NOW_US + number, f"m{number}", f"p{number % 3}", metadata)


def select_count(engine: DuckDBEngine, sql: str) -> int:
    """Return the number of SELECTs, without the one that replaces the stream."""
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1", max_rows=100))
    at_rest = flushed_sql(compile_saved_query(program, engine.compile_target, engine.shapes_by_stream()))
    return str(at_rest).count("SELECT") - 1


@pytest.mark.parametrize("sql", [*FLATTENED_QUERIES, *OTHER_QUERIES])
def test_flattening_does_not_change_the_rows(engine: DuckDBEngine, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result_rows = rows(engine, sql)
    monkeypatch.setattr(target, "flatten_sub_queries", lambda *_: None)
    assert rows(engine, sql) == result_rows
    assert result_rows


@pytest.mark.parametrize("sql", FLATTENED_QUERIES)
def test_projections_and_filters_become_one_select(engine: DuckDBEngine, sql: str) -> None:
    assert select_count(engine, sql) == 1


@pytest.mark.parametrize("sql", OTHER_QUERIES)
def test_other_sub_queries_are_not_flattened(engine: DuckDBEngine, sql: str) -> None:
    assert select_count(engine, sql) > 1


def test_a_scan_names_only_the_columns_that_are_read(engine: DuckDBEngine) -> None:
    program = parse_and_check_endpoint(
        Endpoint("test", UUID(int=1), "select count(*) as n from `s` where project = 'p1'", "1")
    )
    at_rest = str(flushed_sql(compile_saved_query(program, engine.compile_target, engine.shapes_by_stream())))
    assert '(SELECT "project" FROM' in at_rest
