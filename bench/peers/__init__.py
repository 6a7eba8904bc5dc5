"""The systems with which cordwood is compared: DuckDB and ClickHouse in process, PostgreSQL and VictoriaLogs."""
