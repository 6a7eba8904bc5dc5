"""The compiler from BigQuery SQL to an engine's SQL. Pure: no clock, no I/O, no settings."""
