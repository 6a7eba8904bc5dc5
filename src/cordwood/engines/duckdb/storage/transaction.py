"""Transactions: all changes of a block are made, or none."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
