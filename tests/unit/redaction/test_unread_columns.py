"""Unread columns: output columns that no other clause of the SELECT reads, so that they can be redacted later."""

import pytest
from sqlglot import exp, parse_one

from cordwood.sql.redaction.redaction_pass import output_positions_unused_by_clauses


def positions_of_unread(sql: str) -> set[int]:
    tree = parse_one(sql, dialect="duckdb")
    assert isinstance(tree, exp.Select)
    return set(output_positions_unused_by_clauses(tree))


@pytest.mark.parametrize(
    "clauses",
    ["", "where t.a = 'x'", "order by t.a", "order by upper(t.b) desc limit 3", "order by row_number() over (order by t.a)",
     "qualify count(*) over (partition by t.a) > 1", "order by (select max(u.x) from u)", "limit 1 offset 2"],
)  # fmt: skip
def test_all_columns_are_unread_if_clauses_read_other_expressions(clauses: str) -> None:
    assert positions_of_unread(f"select t.a as a, t.b as b from t {clauses}") == {1, 2}


def test_a_sort_key_is_not_unread() -> None:
    assert positions_of_unread("select t.a as a, t.b as b, t.c as c from t order by 3, 1 desc") == {2}


@pytest.mark.parametrize(
    "clauses",
    ["order by (1)", "order by 01", "order by -(-1)", "order by 1 + 0", "order by 3", "order by 0", "order by true", "order by '1'",
     "order by a", 'order by "a", 2', "order by all", "order by null", "order by 1.0", "order by #1", "order by $1", "group by 1, 2",
     "group by all", "having true", "using sample 3"],
)  # fmt: skip
def test_no_column_is_unread_if_a_clause_may_refer_to_one(clauses: str) -> None:
    assert positions_of_unread(f"select t.a as a, t.b as b from t {clauses}") == set()


@pytest.mark.parametrize("head", ["distinct", "distinct on (t.a)"])
def test_no_column_is_unread_if_rows_are_compared(head: str) -> None:
    assert positions_of_unread(f"select {head} t.a as a, t.b as b from t") == set()
