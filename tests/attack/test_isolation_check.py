"""The isolation check, which uses the engine's own parser, refuses hostile statements whatever their source is."""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import duckdb
import pytest

from cordwood.engines.clickhouse.target import add_settings_clause
from cordwood.engines.duckdb.statement_check import StatementChecker
from cordwood.engines.isolation import IsolationCheck
from cordwood.errors import IsolationCheckFailed, QueryUnsupported
from cordwood.observe.observation import IsolationBreachRefused
from tests.attack import hostile_clickhouse, hostile_duckdb
from tests.chdb_databases import fresh_database

STREAMS = ("own",)
# Errors of the engine's parser that mean that the text is not valid SQL.
INVALID_SQL = (duckdb.ParserException, QueryUnsupported)

Check = Callable[[str], None]


@pytest.fixture(autouse=True)
def no_isolation_refusals() -> None:
    """Replace the fixture of conftest.py, which would fail these tests, because they expect refusals."""


@pytest.fixture(scope="module")
def check_duckdb() -> Iterator[Check]:
    with duckdb.connect() as connection:
        checker = StatementChecker(IsolationCheck("duckdb"))
        yield lambda text: checker.check(connection, text, STREAMS)


@pytest.fixture(scope="module")
def check_clickhouse() -> Iterator[Check]:
    """Yield ClickHouse's isolation check, as a function that appends the settings which every statement must have."""
    session = importlib.import_module("cordwood.engines.clickhouse.session").Session(fresh_database())
    checks = importlib.import_module("cordwood.engines.clickhouse.statement_check")
    checker = checks.StatementChecker(session, IsolationCheck("clickhouse"))
    yield lambda text: checker.check(add_settings_clause(text), STREAMS)
    session.close()


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def check(request: pytest.FixtureRequest, engine: str) -> Check:
    checker: Check = request.getfixturevalue(f"check_{engine}")
    return checker


@pytest.fixture
def hostile_statements(engine: str) -> ModuleType:
    return hostile_duckdb if engine == "duckdb" else hostile_clickhouse


def substitute_in_places(mark: str, replacement: str, places: Sequence[str]) -> list[str]:
    return [re.sub(rf"\b{mark}\b", lambda _: replacement, place) for place in places]


def passed_statements(check: Check, texts: Sequence[str]) -> list[str]:
    """Return those statements that the isolation check accepts."""
    return [text for text in texts if check_outcome(check, text) == "passed"]


def check_outcome(check: Check, text: str) -> str:
    try:
        check(text)
    except IsolationCheckFailed:
        return "refused"
    except INVALID_SQL:
        return "no SQL"
    return "passed"


def test_a_relation_outside_the_streams_is_refused_in_every_place(check: Check, hostile_statements: ModuleType) -> None:
    refused = 0
    for relation in hostile_statements.FORBIDDEN_RELATIONS:
        texts = substitute_in_places("X", relation, hostile_statements.RELATION_PLACES)
        outcomes = [check_outcome(check, text) for text in texts]
        assert [
            text for text, outcome_of_text in zip(texts, outcomes, strict=True) if outcome_of_text == "passed"
        ] == []
        assert outcomes[0] == "refused", texts[0]
        refused += outcomes.count("refused")
    # Most statements must be refused, because statements with invalid SQL do not test the isolation check.
    assert refused > 0.9 * len(hostile_statements.FORBIDDEN_RELATIONS) * len(hostile_statements.RELATION_PLACES)


def test_a_table_of_the_streams_passes_in_most_places(check: Check, hostile_statements: ModuleType) -> None:
    texts = substitute_in_places("X", hostile_statements.HARMLESS_RELATION, hostile_statements.RELATION_PLACES)
    assert len(passed_statements(check, texts)) > 0.7 * len(texts)


def test_a_function_that_no_rule_emits_is_refused_in_every_place(check: Check, hostile_statements: ModuleType) -> None:
    for call in hostile_statements.FORBIDDEN_CALLS:
        assert [
            check_outcome(check, text) for text in substitute_in_places("F", call, hostile_statements.CALL_PLACES)
        ] == ["refused"] * len(hostile_statements.CALL_PLACES)


def test_a_function_that_rules_emit_passes_in_every_place(check: Check, hostile_statements: ModuleType) -> None:
    assert (
        passed_statements(
            check, texts := substitute_in_places("F", hostile_statements.HARMLESS_CALL, hostile_statements.CALL_PLACES)
        )
        == texts
    )


def test_anything_but_a_single_query_of_the_streams_is_refused(check: Check, hostile_statements: ModuleType) -> None:
    assert [text for text in hostile_statements.STATEMENTS if check_outcome(check, text) != "refused"] == []


def test_harmless_statements_pass(check: Check, hostile_statements: ModuleType) -> None:
    assert passed_statements(check, hostile_statements.HARMLESS) == list(hostile_statements.HARMLESS)


def test_a_function_that_the_engine_lacks_is_reported_as_unsupported(
    check: Check, hostile_statements: ModuleType
) -> None:
    for text in substitute_in_places("F", hostile_statements.MISSING_FUNCTION_CALL, hostile_statements.CALL_PLACES):
        with pytest.raises(QueryUnsupported):
            check(text)


def test_other_settings_than_those_of_every_statement_are_refused(check_clickhouse: Check) -> None:
    settings = add_settings_clause("").removeprefix(" SETTINGS ")
    refused = []
    for ending in hostile_clickhouse.ENDINGS:
        # The trailing `--` turns the settings that the fixture appends into a comment.
        text = f"SELECT 1 FROM own{ending.format(settings=settings)} --"
        refused += [ending] if check_outcome(check_clickhouse, text) == "refused" else []
    assert refused == list(hostile_clickhouse.ENDINGS)


@pytest.mark.parametrize("text", ["SELECT (1", "SELECT FROM WHERE", "SELECT 1 FROM (own)"])
def test_invalid_sql_raises_the_error_of_the_parser(check_duckdb: Check, text: str) -> None:
    with pytest.raises(duckdb.ParserException, match="syntax error"):
        check_duckdb(text)


def test_a_statement_that_passed_for_some_streams_is_refused_for_others() -> None:
    with duckdb.connect() as connection:
        checker = StatementChecker(IsolationCheck("duckdb"))
        text = 'SELECT 1 FROM store.main."a" UNION ALL SELECT 1 FROM store.main."b"'
        checker.check(connection, text, ("a", "b"))
        for streams in (("a",), ("b",), (), ("a.b",)):
            with pytest.raises(IsolationCheckFailed):
                checker.check(connection, text, streams)


def test_each_refusal_is_recorded_and_its_statement_once() -> None:
    refusals: list[object] = []
    with duckdb.connect() as connection:
        checker = StatementChecker(IsolationCheck("duckdb", refusals.append))
        for _ in range(2):
            with pytest.raises(IsolationCheckFailed) as raised:
                checker.check(connection, "SELECT * FROM secret_table", STREAMS)
    first, second = refusals
    assert isinstance(first, IsolationBreachRefused)
    assert isinstance(second, IsolationBreachRefused)
    assert first.sql == "SELECT * FROM secret_table"
    assert (first.effective_level(), second.effective_level(), second.sql) == ("error", "debug", "")
    assert first.incident == second.incident
    assert first.incident in raised.value.one_line_text()
    assert "secret_table" not in raised.value.one_line_text()
