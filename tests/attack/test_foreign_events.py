"""Answers to a pinned key are the same whether or not the store also has events of other projects."""

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest

from cordwood.app.in_process import open_in_process_app
from tests.attack.store_comparison import Store
from tests.attack.test_pinned_queries import make_settings
from tests.chdb_databases import fresh_database

NOW_US = 1_790_000_000_000_000
STREAMS = {
    "edge_logs": "cloudflare.logs.prod",
    "function_logs": "deno-subhosting-events",
    "storage_logs": "storage.logs.prod.2",
}
# Paths at which all events have the same type of value, on which the compiler may rely.
VALUES_BY_FIELD: Mapping[str, object] = {
    "text": "/rest/v1",
    "number": 7,
    "float": 2.5,
    "bool": True,
    "record": {"a": "x", "b": 3, "in": {"c": [1, 2]}},
    "list": ["p", "q"],
    "numbers": [3, 1, 2],
    "records": [{"k": "one", "v": 1}, {"k": "two", "v": 2}],
    "user-agent": "curl",
    "status_code": 200,
    "mixed": None,
}
MIXED_VALUES = ("text", 5, 1.5, False, {"m": 1}, [1, "2"], None)
# Values of other types, which other projects send at the paths of FIELD_PATHS.
FOREIGN_VALUES = ("poison", 41, True, {"poison_key": {"deep": 1}}, [{"poison_key": 1}, "x", 2], [[1], [2]])


def own_events() -> list[dict[str, object]]:
    rng = random.Random(7)
    events = []
    for number in range(24):
        metadata = {
            name: value for name, value in VALUES_BY_FIELD.items() if name in ("text", "record") or rng.random() < 0.8
        }
        metadata |= {
            "mixed": MIXED_VALUES[number % len(MIXED_VALUES)],
            "number": number % 5,
            "text": f"/p/{number % 4}",
        }
        metadata |= {"project": "a", "project_ref": "a"}
        events.append(event(f"own{number:02}", "a", metadata, number))
    return events


def event(name: str, project: str, metadata: object, second: int = 0) -> dict[str, object]:
    moment = (NOW_US - 3_600_000_000) + second * 1_000_000
    return {
        "id": name,
        "event_message": f"{project} {second % 3}",
        "project": project,
        "timestamp": moment,
        "metadata": metadata,
        "app": "x",
    }


def foreign_events() -> Iterator[list[dict[str, object]]]:
    """Yield events of other projects with paths that resemble the own project's paths.

    They have other types at the same paths, similar and unusual names, deep paths, and many paths.
    """
    for number, kind in enumerate(FOREIGN_VALUES):
        at_paths: dict[str, object] = dict.fromkeys(VALUES_BY_FIELD, kind)
        at_paths |= {
            "record": {"a": kind, "b": kind, "in": kind, "poison_inner": 1},
            "records": [{"k": kind, "v": kind}],
        }
        yield [event(f"kind{number}", f"b{number}", with_project_fields(at_paths, f"b{number}"))]
        yield [
            event(
                f"whole{number}",
                f"b{number}",
                {"record": kind, "in": kind, "project": f"b{number}", "project_ref": f"b{number}"},
            )
        ]
    yield [event("list", "b1", [with_project_fields({"text": 1}, "b1"), with_project_fields({"number": "x"}, "b1")])]
    alike = {
        "user_agent": [1],
        "User-Agent": {"a": 1},
        "user.agent": 5,
        "TEXT": [1],
        "Record": {"A": [1]},
        "reCord": "x",
    }
    yield [event("alike", "b2", with_project_fields(alike, "b2"))]
    odd = {
        "": 1,
        "a b": 2,
        "[]": {"x": 1},
        "$.x": 3,
        'qu"ote': 4,
        "back\\slash": 5,
        "'": 6,
        "ключ": 7,
        "x.y": {"z": 1},
        "a" * 500: 8,
    }
    yield [event("odd", "b3", with_project_fields(odd, "b3"))]
    deep: object = 1
    for _ in range(60):
        deep = {"down": [deep]}
    yield [event("deep", "b3", with_project_fields({"deep": deep}, "b3"))]
    for project, group in itertools.product(range(6), range(4)):
        wide: dict[str, object] = {f"wide_{project}_{group}_{number}": {"x": number} for number in range(150)}
        yield [event(f"wide{project}_{group}", f"w{project}", with_project_fields(wide, f"w{project}"))]


def with_project_fields(metadata: dict[str, object], project: str) -> dict[str, object]:
    return {**metadata, "project": project, "project_ref": project}


