"""Every permitted function is on the functions page, and has a call that compiles and runs, or is unsupported."""

from collections.abc import Iterator

import duckdb
import pytest

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryUnsupported
from cordwood.model.redaction import RedactionRules
from cordwood.sql.compile import compile_standalone_query
from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS, UNSUPPORTED_FUNCTIONS
from tests.spec_runner.world import ENGINES, CaseEngine
from tests.unit.sql.function_calls import CALLS, query_of
from tests.unit.sql.functions_page import PAGE, reference_page


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection


def test_every_function_has_a_call() -> None:
    assert set(CALLS) == PERMITTED_FUNCTIONS
    assert not PERMITTED_FUNCTIONS & UNSUPPORTED_FUNCTIONS


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_runs_or_is_not_supported(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    try:
        statement = compile_standalone_query(query_of(name), DuckDBTarget())
    except QueryUnsupported as fault:
        assert "not supported" in fault.message
        return
    engine.execute(f"create or replace temp table answer as {statement.sql}")


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseEngine]:
    kind = next(kind for kind in ENGINES if kind.name == "clickhouse")
    world = CaseEngine(kind, tmp_path_factory.mktemp("functions"), [], 0, RedactionRules())
    yield world
    world.close()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_runs_on_clickhouse_or_is_not_supported(clickhouse: CaseEngine, name: str) -> None:
    try:
        statement = compile_standalone_query(query_of(name), ClickHouseTarget())
    except QueryUnsupported as fault:
        assert "not supported" in fault.message
        return
    list(clickhouse.ask(statement, {}).batches)


def test_the_functions_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference_page(), "make it again: python -m tests.unit.sql.functions_page"
