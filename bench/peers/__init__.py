"""The systems that cordwood is compared with: DuckDB in process, and PostgreSQL with Logflare's table."""