FIELD_PATHS = (
    *(
        f"m.{name}"
        for name in ("text", "number", "float", "bool", "record", "list", "numbers", "records", "user_agent")
    ),
    *(
        "m.mixed",
        "m.record.a",
        "m.record.b",
        "m.record.in",
        "m.record.in.c",
        "m.status_code",
        "m.poison_key",
        "m.`user-agent`",
    ),
)
QUERIES_OF_PATH = (
    "select X as x from edge_logs cross join unnest(metadata) as m order by id",
    "select id, X as x from edge_logs left join unnest(metadata) as m on true order by 1",
    "select X as x, count(*) as n from edge_logs cross join unnest(metadata) as m group by 1 order by n desc, to_json_string(any_value(X))",
    "select count(*) as n, count(X) as c, count(distinct to_json_string(X)) as d from edge_logs cross join unnest(metadata) as m",
    "select id from edge_logs cross join unnest(metadata) as m where X is not null order by id",
    "select id from edge_logs cross join unnest(metadata) as m where X = '7' or X = '/p/1' order by id",
    "select id from edge_logs cross join unnest(metadata) as m where X > 2 order by id",
    "select id from edge_logs cross join unnest(metadata) as m order by X, id",
    "select id from edge_logs cross join unnest(metadata) as m order by X desc, id limit 5",
    "select max(X) as top, min(X) as low from edge_logs cross join unnest(metadata) as m",
    "select sum(X) as s from edge_logs cross join unnest(metadata) as m",
    "select cast(X as string) as t from edge_logs cross join unnest(metadata) as m order by id",
    "select safe_cast(X as int64) as t from edge_logs cross join unnest(metadata) as m order by id",
    "select regexp_contains(X, '[a-z]') as t from edge_logs cross join unnest(metadata) as m order by id",
    "select concat('a', X) as t from edge_logs cross join unnest(metadata) as m order by id",
    "select json_value(to_json_string(X), '$') as t from edge_logs cross join unnest(metadata) as m order by id",
    "select id, e as e from edge_logs cross join unnest(metadata) as m cross join unnest(X) as e order by id, to_json_string(e)",
    "select id, o as o from edge_logs cross join unnest(metadata) as m left join unnest(X) as e with offset as o order by id, o",
    "select id, array_length(X) as l from edge_logs cross join unnest(metadata) as m order by id",
    "select id, X[safe_offset(0)] as f, X[safe_offset(1)] as s from edge_logs cross join unnest(metadata) as m order by id",
    "select id from edge_logs cross join unnest(metadata) as m where 'p' in unnest(X) order by id",
    "select id, (select count(*) from unnest(X) as e) as n from edge_logs cross join unnest(metadata) as m order by id",
    "select id, case when X is null then 'none' else to_json_string(X) end as t from edge_logs cross join unnest(metadata) as m order by id",
    "select distinct X as x from edge_logs cross join unnest(metadata) as m order by 1",
    "select id, row_number() over (order by X, id) as r from edge_logs cross join unnest(metadata) as m order by id",
    "select a.id, b.id as other from edge_logs a cross join unnest(a.metadata) as m join edge_logs b on to_json_string(X) = b.event_message order by 1, 2",
    "select count(*) as n from (select X as x from edge_logs cross join unnest(metadata) as m) where x is not null",
    "with w as (select id, X as x from edge_logs cross join unnest(metadata) as m) select x, count(id) as n from w group by x order by n, to_json_string(x)",
)
OTHER_QUERIES = (
    "select * from edge_logs order by id",
    "select * from function_logs order by id",
    "select * from storage_logs order by id limit 3",
    "select id, m.* from edge_logs cross join unnest(metadata) as m order by id",
    "select id, m.* from function_logs cross join unnest(metadata) as m order by id",
    "select m.* except (text) from storage_logs cross join unnest(metadata) as m order by id",
    "select m.record.* from edge_logs cross join unnest(metadata) as m order by id",
    "select r.* from edge_logs cross join unnest(metadata) as m cross join unnest(m.record) as r order by id",
    "select r.* from edge_logs cross join unnest(metadata) as m cross join unnest(m.records) as r order by id, r.k",
    "select text, number from edge_logs cross join unnest(metadata) as m order by id",
    "select poison_key from edge_logs cross join unnest(metadata) as m",
    "select poison_kez from edge_logs cross join unnest(metadata) as m",
    "select m.poison_kez, m.wide_1_1_1, m.deep from edge_logs cross join unnest(metadata) as m order by id",
    "select wide_1_1_1 from edge_logs",
    "select m from edge_logs cross join unnest(metadata) as m order by id",
    "select to_json_string(m) as t from edge_logs cross join unnest(metadata) as m order by id",
    "select app from edge_logs",
    "select id from edge_logs where to_json_string(metadata) like '%curl%' order by id",
    "select m.* replace (1 as poison_key) from edge_logs cross join unnest(metadata) as m",
    "select id from edge_logs cross join unnest(metadata) as m where m.record is not null and m.list is not null order by id",
)
LQL_QUERIES = (
    "f:edge_logs s:m.text s:m.number",
    "f:edge_logs m.list:p",
    "f:edge_logs m.record.a:x s:m.record.in.c",
    "f:edge_logs m.records.k:two s:m.records",
    "f:edge_logs m.number:>2 c:count(*) c:group_by(t::minute)",
    "f:edge_logs s:poison_kez",
    "f:edge_logs m.user_agent:curl s:m.mixed",
    "f:edge_logs c:max(m.number) c:group_by(m.text)",
)


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    with ExitStack() as stack:
        opened_stores = []
        for name in ("alone", "crowded"):
            engine = fresh_database() if request.param == "clickhouse" else "duckdb"
            app = stack.enter_context(
                open_in_process_app(
                    make_settings(tmp_path_factory.mktemp(name) / "data", engine=engine), lambda: NOW_US
                )
            )
            opened_stores.append(Store(app, request.param))
        store_of_own_events, store_with_foreign_events = opened_stores
        foreign_batches = list(foreign_events())
        for stream in STREAMS.values():
            for events in foreign_batches:
                store_with_foreign_events.take(stream, events)
            for store in opened_stores:
                store.take(stream, own_events()[:12])
                store.take(stream, own_events()[12:])
            for events in foreign_batches[:14]:
                store_with_foreign_events.take(
                    stream, [{**sent_event, "id": f"{sent_event['id']}again"} for sent_event in events]
                )
        yield store_of_own_events, store_with_foreign_events


