"""Parsing and formatting of LQL."""

import pytest
from hypothesis import given, settings

from cordwood.errors import BadQuerySyntax, Span
from cordwood.lql.filters import read_number
from cordwood.lql.parse import MAX_NESTING_DEPTH, MAX_QUERY_CHARACTERS, MAX_QUERY_CLAUSES, parse_lql
from cordwood.lql.query import LqlQuery
from cordwood.lql.values import MAX_PATH_STEPS
from tests.unit.lql.formatting import format_query
from tests.unit.lql.queries import QUERIES, TEXTS_LIKE_QUERIES


def span_of_refusal(text: str) -> Span:
    try:
        parse_lql(text)
    except BadQuerySyntax as fault:
        assert fault.span is not None
        return fault.span
    raise AssertionError(text)


@pytest.mark.parametrize("text", ['"-".status:5', '"-a".b:1', '-"-a".b:1', 's:"-a"'])
def test_a_quoted_key_that_begins_with_a_hyphen_is_not_a_negation(text: str) -> None:
    assert parse_lql(format_query(parse_lql(text))) == parse_lql(text)


@given(QUERIES)
def test_a_formatted_query_parses_to_the_same_query(query: LqlQuery) -> None:
    assert parse_lql(format_query(query)) == query


@given(TEXTS_LIKE_QUERIES)
@settings(max_examples=500)
def test_any_text_is_parsed_or_refused_with_a_position_inside_it(text: str) -> None:
    try:
        query = parse_lql(text)
    except BadQuerySyntax as fault:
        assert fault.span is not None
        lines = text.split("\n")
        assert 1 <= fault.span.line <= len(lines)
        assert 1 <= fault.span.column <= len(lines[fault.span.line - 1]) + 1
    else:
        assert parse_lql(format_query(query)) == query


def test_the_length_of_a_query_is_limited() -> None:
    assert parse_lql("x" * MAX_QUERY_CHARACTERS)
    assert span_of_refusal("x" * (MAX_QUERY_CHARACTERS + 1)) == Span(1, MAX_QUERY_CHARACTERS + 1)


def test_the_number_of_clauses_is_limited() -> None:
    assert len(parse_lql("x " * MAX_QUERY_CLAUSES).filter.filters) == MAX_QUERY_CLAUSES
    assert span_of_refusal("x " * (MAX_QUERY_CLAUSES + 1)) == Span(1, 2 * MAX_QUERY_CLAUSES + 1)


def test_the_depth_of_groups_is_limited() -> None:
    assert parse_lql("(" * MAX_NESTING_DEPTH + "x" + ")" * MAX_NESTING_DEPTH) == parse_lql("x")
    assert span_of_refusal("(" * 10_000) == Span(1, MAX_NESTING_DEPTH + 2)


def test_a_position_includes_the_line() -> None:
    assert span_of_refusal("error\n  m.status:299..200") == Span(2, 12)


def test_paths_have_a_maximum_number_of_steps() -> None:
    assert parse_lql("m." + "x." * (MAX_PATH_STEPS - 2) + "y:1")
    for steps in (MAX_PATH_STEPS - 1, 20_000):
        with pytest.raises(BadQuerySyntax, match="more than 32 steps") as raised:
            parse_lql("a m." + "x." * steps + "y:1")
        assert raised.value.span == Span(1, 3)


@pytest.mark.parametrize(
    ("text", "sql"), [("1e-99999999999999999999", "0"), ("0e-99999999999999999999", "0"), ("1e-5", "0.00001")]
)
def test_a_number_with_a_small_exponent_is_read(text: str, sql: str) -> None:
    number = read_number(text, 0)
    assert number is not None
    assert number.sql() == sql
