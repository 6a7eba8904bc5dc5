"""Reads what a statement gives to its end: a result that is not holds its transaction, and all that was dropped since."""

from collections.abc import Mapping
from typing import Any

import duckdb


def first_row(
    cursor: duckdb.DuckDBPyConnection, statement: str, values: Mapping[str, object] | None = None
) -> tuple[Any, ...] | None:
    """The first row, or None; for statements of a row or none."""
    rows = cursor.execute(statement, values).fetchall()
    return rows[0] if rows else None