QUERIES = [*(template.replace("X", path) for template in QUERIES_OF_PATH for path in FIELD_PATHS), *OTHER_QUERIES]
# Number of queries in the random sample, which is the same in each run.
SAMPLE_SIZE = {"duckdb": 160, "clickhouse": 30}
# Queries that ClickHouse can plan only in some stores, depending on whether the record is unnested.
GAPS_ON_CLICKHOUSE = {
    template.replace("X", path) for template in QUERIES_OF_PATH if "from unnest(X)" in template for path in FIELD_PATHS
}


def some_queries(stores: tuple[Store, Store]) -> list[str]:
    queries = (
        QUERIES if stores[0].engine == "duckdb" else [query for query in QUERIES if query not in GAPS_ON_CLICKHOUSE]
    )
    return random.Random(11).sample(queries, SAMPLE_SIZE[stores[0].engine])


def test_answers_to_a_pinned_key_do_not_depend_on_other_projects(stores: tuple[Store, Store]) -> None:
    store_of_own_events, store_with_foreign_events = stores
    for sql in some_queries(stores):
        assert store_with_foreign_events.ask(store_with_foreign_events.pinned, sql=sql) == store_of_own_events.ask(
            store_of_own_events.pinned, sql=sql
        ), sql
    for lql in LQL_QUERIES:
        assert store_with_foreign_events.ask(store_with_foreign_events.pinned, lql=lql) == store_of_own_events.ask(
            store_of_own_events.pinned, lql=lql
        ), lql


def test_values_without_pins_do_not_depend_on_other_projects(stores: tuple[Store, Store]) -> None:
    """Compare the answers to the private key in a store with and a store without events of other projects.

    Notices and queries with `*` are omitted, because they may show field names of other projects.
    """
    store_of_own_events, store_with_foreign_events = stores
    for sql in (query for query in some_queries(stores) if query not in OTHER_QUERIES):
        (answer, _, body), (own, _, expected) = (
            store.ask(store.private, sql=sql, project="a") for store in (store_with_foreign_events, store_of_own_events)
        )
        assert (answer, body) == (own, expected), sql


@pytest.mark.parametrize("stream", STREAMS.values())
def test_descriptions_for_a_pinned_key_do_not_depend_on_other_projects(
    stores: tuple[Store, Store], stream: str
) -> None:
    store_of_own_events, store_with_foreign_events = stores
    for path in ("/api/endpoints/logs.all/scope", "/api/openapi.json", f"/api/sources/{stream}/schema"):
        answer = store_with_foreign_events.answer(path, store_with_foreign_events.pinned_private)
        assert answer == store_of_own_events.answer(path, store_of_own_events.pinned_private)
        assert "poison" not in answer[2]
    query = {"lql": "f:edge_logs m.list:p s:m.records"}
    answer = store_with_foreign_events.answer("/api/endpoints/logs.all/sql", store_with_foreign_events.pinned, **query)
    assert answer == store_of_own_events.answer("/api/endpoints/logs.all/sql", store_of_own_events.pinned, **query)


