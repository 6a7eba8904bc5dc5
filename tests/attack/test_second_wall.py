"""The check of statements by the engine's own parser, alone: it refuses hostile texts, whatever made them."""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import duckdb
import pytest

from cordwood.engines.clickhouse.target import with_settings
from cordwood.engines.duckdb.statement_check import StatementCheck
from cordwood.engines.isolation import Isolation
from cordwood.errors import IsolationBroken, QueryUnsupported
from cordwood.observe.observation import IsolationRefused
from tests.attack import hostile_clickhouse, hostile_duckdb
from tests.chdb_databases import fresh_database

STREAMS = ("own",)
# What is no SQL at all in a place fails there by the parser's own words.
NO_SQL = (duckdb.ParserException, QueryUnsupported)

Check = Callable[[str], None]


@pytest.fixture(autouse=True)
def second_wall_is_silent() -> None:
    """Not here."""


@pytest.fixture(scope="module")
def check_duckdb() -> Iterator[Check]:
    with duckdb.connect() as connection:
        checking = StatementCheck(Isolation("duckdb"))
        yield lambda text: checking.check(connection, text, STREAMS)


@pytest.fixture(scope="module")
def check_clickhouse() -> Iterator[Check]:
    """A statement with the settings that every statement has."""
    session = importlib.import_module("cordwood.engines.clickhouse.session").Session(fresh_database())
    checks = importlib.import_module("cordwood.engines.clickhouse.statement_check")
    checking = checks.StatementCheck(session, Isolation("clickhouse"))
    yield lambda text: checking.check(with_settings(text), STREAMS)
    session.close()


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def check(request: pytest.FixtureRequest, engine: str) -> Check:
    checking: Check = request.getfixturevalue(f"check_{engine}")
    return checking


@pytest.fixture
def data(engine: str) -> ModuleType:
    return hostile_duckdb if engine == "duckdb" else hostile_clickhouse


def put(mark: str, what: str, places: Sequence[str]) -> list[str]:
    return [re.sub(rf"\b{mark}\b", lambda _: what, place) for place in places]


def passed(check: Check, texts: Sequence[str]) -> list[str]:
    """Those that were neither refused nor no SQL."""
    return [text for text in texts if outcome(check, text) == "passed"]


def outcome(check: Check, text: str) -> str:
    try:
        check(text)
    except IsolationBroken:
        return "refused"
    except NO_SQL:
        return "no SQL"
    return "passed"


def test_a_relation_that_is_no_table_of_the_streams_is_refused_wherever_it_stands(
    check: Check, data: ModuleType
) -> None:
    refused = 0
    for relation in data.RELATIONS:
        texts = put("X", relation, data.PLACES)
        told = [outcome(check, text) for text in texts]
        assert [text for text, one in zip(texts, told, strict=True) if one == "passed"] == []
        assert told[0] == "refused", texts[0]
        refused += told.count("refused")
    # A text that no parser reads would try nothing.
    assert refused > 0.9 * len(data.RELATIONS) * len(data.PLACES)


def test_the_same_places_may_read_the_tables_of_the_streams(check: Check, data: ModuleType) -> None:
    texts = put("X", data.HARMLESS_RELATION, data.PLACES)
    assert len(passed(check, texts)) > 0.7 * len(texts)


def test_a_function_that_no_rule_writes_is_refused_wherever_it_is_called(check: Check, data: ModuleType) -> None:
    for call in data.CALLS:
        assert [outcome(check, text) for text in put("F", call, data.CALL_PLACES)] == ["refused"] * len(
            data.CALL_PLACES
        )


def test_the_same_places_may_call_a_function_that_rules_write(check: Check, data: ModuleType) -> None:
    assert passed(check, texts := put("F", data.HARMLESS_CALL, data.CALL_PLACES)) == texts


def test_what_is_no_single_query_over_the_streams_is_refused(check: Check, data: ModuleType) -> None:
    assert [text for text in data.STATEMENTS if outcome(check, text) != "refused"] == []


def test_what_only_looks_hostile_passes(check: Check, data: ModuleType) -> None:
    assert passed(check, data.HARMLESS) == list(data.HARMLESS)


def test_a_function_that_the_engine_has_not_is_a_form_that_is_not_supported(check: Check, data: ModuleType) -> None:
    for text in put("F", data.ABSENT, data.CALL_PLACES):
        with pytest.raises(QueryUnsupported):
            check(text)


def test_clickhouse_is_asked_with_the_settings_of_every_statement_and_no_others(check_clickhouse: Check) -> None:
    settings = with_settings("").removeprefix(" SETTINGS ")
    refused = []
    for ending in hostile_clickhouse.ENDINGS:
        # The fixture's own settings would be one more: they are put into a comment.
        text = f"SELECT 1 FROM own{ending.format(settings=settings)} --"
        refused += [ending] if outcome(check_clickhouse, text) == "refused" else []
    assert refused == list(hostile_clickhouse.ENDINGS)


@pytest.mark.parametrize("text", ["SELECT (1", "SELECT FROM WHERE", "SELECT 1 FROM (own)"])
def test_a_text_that_is_no_sql_fails_by_the_message_of_the_parser(check_duckdb: Check, text: str) -> None:
    with pytest.raises(duckdb.ParserException, match="syntax error"):
        check_duckdb(text)


def test_a_text_that_passed_for_some_streams_has_not_passed_for_others() -> None:
    with duckdb.connect() as connection:
        checking = StatementCheck(Isolation("duckdb"))
        text = 'SELECT 1 FROM store.main."a" UNION ALL SELECT 1 FROM store.main."b"'
        checking.check(connection, text, ("a", "b"))
        for streams in (("a",), ("b",), (), ("a.b",)):
            with pytest.raises(IsolationBroken):
                checking.check(connection, text, streams)


def test_a_refusal_is_noted_each_time_and_its_text_once() -> None:
    noted: list[object] = []
    with duckdb.connect() as connection:
        checking = StatementCheck(Isolation("duckdb", noted.append))
        for _ in range(2):
            with pytest.raises(IsolationBroken) as raised:
                checking.check(connection, "SELECT * FROM secret_table", STREAMS)
    first, second = noted
    assert isinstance(first, IsolationRefused)
    assert isinstance(second, IsolationRefused)
    assert first.sql == "SELECT * FROM secret_table"
    assert (first.effective_level(), second.effective_level(), second.sql) == ("error", "debug", "")
    assert first.incident == second.incident
    assert first.incident in raised.value.told()
    assert "secret_table" not in raised.value.told()
