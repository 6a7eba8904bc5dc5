"""Sealing at once what an engine still holds in memory, for tests that look at what lies in the file."""

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine


def seal(engine: DuckDBEngine) -> None:
    store = engine._storage.get_store("s")
    with engine._session.cursor() as cursor:
        while chunk := store.take_chunk(whole_groups_only=False):
            store.flush(chunk, cursor)
