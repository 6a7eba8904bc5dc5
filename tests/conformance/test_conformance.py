"""BigQuery's documented answers through the whole compiler, on a bare DuckDB."""

from collections import Counter
from typing import Any

import duckdb

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryFault
from cordwood.sql.compile import compile_alone
from tests.conformance.conftest import Case

LEAST_RIGHT = 0.97
RIGHT = "right"


def outcome(case: Case, connection: duckdb.DuckDBPyConnection, comparison: Any) -> str:
    """`right`, the code of a refusal, or what went wrong."""
    try:
        sql = compile_alone(case["sql"], DuckDBTarget()).sql
    except QueryFault as fault:
        return fault.code
    try:
        rows = comparison.table_rows(connection.sql(sql).to_arrow_table())
    except duckdb.Error:
        return "failed"
    is_right, _ = comparison.compare(case, rows)
    return RIGHT if is_right else "wrong"


def test_documented_answers_are_given_or_refused(
    cases: list[Case], bare_duckdb: duckdb.DuckDBPyConnection, comparison: Any
) -> None:
    found = Counter(outcome(case, bare_duckdb, comparison) for case in cases)
    missed = len(cases) - found[RIGHT]
    assert found[RIGHT] / len(cases) >= LEAST_RIGHT, found
    assert found["query.unsupported"] * 2 >= missed, found
