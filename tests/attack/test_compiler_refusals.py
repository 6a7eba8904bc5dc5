"""The compiler refuses every forbidden query for both engines, without running it, with a code and a position."""

import time
from importlib import resources

import pytest

from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryFault
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.program import EndpointProgram
from cordwood.sql.stages import Target
from tests.attack.attacks import (
    CALL_PLACES,
    DEEPLY_NESTED,
    FUNCTIONS,
    OTHER_REFUSED_QUERIES,
    REFUSED,
    STATEMENTS,
    SYNTAX,
    TABLE_NAMES,
    TABLE_PLACES,
    TABLES_OUTSIDE_SCOPE,
    UNSUPPORTED,
)
from tests.machine_speed import scaled

# Limit in seconds. Compilation takes only milliseconds.
MAX_SECONDS = 10


@pytest.fixture(scope="module")
def program() -> EndpointProgram:
    file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
    return parse_and_check_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))


TARGETS: tuple[Target, ...] = (DuckDBTarget(), ClickHouseTarget())


def common_fault(program: EndpointProgram, sql: str) -> QueryFault:
    """Return the fault that the query causes, after checking that its code is the same for both engines."""
    faults = [_fault_for(target, program, sql) for target in TARGETS]
    assert len({fault.code for fault in faults}) == 1
    return faults[0]


def _fault_for(target: Target, program: EndpointProgram, sql: str) -> QueryFault:
    with pytest.raises(QueryFault) as raised:
        compile_sandbox_query(program, sql, target, {})
    return raised.value


@pytest.mark.parametrize("place", TABLE_PLACES)
@pytest.mark.parametrize("table", TABLES_OUTSIDE_SCOPE)
def test_a_table_outside_the_scope_is_refused_in_every_place(program: EndpointProgram, place: str, table: str) -> None:
    fault = common_fault(program, place.replace("X", table))
    assert fault.code == REFUSED
    assert fault.span is not None
    assert fault.hint is not None
    assert "edge_logs" in fault.hint


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_a_system_table_is_refused(program: EndpointProgram, table: str) -> None:
    assert common_fault(program, f"select * from {table}").code in (REFUSED, SYNTAX)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_that_is_not_permitted_is_refused(program: EndpointProgram, function: str) -> None:
    fault = common_fault(program, f"select {function} from edge_logs")
    assert fault.code in (REFUSED, UNSUPPORTED, SYNTAX)
    assert fault.span is not None


@pytest.mark.parametrize("place", CALL_PLACES)
def test_a_function_is_refused_in_every_place_of_a_call(program: EndpointProgram, place: str) -> None:
    assert common_fault(program, place.replace("F", "getenv('HOME')", 1)).code == REFUSED


@pytest.mark.parametrize("statement", STATEMENTS)
def test_anything_but_a_single_query_is_refused(program: EndpointProgram, statement: str) -> None:
    fault = common_fault(program, statement)
    assert fault.code in (REFUSED, SYNTAX)
    assert fault.span is not None


@pytest.mark.parametrize(("sql", "code"), OTHER_REFUSED_QUERIES)
def test_other_forbidden_queries_are_refused_with_their_code(
    program: EndpointProgram, sql: str, code: str | None
) -> None:
    assert common_fault(program, sql).code == code or code is None


@pytest.mark.parametrize("depth", [1000, 10_000, 100_000])
@pytest.mark.parametrize("name", DEEPLY_NESTED)
def test_deep_nesting_is_refused_quickly(program: EndpointProgram, name: str, depth: int) -> None:
    before, middle, after = DEEPLY_NESTED[name]
    began = time.monotonic()
    fault = common_fault(program, "select " + before * depth + middle + after * depth)
    assert fault.code in (REFUSED, SYNTAX, UNSUPPORTED)
    assert time.monotonic() - began < scaled(MAX_SECONDS)


@pytest.mark.parametrize(
    "sql",
    [
        "select '" + "x" * 1_000_000 + "'",
        "select 1 " + "-- comment\n" * 100_000,
        "select " + ", ".join(str(number) for number in range(200_000)),
        "select 1" + " union all select 1" * 60_000,
        "select * from " + "edge_logs, " * 60_000 + "edge_logs",
        "with " + ", ".join(f"a{number} as (select 1)" for number in range(50_000)) + " select 1",
    ],
    ids=["text", "comments", "columns", "unions", "joins", "ctes"],
)
def test_a_megabyte_of_sql_is_refused_quickly(program: EndpointProgram, sql: str) -> None:
    began = time.monotonic()
    assert common_fault(program, sql).code == REFUSED
    assert time.monotonic() - began < scaled(MAX_SECONDS)
