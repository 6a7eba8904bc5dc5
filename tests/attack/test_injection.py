"""SQL injection through quoted names and string literals: each is refused, or used as a plain name or string."""

import json
from collections.abc import Iterator

import pytest

from cordwood.app.in_process import InProcessApp
from tests.attack.injections import (
    EARLIER_INJECTIONS,
    INTERPRETING_QUERY_PAIRS,
    LITERAL_PLACES,
    NAME_PLACES,
    TEXT_PLACES,
    fragments_for_place,
    quote_name,
    quote_text,
)
from tests.attack.test_pinned_queries import FOREIGN_TEXT, ask, open_with_two_projects, pinned_key

PLAIN_NAME = "zq7plain"
Row = dict[str, object]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    with open_with_two_projects(request.param, tmp_path_factory.mktemp("injected")) as app:
        yield app


@pytest.fixture(scope="module")
def key(app: InProcessApp) -> str:
    return pinned_key(app)


@pytest.mark.parametrize(("sql", "answer"), EARLIER_INJECTIONS)
def test_earlier_injections_are_answered_correctly(
    request: pytest.FixtureRequest, app: InProcessApp, key: str, sql: str, answer: list[Row] | None
) -> None:
    result_rows = rows(app, key, sql)
    assert result_rows == answer or (result_rows is None and "clickhouse" in request.node.name)


@pytest.mark.torture
@pytest.mark.parametrize(("at", "place"), list(enumerate(NAME_PLACES)))
def test_a_quoted_name_is_used_as_a_name_in_every_place(
    request: pytest.FixtureRequest, app: InProcessApp, key: str, at: int, place: str
) -> None:
    plain = rows(app, key, place.replace("N", quote_name(PLAIN_NAME)))
    if plain is None and "clickhouse" in request.node.name:
        pytest.skip("not supported there")
    assert plain is not None
    for name in fragments_for_place(at):
        result_rows = rows(app, key, place.replace("N", quote_name(name)))
        # The service names a column with an empty name by its position, so this answer is not compared.
        assert name == "" or result_rows in (None, replace_name(plain, name)), name


@pytest.mark.torture
@pytest.mark.parametrize(("at", "place"), list(enumerate(TEXT_PLACES)))
def test_a_string_is_returned_unchanged_in_every_place(app: InProcessApp, key: str, at: int, place: str) -> None:
    for text in fragments_for_place(at):
        result_rows = rows(app, key, place.replace("T", quote_text(text)))
        assert result_rows in (None, [{"v": text}], [{"v": None}] if text == "" else None), text


@pytest.mark.torture
@pytest.mark.parametrize(("at", "queries"), list(enumerate(INTERPRETING_QUERY_PAIRS)))
def test_a_string_literal_and_a_column_give_the_same_result(
    app: InProcessApp, key: str, at: int, queries: tuple[str, str]
) -> None:
    for text in fragments_for_place(at):
        literal_rows = rows(app, key, queries[0].replace("T", quote_text(text)))
        column_rows = rows(app, key, f"{queries[1].replace('C', 't.c')} from (select {quote_text(text)} as c) as t")
        assert None in (literal_rows, column_rows) or literal_rows == column_rows, text


@pytest.mark.torture
@pytest.mark.parametrize(("at", "place"), list(enumerate(LITERAL_PLACES)))
def test_an_interpreted_string_reads_nothing_of_another_project(
    app: InProcessApp, key: str, at: int, place: str
) -> None:
    for text in fragments_for_place(at):
        rows(app, key, place.replace("T", quote_text(text)))


def rows(app: InProcessApp, key: str, sql: str) -> list[Row] | None:
    """Return the rows of an answer, or None if the query is refused.

    Fail on an internal error, and on data of the other project.
    """
    status, body = ask(app, key, sql=sql)
    assert status in (200, 400, 422), (sql, body)
    assert FOREIGN_TEXT not in body, sql
    assert '"bug' not in body, (sql, body)
    return list(json.loads(body)["result"]) if status == 200 else None


def replace_name(json_value: object, name: str) -> object:
    """Replace PLAIN_NAME by another name everywhere in the rows of an answer."""
    if isinstance(json_value, list):
        return [replace_name(item, name) for item in json_value]
    if isinstance(json_value, dict):
        return {replace_name(key, name): replace_name(value, name) for key, value in json_value.items()}
    return json_value.replace(PLAIN_NAME, name) if isinstance(json_value, str) else json_value
