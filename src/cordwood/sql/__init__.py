"""The compiler from BigQuery SQL to an engine's SQL. It does no I/O; its result does not depend on time or settings."""
