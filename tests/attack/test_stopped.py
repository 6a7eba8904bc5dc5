"""The engine stops permitted but expensive queries, serves other queries meanwhile, and frees the memory afterwards."""

import importlib
import resource
import threading
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest

from cordwood.catalog.catalog import CatalogSources
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.file_catalog import read_catalog
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, Engine, ReadProgress
from cordwood.errors import Fault
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.program import EndpointProgram
from tests.chdb_databases import fresh_database
from tests.machine_speed import scaled

MEMORY_BYTES = 256 * 1024 * 1024
QUERY_SECONDS = 1.0
# Maximum time until a query has ended. It is longer than the time limit of a query, because stopping takes time.
MAX_STOP_SECONDS = 15

EXPENSIVE_QUERIES = {
    "a recursion that never ends": "with recursive r as (select 1 as n union all select n + 0 from r) select n from r order by n",
    "a recursion that doubles": "with recursive r as (select 'x' as s union all select s || s from r) select max(s) as s from r",
    "a join of all with all": (
        "with n as (select x from unnest(generate_array(1, 100000)) x)"
        " select count(*) as n from n a, n b, n c where a.x + b.x + c.x = -1"
    ),
    "an array of arrays": (
        "select array_agg(a) as v from unnest(generate_array(1, 100000)) x, (select generate_array(1, 100000) as a)"
    ),
    "a text put together of many": (
        "select string_agg(repeat('x', 100000), '') as v from unnest(generate_array(1, 1000000)) x"
    ),
    "a sort of all with all": (
        "select row_number() over (order by x * y) as n from unnest(generate_array(1, 100000)) x,"
        " unnest(generate_array(1, 100000)) y order by n desc"
    ),
}

# Queries with large results of functions. The engine's memory limit does not count them, so each function has a limit.
LARGE_RESULT_QUERIES = (
    "select length(repeat('x', 3000000000)) as n",
    "select length(repeat(repeat('x', 1000000), 1000)) as n",
    "select lpad('x', 2000000000, 'y') as v",
    "select rpad(b'x', 2000000000) as v",
    "select format('%2000000000d', 1) as v",
    "select format('%*d', 2000000000, 1) as v",
    "select replace(repeat('x', 1000000), 'x', repeat('y', 1000000)) as v",
    "select regexp_replace(repeat('x', 1000000), 'x', repeat('y', 1000000)) as v",
    "select array_length(generate_array(1, 10000000000)) as n",
    "select array_length(generate_array(1, 1000 * 1000000000)) as n",
    "select edit_distance(repeat('a', 1000000), repeat('b', 1000000)) as n",
    "select approx_quantiles(x, 100000000) as v from unnest([1, 2]) x",
    "select parse_json(repeat('[', 1000000)) as v",
    # Engines compute constants while they plan, even if a condition makes the result unnecessary.
    "select length(repeat(b'x', 3000000000)) as n",
    "select length(net.ip_net_mask(4, 3000000000)) as n",
    "select length(net.ip_net_mask(900000000, 0)) as n",
    f"select initcap('{'é b' * 60_000}') as v",
    f"select to_code_points('{'é b' * 60_000}') as v",
)


class NeverCancelled:
    """A cancel token that is never cancelled."""

    def on_cancel(self, stop: Callable[[], None]) -> None:
        pass

    def set_progress_reader(self, read: ReadProgress) -> None:
        pass


@pytest.fixture(scope="module")
def program() -> EndpointProgram:
    file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
    return parse_and_check_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))


def open_duckdb(folder: Path) -> Engine:
    return DuckDBEngine(folder, DuckDBTarget(), DuckDBOptions(memory_bytes=MEMORY_BYTES))


def open_clickhouse(_: Path) -> Engine:
    address = fresh_database()
    module = importlib.import_module("cordwood.engines.clickhouse.clickhouse_engine")
    engine: Engine = module.ClickHouseEngine(address, module.ClickHouseOptions(max_query_memory_bytes=MEMORY_BYTES))
    return engine


@pytest.fixture(scope="module", params=[open_duckdb, open_clickhouse], ids=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    opened: Engine = request.param(Path(tmp_path_factory.mktemp("engine")))
    opened.create_stream_tables(read_catalog(CatalogSources(), lambda *_: None).streams)
    yield opened
    opened.close()


def answer(
    engine: Engine, program: EndpointProgram, sql: str, seconds: float = QUERY_SECONDS
) -> list[tuple[object, ...]]:
    statement = compile_sandbox_query(program, sql, engine.compile_target, engine.shapes_by_stream())
    question = bind_parameters(statement, {"project": "p"}, 0, engine.regex_error)
    rows = engine.answer(question, AnswerLimits(1000, seconds), NeverCancelled())
    return [row for batch in rows.batches for row in batch]


@pytest.mark.parametrize("name", EXPENSIVE_QUERIES)
def test_an_expensive_query_is_stopped_and_others_are_served(
    engine: Engine, program: EndpointProgram, name: str
) -> None:
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(answer(engine, program, EXPENSIVE_QUERIES[name]))
        except Fault as fault:
            outcome.append(fault)

    asker = threading.Thread(target=ask)
    began = time.monotonic()
    asker.start()
    served = 0
    while asker.is_alive() and time.monotonic() - began < MAX_STOP_SECONDS:
        assert answer(engine, program, "select count(*) as n from edge_logs", seconds=MAX_STOP_SECONDS) == [(0,)]
        served += 1
    asker.join(MAX_STOP_SECONDS)
    assert outcome, "it never ended"
    assert isinstance(outcome[0], Fault)
    assert served


@pytest.mark.parametrize("sql", LARGE_RESULT_QUERIES)
def test_the_result_of_one_function_call_is_bounded(engine: Engine, program: EndpointProgram, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(Fault):
        answer(engine, program, sql, seconds=MAX_STOP_SECONDS)
    assert time.monotonic() - began < scaled(MAX_STOP_SECONDS / 3)


def test_memory_is_freed_after_expensive_queries(engine: Engine, program: EndpointProgram) -> None:
    for sql in EXPENSIVE_QUERIES.values():
        with pytest.raises(Fault):
            answer(engine, program, sql)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak_bytes < 8 * MEMORY_BYTES
    assert answer(engine, program, "select sum(x) as n from unnest(generate_array(1, 100000)) x") == [(5000050000,)]
