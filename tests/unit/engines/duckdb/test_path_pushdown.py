"""Paths that are read through sub-queries are pushed down to the scans of the stream's tables, with the same rows."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from tests.contract.engine_asking import NOW_US, rows, stream

OBJECT, TEXT, NUMBER = (frozenset({kind}) for kind in (ValueKind.OBJECT, ValueKind.TEXT, ValueKind.NUMBER))
LEARNT_SHAPE: ValueKindsByPath = {
    ("metadata",): OBJECT,
    ("metadata", "request"): OBJECT,
    ("metadata", "request", "path"): TEXT,
    ("metadata", "status"): NUMBER,
    ("app",): TEXT,
}
EVENTS = [
    Event("a", NOW_US, metadata='{"request":{"path":"/a"},"status":200}', extras='{"app":"x"}'),
    Event("b", NOW_US + 1, metadata='{"status":500}'),
    Event("c", NOW_US + 2, metadata='{"request":null}'),
    Event("d", NOW_US + 3),
    Event("e", NOW_US + 4, metadata='{"request":{},"status":"503"}'),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("reach")
    engine = DuckDBEngine(folder / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([ReceivedEventBatch("s", EVENTS, NOW_US, LEARNT_SHAPE)])
    yield engine
    engine.close()


def printed_sql(engine: Engine, sql: str) -> str:
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1"))
    return compile_saved_query(program, engine.compile_target, engine.shapes_by_stream()).sql


SUB_QUERIES = (
    "with e as (select id, timestamp, metadata, app from `s`), f as (select e.id, e.metadata as m, app from e)"
)

UNION_SUB_QUERY = "with e as (select id, metadata from `s` union all select id, metadata from `s`)"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"{SUB_QUERIES} select id from f where f.m.status >= 500 order by id", ["b", "e"]),
        (
            f"{SUB_QUERIES} select id from f cross join unnest(m) as m cross join unnest(m.request) as r order by id",
            ["a", "e"],
        ),
        (f"{SUB_QUERIES} select id from f cross join unnest(m) as m order by id", ["a", "b", "c", "e"]),
        (f"{SUB_QUERIES} select f.m.request.path from f where f.m.request.path is not null", ["/a"]),
        (f"{SUB_QUERIES} select f.id from f where f.app = 'x'", ["a"]),
        ("select x.id from (select id, metadata from `s`) as x where x.metadata.status = 200", ["a"]),
        ("select t.id from `s` as t where t.metadata.request.path like '/%'", ["a"]),
        ("with e as (select distinct id, app from `s`) select id from e where e.app = 'x'", ["a"]),
        (f"{UNION_SUB_QUERY} select id from e where e.metadata.status = 200", ["a", "a"]),
        ("select id from `s` as t where exists (select 1 from unnest([1]) as n where t.metadata.status = 200)", ["a"]),
    ],
)
def test_queries_with_pushed_down_paths_give_the_expected_rows(engine: Engine, sql: str, expected: list[str]) -> None:
    assert [row[0] for row in rows(engine, sql)] == expected


def test_keys_that_differ_only_in_case_are_distinct(engine: Engine) -> None:
    learnt: ValueKindsByPath = {("metadata",): OBJECT, ("metadata", "Host"): TEXT, ("metadata", "host"): TEXT}
    engine.create_stream_tables([stream("s"), stream("cases")])
    engine.append(
        [ReceivedEventBatch("cases", [Event("a", NOW_US, metadata='{"Host":"A","host":"b"}')], NOW_US, learnt)]
    )
    sql = "with e as (select metadata as m from `cases`) select cast(m.Host as string) as x, cast(m.host as string) as y from e"
    assert rows(engine, sql) == [("A", "b")]


def test_paths_are_columns_of_the_scans(engine: Engine) -> None:
    sql = printed_sql(engine, f"{SUB_QUERIES} select count(*) from f where f.m.request.path = '/a' and f.m.status > 1")
    for table in ('store.main."s"', 'memory.memtable."s"'):
        assert table in sql
    assert sql.count('"metadata"."request"."path"::VARCHAR') == 2
    assert sql.count('"metadata"."status"::VARCHAR') == 2


def test_the_presence_of_a_record_is_read_from_the_object_paths(engine: Engine) -> None:
    sql = printed_sql(
        engine, f"{SUB_QUERIES} select count(*) from f cross join unnest(m) as m cross join unnest(m.request) as r"
    )
    assert "variant_typeof" not in sql
    # The condition is in the scans of both tables: the table in the file, and the memtable.
    assert sql.count('contains("object_paths"') == 2


PRESENCE_BY_TEXT = '"metadata"."request"."path"::VARCHAR IS NOT NULL OR contains("object_paths"'
FROM_UNNESTED_REQUESTS = "from `s` cross join unnest(metadata) as m cross join unnest(m.request) as r"


def test_in_an_aggregation_a_text_of_the_record_proves_its_presence(engine: Engine) -> None:
    assert PRESENCE_BY_TEXT in printed_sql(
        engine, f"select r.path, count(*) as n {FROM_UNNESTED_REQUESTS} group by r.path"
    )
    sub_query_sql = f"with e as (select lower(r.path) as path {FROM_UNNESTED_REQUESTS}) select path, count(*) as n from e group by path limit 5"
    assert PRESENCE_BY_TEXT in printed_sql(engine, sub_query_sql)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(
            f"select r.path {FROM_UNNESTED_REQUESTS} order by timestamp desc limit 5", id="the newest are looked for"
        ),
        pytest.param(
            f"with e as (select r.path {FROM_UNNESTED_REQUESTS} limit 5) select path, count(*) from e group by path",
            id="some",
        ),
        pytest.param(f"select count(*) {FROM_UNNESTED_REQUESTS} group by m.status", id="no text of the record is read"),
    ],
)
def test_other_queries_read_only_the_object_paths(engine: Engine, sql: str) -> None:
    printed = printed_sql(engine, sql)
    assert 'contains("object_paths"' in printed
    assert "IS NOT NULL OR" not in printed


PARENTHESIZED_JOIN = (
    "with e as (select id, metadata from `s`) select o.id, cast(r.path as string) as path, o.id = e.id as same"
    " from e left join (`s` as o cross join unnest(o.metadata) as m cross join unnest(m.request) as r) on o.id = e.id"
    " order by e.id"
)


def test_paths_are_pushed_into_a_parenthesized_join(engine: Engine) -> None:
    """Read paths in a parenthesized join, as the unified log page does, which joins requests with their log lines."""
    assert [row[:2] for row in rows(engine, PARENTHESIZED_JOIN)] == [
        ("a", "/a"),
        (None, None),
        (None, None),
        (None, None),
        ("e", None),
    ]
    sql = printed_sql(engine, PARENTHESIZED_JOIN)
    assert "variant_typeof" not in sql
    assert sql.count('"metadata"."request"."path"::VARCHAR') == 2


def test_paths_are_pushed_into_nested_parenthesized_joins(engine: Engine) -> None:
    sql = (
        "select a.id, cast(c.metadata.request.path as string) as path from `s` as a"
        " join ((`s` as b join (`s` as c join `s` as d on d.id = c.id) on c.id = b.id)) on b.id = a.id order by a.id limit 1"
    )
    assert rows(engine, sql) == [("a", "/a")]
    assert printed_sql(engine, sql).count('"metadata"."request"."path"::VARCHAR') == 2


def test_a_cast_to_text_checks_the_type_only_once_the_path_has_held_an_object(engine: Engine) -> None:
    engine.create_stream_tables([stream("s"), stream("texts")])
    number: ValueKindsByPath = {("metadata",): OBJECT, ("metadata", "code"): NUMBER}
    engine.append([ReceivedEventBatch("texts", [Event("a", NOW_US, metadata='{"code":7}')], NOW_US, number)])
    sql = "select cast(t.metadata.code as string) as code from `texts` as t order by t.id"
    assert "variant_typeof" not in printed_sql(engine, sql)
    assert rows(engine, sql) == [("7",)]

    object_: ValueKindsByPath = {("metadata", "code"): OBJECT | NUMBER, ("metadata", "code", "of"): TEXT}
    engine.append([ReceivedEventBatch("texts", [Event("b", NOW_US, metadata='{"code":{"of":"x"}}')], NOW_US, object_)])
    assert "variant_typeof" in printed_sql(engine, sql)
    assert rows(engine, sql) == [("7",), ('{"of":"x"}',)]
