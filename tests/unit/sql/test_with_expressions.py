"""WITH(name AS value, …, result) is replaced by its result, in which the values replace the names."""

import pytest

from cordwood.errors import BadQuerySyntax, QueryFault, QueryRefused
from cordwood.sql.admit import admit_query
from cordwood.sql.parse import parse_sql


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with(a as 1, a + 2)", "((1) + 2)"),
        ("with(a as x, b as a + 1, a * b)", "((x) * ((x) + 1))"),
        ("with(a as sum(x), b as count(x), a / b)", "((sum(x)) / (count(x)))"),
        ("with(s as t.row, s.a.b)", "((t.row).a.b)"),
        ("with(a as 'x', b as with(a as 'y', a), a || b)", "(('x') || ((('y'))))"),
    ],
)
def test_names_are_the_values_before_them(text: str, expected: str) -> None:
    tree = admit_query(parse_sql(f"select {text} from t")).tree
    assert tree.expressions[0].sql("bigquery") == expected


@pytest.mark.parametrize("text", ["with(a as 1)", "with(1, 2)", "with()", "with(a 1, a)"])
def test_an_invalid_with_expression_is_a_syntax_error(text: str) -> None:
    with pytest.raises(QueryFault) as raised:
        parse_sql(f"select {text} from t")
    assert raised.value.span is not None


def test_a_common_table_expression_is_not_a_with_expression() -> None:
    assert admit_query(parse_sql("with a as (select 1 as x) select x from a")).tree is not None


def test_values_of_exponential_size_are_refused() -> None:
    doubling = ", ".join(f"a{n + 1} as a{n} + a{n}" for n in range(40))
    with pytest.raises(QueryRefused, match="repeated too often"):
        parse_sql(f"select with(a0 as x, {doubling}, a40) from t")


def test_a_result_without_its_comma_is_a_syntax_error() -> None:
    with pytest.raises(BadQuerySyntax):
        parse_sql("select with(a as 1 a) from t")
