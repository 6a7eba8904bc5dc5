"""DuckDB's errors are translated into messages for the author of a query."""

import duckdb
import pytest

from cordwood.engines.duckdb.faults import fault_of_error
from cordwood.errors import OutOfMemory

BINDER_MESSAGES = [
    (
        'column "metadata.""n"" text" must appear in the GROUP BY clause or must be part of an aggregate function.',
        "The SELECT list expression references metadata.n which is neither grouped nor aggregated",
    ),
    (
        'column "metadata.""Foo"" text 2" must appear in the GROUP BY clause or must be part of an aggregate function.',
        "The SELECT list expression references metadata.Foo which is neither grouped nor aggregated",
    ),
    (
        "No function matches the given name and argument types '+(VARCHAR, INTEGER_LITERAL)'. You might need a cast.\n\t+(X)",
        "No matching signature for +(STRING, INT64)",
    ),
    (
        "Cannot compare values of type TIMESTAMP WITH TIME ZONE and type INTEGER_LITERAL - an explicit cast is required",
        "No matching signature for the comparison of TIMESTAMP and INT64",
    ),
    ("WHERE clause cannot contain aggregates!", "Aggregates are not allowed in WHERE"),
]


@pytest.mark.parametrize(("engine_message", "expected_message"), BINDER_MESSAGES)
def test_binder_errors_are_worded_as_in_bigquery(engine_message: str, expected_message: str) -> None:
    assert fault_of_error(duckdb.BinderException(f"Binder Error: {engine_message}")).message == expected_message


@pytest.mark.parametrize(
    "problem",
    [
        duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block of size 256.0 KiB (209.3 MiB used)"),
        duckdb.TransactionException(
            "TransactionContext Error: Failed to commit: failed to pin block of size 256.0 KiB"
        ),
    ],
)
def test_out_of_memory_is_recognized_also_in_a_failed_commit(problem: duckdb.Error) -> None:
    assert isinstance(fault_of_error(problem), OutOfMemory)


def test_a_query_cannot_fake_out_of_memory() -> None:
    problem = duckdb.InvalidInputException("Invalid Input Error: out of memory")
    assert not isinstance(fault_of_error(problem), OutOfMemory)


VALUE_ERRORS = [
    ("SELECT (SELECT 1 UNION ALL SELECT 2)", "Scalar subquery produced more than one element"),
    ("SELECT 1 // x FROM (SELECT 0 AS x)", "Division by zero"),
    ("SELECT decode('\\xFF'::BLOB)", "The bytes are not valid UTF-8"),
    ("SELECT 'nonsense'::TIMESTAMPTZ", 'Invalid timestamp: "nonsense"'),
    ("SELECT '2024-02-30 00:00:00'::TIMESTAMPTZ", 'Invalid timestamp: "2024-02-30 00:00:00"'),
    ("SELECT regexp_matches('a', '(')", "Cannot parse regular expression: missing ): ("),
    ("SELECT regexp_matches('a', '*')", "Cannot parse regular expression: no argument for repetition operator: *"),
]


@pytest.mark.parametrize(("sql", "expected_message"), VALUE_ERRORS)
def test_value_errors_omit_duckdbs_hints(sql: str, expected_message: str) -> None:
    with duckdb.connect(config={"threads": 1}) as connection, pytest.raises(duckdb.Error) as raised:
        connection.execute(sql).fetchall()
    assert fault_of_error(raised.value).message == expected_message


def test_the_middle_of_a_long_message_is_left_out() -> None:
    problem = duckdb.ConversionException(f"Conversion Error: Could not convert string '{'x' * 100_000}' to INT64")
    message = f"Could not convert string '{'x' * 60}…' to INT64"
    assert fault_of_error(problem).message == message


def test_a_quoted_line_with_another_message_is_ignored() -> None:
    """Raise an error whose message quotes the failing line. The line contains the message of another check."""
    sql = "SELECT CASE WHEN x = 0 THEN error('cordwood: division by zero') END, 'abc'::INTEGER FROM (VALUES (1)) t(x)"
    with duckdb.connect(config={"threads": 1}) as connection, pytest.raises(duckdb.Error) as raised:
        connection.execute(sql).fetchall()
    assert fault_of_error(raised.value).message == "Could not convert string 'abc' to INT64"
