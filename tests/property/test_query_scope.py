"""Random admitted queries read only the streams in scope, according to the engine's plan."""

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryFault
from cordwood.model.event import EventShape, ValueKind
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.program import EndpointProgram
from cordwood.sql.stages import Statement

STREAMS = {
    "edge_logs": "cloudflare.logs.prod",
    "postgres_logs": "postgres.logs",
    "function_edge_logs": "deno-relay-logs",
    "function_logs": "deno-subhosting-events",
    "auth_logs": "gotrue.logs.prod",
    "realtime_logs": "realtime.logs.prod",
    "storage_logs": "storage.logs.prod.2",
    "postgrest_logs": "postgREST.logs.prod",
    "pgbouncer_logs": "pgbouncer.logs.prod",
}
TABLES_OUTSIDE_SCOPE = [
    "secrets",
    "`cloudflare.logs.prod`",
    "information_schema.tables",
    "duckdb_settings",
    "`/etc/passwd`",
]
VALUES = {"project": "default", "iso_timestamp_start": None, "iso_timestamp_end": None}
OBJECT, TEXT, ARRAY = (frozenset({kind}) for kind in (ValueKind.OBJECT, ValueKind.TEXT, ValueKind.ARRAY))
SHAPE = EventShape({
    ("metadata",): OBJECT, ("metadata", "request"): OBJECT, ("metadata", "request", "path"): TEXT,
    ("metadata", "tags"): ARRAY, ("metadata", "tags", "[]"): TEXT, ("metadata", "level"): TEXT,
})  # fmt: skip
SHAPES = dict.fromkeys(STREAMS.values(), SHAPE)

tables = st.sampled_from([*STREAMS, *STREAMS, *STREAMS, *map(str.upper, STREAMS), *TABLES_OUTSIDE_SCOPE])
columns = st.sampled_from(["t.id", "t.event_message", "cast(t.timestamp as string)", "t.metadata.level"])
literals = st.sampled_from(["'a'", "null", "cast(1 as string)", "@project"])
functions = st.sampled_from(["upper({})", "coalesce({}, 'x')", "concat({}, 'y')", "substr({}, 1, 2)", "getenv({})"])


def expressions(queries: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def nest_query(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(functions, inner).map(lambda pair: pair[0].format(pair[1])),
            inner.map(lambda expression: f"case when {expression} is null then 'n' else {expression} end"),
            queries.map(lambda query: f"(select max(x) from ({query}) q)"),
            st.tuples(inner, queries).map(lambda pair: f"if({pair[0]} in ({pair[1]}), 'i', 'o')"),
            queries.map(lambda query: f"if(exists ({query}), 'e', 'n')"),
            queries.map(lambda query: f"array_to_string(array({query}), ',')"),
        )

    return st.recursive(st.one_of(columns, literals), nest_query, max_leaves=3)


joins = st.sampled_from(["", ", {} u", " join {} u on u.id = t.id", " left join {} u on true", " cross join {} u",
                         " left join ({} u cross join unnest(u.metadata) m) on true", " full join {} u using (id)"])  # fmt: skip
unnests = st.sampled_from(
    ["", ", unnest(t.metadata) r", " left join unnest(t.metadata.tags) g", ", t.metadata.request v"]
)


def extend_query(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sources = st.one_of(tables, inner.map(lambda query: f"(select x as id, x as event_message, current_timestamp() as timestamp,"
                                                        f" null as metadata from ({query}))"))  # fmt: skip
    select = st.builds(
        lambda item, source, join, other, unnest, where: (
            f"select {item} as x from {source} t{unnest}{join.format(other)}" + (f" where {where} is not null" if where else "")
        ),
        expressions(inner), sources, joins, tables, unnests, st.one_of(st.none(), expressions(inner)),
    )  # fmt: skip
    return st.one_of(
        select,
        st.tuples(select, select).map(" union all ".join),
        st.tuples(select, select).map(" except distinct ".join),
        st.tuples(inner, select).map(lambda pair: f"with own as ({pair[0]}) {pair[1]} union all select x from own"),
        select.map(lambda query: f"{query} order by 1 limit 3"),
    )


queries = st.recursive(tables.map(lambda table: f"select t.id as x from {table} t"), extend_query, max_leaves=4)


@pytest.fixture(scope="module")
def program() -> EndpointProgram:
    file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
    return parse_and_check_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'; attach ':memory:' as store; create schema memory.memtable")
        for stream in (*STREAMS.values(), "secrets"):
            tables = StreamTableStatements(stream)
            for table_sql in (
                tables.create_table(),
                tables.create_memtable_view((), 0),
                tables.create_view(with_memtable=True),
            ):
                connection.execute(table_sql)
        yield connection


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=queries)
def test_the_plan_scans_only_the_streams_of_the_sub_queries(
    program: EndpointProgram, engine: duckdb.DuckDBPyConnection, text: str
) -> None:
    try:
        statement = compile_sandbox_query(program, text, DuckDBTarget(), SHAPES)
    except QueryFault:
        return
    declared_streams = {STREAMS[name] for name in statement.sub_queries}
    assert set(statement.streams) <= declared_streams
    assert declared_streams <= {stream for name, stream in STREAMS.items() if name in text.lower()}
    for node in plan_operators(engine, statement):
        name, facts = str(node["name"]), node.get("extra_info", {})
        assert "SCAN" not in name or "Table" in facts or "CTE Index" in facts or name in OPERATORS_WITHOUT_TABLES
        if "Table" in facts:
            assert short_table_name(facts["Table"]) in declared_streams
        assert facts.get("Function", "UNNEST") == "UNNEST"


OPERATORS_WITHOUT_TABLES = {"DUMMY_SCAN", "DELIM_SCAN", "COLUMN_DATA_SCAN", "EXPRESSION_SCAN"}


def plan_operators(engine: duckdb.DuckDBPyConnection, statement: Statement) -> Iterator[dict[str, Any]]:
    """Yield every operator of the plan, or none if the engine refuses the statement."""
    values = {slot.name: VALUES[slot.name] for slot in statement.slots if slot.is_read and slot.parameter is not None}
    if any(slot.parameter is None for slot in statement.slots):
        values["now"] = "2026-01-01"
    try:
        result_rows = engine.execute(f"explain (format json) {statement.sql}", values).fetchall()
    except duckdb.Error as problem:
        assert "secrets" not in str(problem)
        return
    pending = list(json.loads(result_rows[0][1]))
    while pending:
        node = pending.pop()
        pending += node.get("children", [])
        yield node


def short_table_name(name: str) -> str:
    """Return the table's name without database and schema: `a.b` for `store.main."a.b"`."""
    return name.split(".", 2)[2].strip('"')
