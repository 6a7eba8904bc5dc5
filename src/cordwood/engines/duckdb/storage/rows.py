"""Read the result of a statement to its end, because an unfinished result keeps its transaction open."""

from collections.abc import Mapping
from typing import Any

import duckdb


def first_row(
    cursor: duckdb.DuckDBPyConnection, statement: str, values: Mapping[str, object] | None = None
) -> tuple[Any, ...] | None:
    """Return the first row of a statement that yields one row or none."""
    rows = cursor.execute(statement, values).fetchall()
    return rows[0] if rows else None
