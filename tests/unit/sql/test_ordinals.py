"""Constants in ORDER BY and GROUP BY are resolved to column numbers or removed."""

from uuid import UUID

import pytest

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.definitions import Endpoint
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint

PROGRAM = parse_and_check_endpoint(
    Endpoint(
        "e",
        UUID(int=3),
        "with t as (select id, event_message from s) select id from t",
        "s",
        accepts_sandbox_queries=True,
    )
)


def compile_sql(sql: str) -> str:
    return compile_sandbox_query(PROGRAM, sql, DuckDBTarget(), {}).sql


@pytest.mark.parametrize(
    "ordinal", ["2", "(2)", "((2))", "02", "0x2", "0X02", "(0x2)", "event_message", "t.event_message"]
)
def test_ordinals_have_one_spelling(ordinal: str) -> None:
    assert compile_sql(f"select id, event_message from t order by {ordinal}") == compile_sql(
        "select id, event_message from t order by 2"
    )


@pytest.mark.parametrize(
    "constant",
    ["-(-1)", "- -1", "-1", "1.0", "1e0", "'1'", "true", "null", "1 + 0", "cast(1 as int64)", "(select 1)", "date '2026-01-02'",
     "coalesce(1)", "if(true, 1, 2)", "b'1'", "~(-2)"],
)  # fmt: skip
def test_other_constants_are_removed_from_order_by(constant: str) -> None:
    for sql in ("select id, event_message from t", "select id, event_message from t union all select id, id from t"):
        assert compile_sql(f"{sql} order by {constant}") == compile_sql(sql)


@pytest.mark.parametrize("constant", ["-(-1)", "true", "-1", "1 + 0", "'a'"])
def test_group_by_a_constant_groups_by_no_column(constant: str) -> None:
    assert " GROUP BY CASE WHEN TRUE THEN " in compile_sql(f"select count(*) as n from t group by {constant}")


def test_ordinals_of_select_as_struct_are_replaced_by_values() -> None:
    assert compile_sql("select as struct id, event_message from t order by 2") == compile_sql(
        "select as struct id, event_message from t order by event_message"
    )


def test_grouping_keys_of_pipes_are_resolved_in_both_places() -> None:
    assert "GROUP BY 1" in compile_sql("from t |> aggregate count(*) as n group by event_message")
