"""Whether the engine's file was opened again, for tests of when that happens."""

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine


def identity(engine: DuckDBEngine) -> object:
    """Of the file as it is opened now: each time another one."""
    with engine._session.cursor() as cursor:
        asked = "SELECT database_oid FROM duckdb_databases() WHERE database_name = 'store'"
        return cursor.execute(asked).fetchall()
