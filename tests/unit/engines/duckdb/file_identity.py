"""Detection of a reopened database file."""

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine


def file_identity(engine: DuckDBEngine) -> object:
    """Return DuckDB's id of the attached file. Each time the file is attached, it gets another id."""
    with engine._session.cursor() as cursor:
        sql = "SELECT database_oid FROM duckdb_databases() WHERE database_name = 'store'"
        return cursor.execute(sql).fetchall()
