"""The second dialect: ClickHouse SQL over one table of logs, translated into the tree that BigQuery SQL would make."""
