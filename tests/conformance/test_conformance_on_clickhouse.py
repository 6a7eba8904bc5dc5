"""BigQuery's documented answers through the whole compiler, on a bare ClickHouse inside the process."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.errors import QueryFault
from cordwood.sql.compile import compile_alone
from tests.chdb_databases import bare_connection
from tests.conformance.conftest import Case

LEAST_RIGHT = 0.92
RIGHT = "right"


@pytest.fixture
def bare_clickhouse() -> Iterator[Any]:
    """Nothing is set but how JSON is sent: what a query needs stands in the query."""
    connection = bare_connection()
    connection.query("SET output_format_binary_write_json_as_string = 1")
    yield connection
    connection.close()


def outcome(case: Case, connection: Any, comparison: Any) -> str:
    """`right`, the code of a refusal, or what went wrong."""
    try:
        sql = compile_alone(case["sql"], ClickHouseTarget()).sql
    except QueryFault as fault:
        return fault.code
    try:
        rows = comparison.rowbinary_rows(connection.query(sql, "RowBinaryWithNamesAndTypes").bytes())[1]
    except Exception:  # noqa: BLE001 - chDB fails in many ways, and each is a miss
        # What a failed query had begun to write stands before the next answer.
        connection.query("SELECT 1", "RowBinary")
        return "failed"
    is_right, _ = comparison.compare(case, rows)
    return RIGHT if is_right else "wrong"


def test_documented_answers_are_given_on_clickhouse(cases: list[Case], bare_clickhouse: Any, comparison: Any) -> None:
    found = Counter(outcome(case, bare_clickhouse, comparison) for case in cases)
    assert found[RIGHT] / len(cases) >= LEAST_RIGHT, found
