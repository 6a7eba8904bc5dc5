"""A path read through sub-queries is read at the stream's own tables, and means the same there."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from cordwood.model.endpoint import Endpoint
from cordwood.model.event import Batch, Event
from cordwood.model.shape import Kinds, ValueKind
from cordwood.sql.compile import compile_saved, read_endpoint
from tests.contract.engine_asking import NOW_US, rows, stream

OBJECT, TEXT, NUMBER = (frozenset({kind}) for kind in (ValueKind.OBJECT, ValueKind.TEXT, ValueKind.NUMBER))
LEARNT: Kinds = {
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
    engine.prepare([stream("s")])
    engine.append([Batch("s", EVENTS, NOW_US, LEARNT)])
    yield engine
    engine.close()


def printed(engine: Engine, sql: str) -> str:
    program = read_endpoint(Endpoint("test", UUID(int=1), sql, "1"))
    return compile_saved(program, engine.target, engine.shapes()).sql


THROUGH = "with e as (select id, timestamp, metadata, app from `s`), f as (select e.id, e.metadata as m, app from e)"

TWICE = "with e as (select id, metadata from `s` union all select id, metadata from `s`)"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"{THROUGH} select id from f where f.m.status >= 500 order by id", ["b", "e"]),
        (
            f"{THROUGH} select id from f cross join unnest(m) as m cross join unnest(m.request) as r order by id",
            ["a", "e"],
        ),
        (f"{THROUGH} select id from f cross join unnest(m) as m order by id", ["a", "b", "c", "e"]),
        (f"{THROUGH} select f.m.request.path from f where f.m.request.path is not null", ["/a"]),
        (f"{THROUGH} select f.id from f where f.app = 'x'", ["a"]),
        ("select x.id from (select id, metadata from `s`) as x where x.metadata.status = 200", ["a"]),
        ("select t.id from `s` as t where t.metadata.request.path like '/%'", ["a"]),
        ("with e as (select distinct id, app from `s`) select id from e where e.app = 'x'", ["a"]),
        (f"{TWICE} select id from e where e.metadata.status = 200", ["a", "a"]),
        ("select id from `s` as t where exists (select 1 from unnest([1]) as n where t.metadata.status = 200)", ["a"]),
    ],
)
def test_the_rows_are_those_of_reading_it_in_place(engine: Engine, sql: str, expected: list[str]) -> None:
    assert [row[0] for row in rows(engine, sql)] == expected


def test_keys_that_differ_in_case_alone_are_two_keys(engine: Engine) -> None:
    learnt: Kinds = {("metadata",): OBJECT, ("metadata", "Host"): TEXT, ("metadata", "host"): TEXT}
    engine.prepare([stream("s"), stream("cases")])
    engine.append([Batch("cases", [Event("a", NOW_US, metadata='{"Host":"A","host":"b"}')], NOW_US, learnt)])
    sql = "with e as (select metadata as m from `cases`) select cast(m.Host as string) as x, cast(m.host as string) as y from e"
    assert rows(engine, sql) == [("A", "b")]


def test_paths_stand_beside_the_tables(engine: Engine) -> None:
    sql = printed(engine, f"{THROUGH} select count(*) from f where f.m.request.path = '/a' and f.m.status > 1")
    for table in ('store.main."s"', 'memory.memtable."s"'):
        assert table in sql
    assert sql.count('"metadata"."request"."path"::VARCHAR') == 2
    assert sql.count('"metadata"."status"::VARCHAR') == 2


def test_whether_a_record_is_there_is_asked_of_the_objects_paths(engine: Engine) -> None:
    sql = printed(
        engine, f"{THROUGH} select count(*) from f cross join unnest(m) as m cross join unnest(m.request) as r"
    )
    assert "variant_typeof" not in sql
    # Of events in the file, and of those in memory.
    assert sql.count('contains("object_paths"') == 2


KNOWN_BY_TEXT = '"metadata"."request"."path"::VARCHAR IS NOT NULL OR contains("object_paths"'
RECORDS = "from `s` cross join unnest(metadata) as m cross join unnest(m.request) as r"


def test_where_all_events_are_put_into_groups_a_text_of_the_record_tells_that_it_is_there(engine: Engine) -> None:
    assert KNOWN_BY_TEXT in printed(engine, f"select r.path, count(*) as n {RECORDS} group by r.path")
    of_a_sub_query = (
        f"with e as (select lower(r.path) as path {RECORDS}) select path, count(*) as n from e group by path limit 5"
    )
    assert KNOWN_BY_TEXT in printed(engine, of_a_sub_query)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(f"select r.path {RECORDS} order by timestamp desc limit 5", id="the newest are looked for"),
        pytest.param(
            f"with e as (select r.path {RECORDS} limit 5) select path, count(*) from e group by path", id="some"
        ),
        pytest.param(f"select count(*) {RECORDS} group by m.status", id="no text of the record is read"),
    ],
)
def test_else_its_path_is_asked_for_while_the_table_is_read(engine: Engine, sql: str) -> None:
    asked = printed(engine, sql)
    assert 'contains("object_paths"' in asked
    assert "IS NOT NULL OR" not in asked


IN_PARENTHESES = (
    "with e as (select id, metadata from `s`) select o.id, cast(r.path as string) as path, o.id = e.id as same"
    " from e left join (`s` as o cross join unnest(o.metadata) as m cross join unnest(m.request) as r) on o.id = e.id"
    " order by e.id"
)


def test_a_joined_relation_in_parentheses_is_that_relation(engine: Engine) -> None:
    """As the unified log page joins requests to what they logged."""
    assert [row[:2] for row in rows(engine, IN_PARENTHESES)] == [
        ("a", "/a"),
        (None, None),
        (None, None),
        (None, None),
        ("e", None),
    ]
    sql = printed(engine, IN_PARENTHESES)
    assert "variant_typeof" not in sql
    assert sql.count('"metadata"."request"."path"::VARCHAR') == 2


def test_of_joins_in_parentheses_within_others_too(engine: Engine) -> None:
    sql = (
        "select a.id, cast(c.metadata.request.path as string) as path from `s` as a"
        " join ((`s` as b join (`s` as c join `s` as d on d.id = c.id) on c.id = b.id)) on b.id = a.id order by a.id limit 1"
    )
    assert rows(engine, sql) == [("a", "/a")]
    assert printed(engine, sql).count('"metadata"."request"."path"::VARCHAR') == 2


def test_as_text_what_was_never_an_object_is_read_in_place_until_it_is_one(engine: Engine) -> None:
    engine.prepare([stream("s"), stream("texts")])
    number: Kinds = {("metadata",): OBJECT, ("metadata", "code"): NUMBER}
    engine.append([Batch("texts", [Event("a", NOW_US, metadata='{"code":7}')], NOW_US, number)])
    sql = "select cast(t.metadata.code as string) as code from `texts` as t order by t.id"
    assert "variant_typeof" not in printed(engine, sql)
    assert rows(engine, sql) == [("7",)]

    object_: Kinds = {("metadata", "code"): OBJECT | NUMBER, ("metadata", "code", "of"): TEXT}
    engine.append([Batch("texts", [Event("b", NOW_US, metadata='{"code":{"of":"x"}}')], NOW_US, object_)])
    assert "variant_typeof" in printed(engine, sql)
    assert rows(engine, sql) == [("7",), ('{"of":"x"}',)]
