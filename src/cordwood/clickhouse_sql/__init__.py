"""ClickHouse's SQL dialect over one table of logs, translated to the syntax tree of the equivalent BigQuery SQL."""
