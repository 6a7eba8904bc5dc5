"""Engine text with holes for trees."""

import pytest
from sqlglot import exp, parse_one

from cordwood.sql.fragment import fragment, is_closed, literal_name, literal_text, print_tree


def printed(tree: exp.Expr) -> str:
    return print_tree(tree, lambda node: node.sql("duckdb"))


def test_parts_are_set_in_brackets_where_an_operator_could_reach_into_them() -> None:
    total = parse_one("a + b")
    assert printed(fragment("{0} * 2", total)) == "(a + b) * 2"
    assert printed(fragment("f({0}, {0})", total)) == "f(a + b, a + b)"
    assert printed(fragment("{0} * 2", exp.column("a", "t"))) == "t.a * 2"


def test_a_fragment_in_a_tree_is_printed_where_it_stands() -> None:
    tree = exp.Add(this=fragment("{0}::BIGINT", exp.column("y")), expression=exp.Literal.number(1))
    assert printed(exp.select(tree)) == "SELECT (y::BIGINT) + 1"


def test_what_looks_like_a_hole_in_a_text_is_text() -> None:
    name, text = literal_name("{0}"), literal_text("it's {0} @a")
    assert printed(fragment(f"{{0}}.{name} = {text}", exp.column("x"))) == """x."{0}" = 'it''s {0} @a'"""


def test_a_count_in_a_regular_expression_is_no_hole() -> None:
    assert printed(fragment(r"regexp_matches({0}, '\d{4}')", exp.column("x"))) == r"regexp_matches(x, '\d{4}')"


@pytest.mark.parametrize("text", ["a", "1.5", "'it''s (b'", '"a"."b c"', "f(x, (y))", "(a + b)", "[1, 2]", "f(x)[1]"])
def test_a_text_that_stands_for_itself_is_closed(text: str) -> None:
    assert is_closed(text)


@pytest.mark.parametrize(
    "text", ["a + b", "f(x) + g(y)", "(a) + (b)", "x::BIGINT", "CASE WHEN a THEN b END", "'a' || 'b'"]
)
def test_a_text_that_an_operator_could_reach_into_is_open(text: str) -> None:
    assert not is_closed(text)
