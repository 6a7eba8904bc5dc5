"""Names and texts that try to be SQL: each is refused, or answered as the name or the text that it is."""

import json
from collections.abc import Iterator

import pytest

from cordwood.app.in_process import InProcessApp
from tests.attack.injections import (
    FOUND,
    LITERAL_PLACES,
    NAME_PLACES,
    READ_PLACES,
    TEXT_PLACES,
    as_name,
    as_text,
    some,
)
from tests.attack.test_pinned import FOREIGN, ask, pinned_key, two_projects

PLAIN = "zq7plain"
Row = dict[str, object]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def inside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    with two_projects(request.param, tmp_path_factory.mktemp("injected")) as inside:
        yield inside


@pytest.fixture(scope="module")
def key(inside: InProcessApp) -> str:
    return pinned_key(inside)


@pytest.mark.parametrize(("sql", "answer"), FOUND)
def test_what_was_found_is_answered_as_what_it_says(
    request: pytest.FixtureRequest, inside: InProcessApp, key: str, sql: str, answer: list[Row] | None
) -> None:
    found = rows(inside, key, sql)
    assert found == answer or (found is None and "clickhouse" in request.node.name)


@pytest.mark.torture
@pytest.mark.parametrize(("at", "place"), list(enumerate(NAME_PLACES)))
def test_a_name_is_a_name_wherever_it_stands(
    request: pytest.FixtureRequest, inside: InProcessApp, key: str, at: int, place: str
) -> None:
    plain = rows(inside, key, place.replace("N", as_name(PLAIN)))
    if plain is None and "clickhouse" in request.node.name:
        pytest.skip("not supported there")
    assert plain is not None
    for name in some(at):
        found = rows(inside, key, place.replace("N", as_name(name)))
        # What has no name is named by its place.
        assert name == "" or found in (None, renamed(plain, name)), name


@pytest.mark.torture
@pytest.mark.parametrize(("at", "place"), list(enumerate(TEXT_PLACES)))
def test_a_text_is_a_text_wherever_it_stands(inside: InProcessApp, key: str, at: int, place: str) -> None:
    for text in some(at):
        found = rows(inside, key, place.replace("T", as_text(text)))
        assert found in (None, [{"v": text}], [{"v": None}] if text == "" else None), text


@pytest.mark.torture
@pytest.mark.parametrize(("at", "places"), list(enumerate(READ_PLACES)))
def test_a_text_is_read_as_what_it_is_when_it_comes_from_a_row(
    inside: InProcessApp, key: str, at: int, places: tuple[str, str]
) -> None:
    for text in some(at):
        known = rows(inside, key, places[0].replace("T", as_text(text)))
        read = rows(inside, key, f"{places[1].replace('C', 't.c')} from (select {as_text(text)} as c) as t")
        assert None in (known, read) or known == read, text


@pytest.mark.torture
@pytest.mark.parametrize(("at", "place"), list(enumerate(LITERAL_PLACES)))
def test_a_text_that_means_something_means_no_more(inside: InProcessApp, key: str, at: int, place: str) -> None:
    for text in some(at):
        rows(inside, key, place.replace("T", as_text(text)))


def rows(inside: InProcessApp, key: str, sql: str) -> list[Row] | None:
    """The rows of an answer; None where the query is refused. It never fails within, and never tells of others."""
    status, told = ask(inside, key, sql=sql)
    assert status in (200, 400, 422), (sql, told)
    assert FOREIGN not in told, sql
    assert '"bug' not in told, (sql, told)
    return list(json.loads(told)["result"]) if status == 200 else None


def renamed(found: object, name: str) -> object:
    """What was answered of the plain name, of another."""
    if isinstance(found, list):
        return [renamed(one, name) for one in found]
    if isinstance(found, dict):
        return {renamed(key, name): renamed(value, name) for key, value in found.items()}
    return found.replace(PLAIN, name) if isinstance(found, str) else found