def test_paths_of_the_project_are_listed_though_others_filled_the_shape(stores: tuple[Store, Store]) -> None:
    _, crowded = stores
    _, _, scope = crowded.answer("/api/endpoints/logs.all/scope", crowded.pinned)
    assert '"records","k"' in scope
    _, headers, _ = crowded.ask(
        crowded.pinned, sql="select m.wide_1_1_1 from edge_logs cross join unnest(metadata) as m"
    )
    assert headers["cordwood-notice"] == "path never seen: metadata.wide_1_1_1"


PRIVATE_ADDRESS = "10.0.0.5"
# Events that have only numbers at a path through arrays.
NUMERIC_PATHS: tuple[object, ...] = (
    {"in": {"address": 5}},
    [{"in": {"address": 5}}],
    {"in": [{"address": 5}]},
    [{"in": [{"address": 5}]}],
    [{"in": [{"address": [5]}]}],
)
QUERIES_THROUGH_ARRAYS = (
    "select i.address as x, count(*) as n from auth_logs cross join unnest(metadata) as m cross join unnest(m.`in`) as i group by 1",
    "select i.address as x from auth_logs cross join unnest(metadata) as m cross join unnest(m.`in`) as i order by 1",
    "select max(i.address) as x from auth_logs cross join unnest(metadata) as m cross join unnest(m.`in`) as i",
    "select a as x from auth_logs cross join unnest(metadata) as m cross join unnest(m.`in`) as i cross join unnest(i.address) as a",
    "select count(*) as n from auth_logs cross join unnest(metadata) as m cross join unnest(m.`in`) as i where i.address like '10.%'",
    "select m.`in`[safe_offset(0)].address as x, 1 as n from auth_logs cross join unnest(metadata) as m group by 1",
)


@pytest.mark.parametrize("way", NUMERIC_PATHS, ids=str)
def test_numbers_of_other_projects_do_not_disable_redaction_of_strings(
    stores: tuple[Store, Store], way: object
) -> None:
    _, crowded = stores
    number = NUMERIC_PATHS.index(way)
    own: dict[str, object] = {"in": {"address": PRIVATE_ADDRESS, "list": [PRIVATE_ADDRESS]}}
    crowded.take("gotrue.logs.prod", [event(f"way{number}", f"y{number}", way), event(f"told{number}", "a", own)])
    for sql in QUERIES_THROUGH_ARRAYS:
        query = urlencode({"project": "a", "sql": sql})
        headers = {"x-api-key": crowded.private, "lf-endpoint-redact-pii": "true"}
        _, _, body = crowded.app.send("GET", f"/api/endpoints/query/logs.all?{query}", b"", headers)
        assert PRIVATE_ADDRESS.encode() not in body, sql
        assert b'"n":1' not in body or b"REDACTED" in body, sql


def test_a_new_array_is_read_when_the_shape_of_the_stream_is_full(stores: tuple[Store, Store]) -> None:
    _, crowded = stores
    crowded.take("postgres.logs", own_events())
    for number in range(60):
        keys = {f"filler{number}_{index}": {"x": 1} for index in range(100)}
        crowded.take("postgres.logs", [{**event(f"filler{number}", f"f{number % 7}", keys), "project": None}])
    event_with_new_array = {"new_list": ["one", "two"], "new_record": {"in": [{"deep": 5}]}, "project": "a"}
    crowded.take("postgres.logs", [event("late", "a", event_with_new_array, 100)])
    sql = "select e from postgres_logs cross join unnest(metadata) as m cross join unnest(m.new_list) as e order by e"
    assert json.loads(crowded.ask(crowded.pinned, sql=sql)[2])["result"] == [{"e": "one"}, {"e": "two"}]
    assert json.loads(crowded.ask(crowded.private, sql=sql, project="a")[2])["result"] == [{"e": "one"}, {"e": "two"}]
    deep = "select d.deep as deep from postgres_logs cross join unnest(metadata) as m cross join unnest(m.new_record) as r cross join unnest(r.`in`) as d"
    assert json.loads(crowded.ask(crowded.private, sql=deep, project="a")[2])["result"] == [{"deep": 5}]
    star_query = "select m.* from postgres_logs cross join unnest(metadata) as m where m.new_list is not null"
    assert set(json.loads(crowded.ask(crowded.pinned, sql=star_query)[2])["result"][0]) >= {"new_list", "new_record"}
