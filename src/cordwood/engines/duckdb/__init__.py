"""The embedded engine, which runs DuckDB: its SQL dialect, its storage, and its query execution."""
