"""Engines: their interface, the packages of DuckDB and ClickHouse, and `hosted` to run one in its own process."""
