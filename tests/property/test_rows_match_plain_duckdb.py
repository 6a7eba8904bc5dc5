"""Random joins and sub-queries return the same rows as plain DuckDB over a plain table."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.event import Event, ReceivedEventBatch
from tests.contract.engine_asking import NOW_US, rows, stream
from tests.unit.engines.duckdb.flushing import flush_pending

EVENTS = [Event(letter, NOW_US + place, f"m{place % 2}", f"p{place % 3}") for place, letter in enumerate("fghij")]
# The SQL text of a relation, and the names of the tables in it.
Relation = tuple[str, tuple[str, ...]]

COLUMNS = ("id", "project", "event_message")
columns = st.sampled_from(COLUMNS)
values = st.sampled_from(["'g'", "'i'", "'p1'", "'m0'"])
comparisons = st.tuples(columns, st.sampled_from(["=", "<>", "<", ">"]), values).map(" ".join)
filters = st.one_of(comparisons, st.tuples(comparisons, st.sampled_from([" and ", " or "]), comparisons).map("".join))


@pytest.fixture(scope="module", params=["in memory", "sealed"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(tmp_path_factory.mktemp("plain") / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([ReceivedEventBatch("s", EVENTS, NOW_US)])
    if request.param == "sealed":
        flush_pending(engine)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain_duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute('create table "s" (id varchar, project varchar, event_message varchar)')
        lines = [(event.id, event.project, event.event_message) for event in EVENTS]
        connection.executemany('insert into "s" values (?, ?, ?)', lines)
        yield connection


@st.composite
def draw_named_table(draw: st.DrawFn, names: Iterator[int]) -> Relation:
    name = f"t{next(names)}"
    grouped = "(select project as id, project, max(event_message) as event_message from `s` group by project)"
    filtered = f"(select id, project, event_message from `s` where {draw(filters)})"
    return f"{draw(st.sampled_from(['`s`', '`s`', filtered, grouped]))} as {name}", (name,)


@st.composite
def draw_joins(draw: st.DrawFn, names: Iterator[int], depth: int) -> Relation:
    """Draw joins, some of them in parentheses. Parentheses around a single table are written as "[" and "]"."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        text, table_columns = draw(draw_named_table(names))
        return (f"[{text}]" if draw(st.integers(0, 4)) == 0 else text), table_columns
    (left, of_left), (right, of_right) = (draw(draw_joins(names, depth - 1)) for _ in range(2))
    if " join " in right:
        right = f"({right})"
    kind = draw(st.sampled_from(["join", "left join", "right join", "full join", "cross join"]))
    on = f" on {draw(st.sampled_from(of_left))}.id = {draw(st.sampled_from(of_right))}.id"
    text = f"{left} {kind} {right}{'' if kind == 'cross join' else on}"
    return (f"({text})" if draw(st.booleans()) else text), of_left + of_right


@st.composite
def draw_query_over_joins(draw: st.DrawFn) -> str:
    text, names = draw(draw_joins(iter(range(100)), 3))
    items = [f"{name}.{draw(columns)} as k{place}" for place, name in enumerate(names)]
    return f"select {', '.join(items)} from {text}"


@st.composite
def draw_nested_sub_queries(draw: st.DrawFn) -> str:
    """Draw nested sub-queries. Each permutes the names of the three columns, and may filter, compute or deduplicate."""
    source = "`s`"
    for _ in range(draw(st.integers(1, 4))):
        read = draw(st.permutations(COLUMNS))
        columns_sql = [
            draw(st.sampled_from(["{}", "{}", "{}", "concat({}, 'x')"])).format(f"t.{name}") for name in read
        ]
        items = ", ".join(f"{value} as {name}" for value, name in zip(columns_sql, COLUMNS, strict=True))
        where = f" where {draw(filters)}" if draw(st.booleans()) else ""
        source = f"(select {draw(st.sampled_from(['', '', '', 'distinct ']))}{items} from {source} as t{where})"
    ends = [
        "select id, project, event_message from {} as u",
        "select u.id, u.project from {} as u order by 1, 2 limit 3",
        "select u.project as id, count(*) as n from {} as u group by id",
        "select id, row_number() over (order by id, project, event_message) as n from {} as u",
    ]
    return draw(st.sampled_from(ends)).format(source)


@given(st.one_of(draw_query_over_joins(), draw_nested_sub_queries()))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_rows_equal_those_of_plain_duckdb(
    engine: DuckDBEngine, plain_duckdb: duckdb.DuckDBPyConnection, sql: str
) -> None:
    expected: list[Any] = []
    # BigQuery permits parentheses around a single table, but DuckDB does not.
    plain_sql = sql.translate({ord("`"): '"', ord("["): None, ord("]"): None})
    sql = sql.replace("[", "(").replace("]", ")")
    with suppress(duckdb.BinderException):
        expected = plain_duckdb.execute(plain_sql).fetchall()
    assume(0 < len(expected) < 500)
    assert sorted(map(repr, map(tuple, rows(engine, sql)))) == sorted(map(repr, expected))
