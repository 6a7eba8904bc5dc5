"""Immediate flush of pending events, for tests of the events in the file."""

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine


def flush_pending(engine: DuckDBEngine, stream: str = "s") -> None:
    store = engine._storage.get_store(stream)
    with engine._session.cursor() as cursor:
        while chunk := store.take_chunk(whole_groups_only=False):
            store.flush(chunk, cursor)
