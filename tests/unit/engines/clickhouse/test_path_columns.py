"""Paths are read from their columns, even through sub-queries, with the same rows as from the JSON text."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import Engine
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.datatype import Row
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from tests.chdb_databases import fresh_database
from tests.contract.engine_asking import NOW_US, rows, stream

EVENTS = {
    "a": {"request": {"path": "/a", "list": ["x"], "x-y": "dash", "h.i": "dot", "h": {"i": "inner"}}, "status": 200},
    "b": {"status": 500, "on": True, "mixed": 1, "day": "2024-01-01", "number": "12", "truth": "true"},
    "c": {"request": None, "mixed": "one", "status": 1.5, "day": "2024-01-01 00:00:00", "on": False},
    "e": {"request": {}, "mixed": True, "status": -7e300, "big": 9007199254740993, "empty": "", "nothing": "null"},
    "f": {"Host": "A", "host": "b", "": "no name", "two words": "w", "é": "accent", "quote": 'a"b\\c/d\n', "status": 0},
    "g": {"mixed": {"a": 1}, "status": 404, "day": "not a day"},
}
EVENT_WITH_DUPLICATE_KEYS = '{"status": 1, "status": 2, "request": {"path": "first"}, "request": {"path": "second"}}'
ODD_REQUEST_VALUES = {
    "h": "[1, 2]",
    "i": '"text"',
    "j": "17",
    "k": '{"request": 5}',
    "l": '{"request": {"path": null}}',
}
SUB_QUERIES = (
    "with e as (select id, timestamp, metadata, app from `s`), f as (select e.id, e.metadata as m, e.app from e)"
)


def store_events(engine: Engine) -> Engine:
    events = [Event(id_, NOW_US, "m", metadata=json.dumps(value)) for id_, value in EVENTS.items()]
    events += [Event(id_, NOW_US, "m", metadata=text) for id_, text in ODD_REQUEST_VALUES.items()]
    events += [Event("d", NOW_US), Event("m", NOW_US, extras='{"app": "x", "deep": {"er": 3}}')]
    engine.create_stream_tables([stream("s"), stream("t")])
    reader = ShapeInferrer(engine.shapes_by_stream)
    for name, some in (("s", events), ("t", [event for event in events if event.id in EVENTS])):
        events_with_paths, learnt = reader.infer_stream_shape(name, some)
        engine.append([ReceivedEventBatch(name, events_with_paths, NOW_US, learnt)])
    return engine


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[Engine]:
    opened = store_events(ClickHouseEngine(fresh_database(), ClickHouseOptions(has_ttl=False)))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("paths")
    opened = store_events(DuckDBEngine(folder, DuckDBTarget(), clock_us=lambda: NOW_US))
    yield opened
    opened.close()


def printed_sql(engine: Engine, sql: str) -> str:
    program = parse_and_check_endpoint(Endpoint("test", UUID(int=1), sql, "1"))
    return compile_saved_query(program, engine.compile_target, engine.shapes_by_stream()).sql


QUERIES_OF_PATH_COLUMNS = [
    "select id, t.metadata.request.path p from `t` t order by id",
    f"{SUB_QUERIES} select id, f.app from f where f.app = 'x'",
    "select t.metadata.day d, count(*) n from `t` t group by d order by d, n",
    "select t.metadata.day d, length(t.metadata.day) l, count(*) n from `t` t group by d, l order by d",
    "select upper(t.metadata.day) d, count(*) n from `t` t group by t.metadata.day order by d, n",
    "select t.metadata.status s, count(*) n from `t` t group by rollup(s) order by s, n",
    "select distinct t.metadata.on o from `t` t order by o",
    "select id from `t` t where t.metadata.status >= 404 order by id",
    "select id, safe_cast(t.metadata.status as float64) + 1 s from `t` t order by id",
    "select id, safe_cast(t.metadata.big as int64) b from `t` t order by id",
    "select id, t.metadata.quote q, t.metadata.empty e, t.metadata.nothing n from `t` t order by id",
    "select id, cast(t.metadata.truth as bool) b, t.metadata.number || '!' n from `t` t order by id",
    "with e as (select id, metadata from `t`) select id from e cross join unnest(metadata) m cross join unnest(m.request) r order by id",
    "with e as (select id, metadata from `t`) select id, r.path from e cross join unnest(metadata) m left join unnest(m.request) r order by id",
    "select x.id from (select id, metadata from `t` order by timestamp limit 100) as x where x.metadata.status = 200",
    "select a.id, b.metadata.day from `t` a join `t` b on a.metadata.day = b.metadata.day order by 1, 2",
    "select id, row_number() over (partition by t.metadata.on order by id) n from `t` t order by id",
    "select count(distinct t.metadata.day) d, min(t.metadata.day) a, max(t.metadata.status) b from `t` t",
    "select id, case t.metadata.on when true then 'y' end y from `t` t order by id",
    "with e as (select id, timestamp, metadata from `t`) select id, metadata.host h, metadata.Host g from e order by id",
]
QUERIES_OF_JSON_TEXT = [
    "with e as (select id, metadata from `t`), f as (select id, metadata.request q from e) select f.id, f.q.path from f order by 1",
    "select id, t.metadata.mixed m from `s` t order by id",
    "select id, t.metadata.request from `s` t order by id",
    "select id, to_json_string(t.metadata.status) s from `s` t where t.metadata.status is not null order by id",
    "select id, t.metadata.request.path, t.metadata.status, t.metadata.day from `s` t order by id",
    "select id, t.metadata.request.`h.i` a, t.metadata.request.h.i b, t.metadata.request.`x-y` c from `s` t order by id",
    "select id, t.metadata.`two words` a, t.metadata.`é` b from `s` t order by id",
    "select t.id, x from `s` t cross join unnest(t.metadata.request.list) x order by id",
    "select a.id, b.metadata.day from `s` a left join `t` b on a.id = b.id and b.id > 'b' order by 1, 2",
    "select distinct e.m.status from (select distinct metadata as m from `t`) e order by 1",
    "with e as (select id, metadata from `t` union all select id, metadata from `t`) select id, e.metadata.day from e order by 1, 2",
    "select t.deep.er from `s` t where t.id = 'm'",
    "select id from `t` t where exists (select 1 from unnest([1]) as n where t.metadata.status = 200)",
]


FROM_UNNESTED_REQUESTS = "from `t` t cross join unnest(t.metadata) m cross join unnest(m.request) r"
# Conditions that can be true only for events with the record, so that its presence need not be tested.
CONDITIONS_THAT_IMPLY_THE_RECORD = [
    "r.path = '/a'",
    "'/b' <> r.path",
    "r.path like '/%' and (r.path > '')",
    "r.path in ('/a', '/b')",
    "r.path between '/a' and '/z'",
    "(regexp_contains(r.path, 'a')) and m.status is not null",
    "safe_cast(r.path as int64) is null and cast(r.path as string) >= '/'",
]
OTHER_CONDITIONS = [
    "coalesce(r.path, 'x') = 'x'",
    "r.path = '/a' or m.status >= 0",
    "r.path is null",
    "not (r.path = '/a' and m.status < 0)",
    "m.status >= 0",
    "(case when r.path = '/a' then 1 else 2 end) = 2",
    "r.path is distinct from '/a'",
    "r.path not in ('/b', '/c') or m.status > 0",
]


@pytest.mark.parametrize("condition", [*CONDITIONS_THAT_IMPLY_THE_RECORD, *OTHER_CONDITIONS])
def test_a_record_is_tested_unless_a_condition_implies_it(clickhouse: Engine, duckdb: Engine, condition: str) -> None:
    sql = f"select t.id, r.path {FROM_UNNESTED_REQUESTS} where {condition}"
    assert ("object_paths" in printed_sql(clickhouse, sql)) == (condition in OTHER_CONDITIONS)
    assert _comparable_rows(rows(clickhouse, sql)) == _comparable_rows(rows(duckdb, sql))


@pytest.mark.parametrize("sql", [*QUERIES_OF_PATH_COLUMNS, *QUERIES_OF_JSON_TEXT])
def test_the_rows_equal_those_of_duckdb(clickhouse: Engine, duckdb: Engine, sql: str) -> None:
    assert _comparable_rows(rows(clickhouse, sql)) == _comparable_rows(rows(duckdb, sql))


@pytest.mark.parametrize("sql", QUERIES_OF_PATH_COLUMNS)
def test_the_json_text_is_not_read_if_the_path_has_a_column(clickhouse: Engine, sql: str) -> None:
    printed = printed_sql(clickhouse, sql)
    assert "_paths" in printed or "object_paths" in printed
    assert "JSONExtractRaw" not in printed


def test_the_path_column_and_the_json_text_give_the_first_of_duplicate_keys(clickhouse: Engine) -> None:
    clickhouse.create_stream_tables([stream("s"), stream("t"), stream("twice")])
    events_with_paths, learnt = ShapeInferrer(clickhouse.shapes_by_stream).infer_stream_shape(
        "twice", [Event("a", NOW_US, metadata=EVENT_WITH_DUPLICATE_KEYS)]
    )
    clickhouse.append([ReceivedEventBatch("twice", events_with_paths, NOW_US, learnt)])
    from_column = "select t.metadata.status a, t.metadata.request.path b from `twice` t"
    from_text = "select x.m.status, x.m.request.path from (select distinct metadata m from `twice`) x"
    assert (
        _comparable_rows(rows(clickhouse, from_column))
        == _comparable_rows(rows(clickhouse, from_text))
        == [[1, "first"]]
    )


def _comparable_rows(unsorted_rows: Sequence[Row]) -> list[list[object]]:
    """Return the sorted rows as a caller decodes them, with whole floats as integers."""
    answer: list[list[object]] = msgspec.json.decode(msgspec.json.encode(unsorted_rows))
    rows = [[int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in row] for row in answer]
    return sorted(rows, key=str)
