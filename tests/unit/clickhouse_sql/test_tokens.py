"""Tokens of sums without blanks, which sqlglot would read as a single number or name."""

import pytest
from sqlglot import exp

from cordwood.clickhouse_sql.parse import parse_clickhouse_sql


@pytest.mark.parametrize(
    ("written", "with_blanks"),
    [
        ("1e3+1", "1e3 + 1"),
        ("1e3+1e3+1e3-1", "1e3 + 1e3 + 1e3 - 1"),
        ("1e3+1e+3-2", "1e3 + 1e+3 - 2"),
        ("1.5E3+1_000", "1.5E3 + 1000"),
        ("1e3-x1e3", "1e3 - x1e3"),
        ("'1e3+1'", "'1e3+1'"),
        ("`1e3+1`", '"1e3+1"'),
    ],
)
def test_a_sum_without_blanks_is_read_as_a_sum(written: str, with_blanks: str) -> None:
    tree = parse_clickhouse_sql(f"SELECT {written}").tree
    assert tree.sql("clickhouse") == f"SELECT {with_blanks}"


def test_each_number_of_a_long_sum_is_a_token() -> None:
    tree = parse_clickhouse_sql("SELECT " + "+".join(["1e3"] * 50)).tree
    assert [literal.this for literal in tree.find_all(exp.Literal)] == ["1e3"] * 50
