"""Helpers for cursors: transactions, and queries of one row."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import duckdb


@contextmanager
def transaction(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    cursor.execute("BEGIN")
    try:
        yield
        cursor.execute("COMMIT")
    except BaseException:
        roll_back(cursor)
        raise


def roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    """Roll back, unless the engine has already done so."""
    with suppress(duckdb.Error):
        cursor.execute("ROLLBACK")


def first_row(
    cursor: duckdb.DuckDBPyConnection, statement: str, values: Mapping[str, object] | None = None
) -> tuple[Any, ...] | None:
    """Return the first row of a statement that yields one row or none."""
    rows = cursor.execute(statement, values).fetchall()
    return rows[0] if rows else None
