"""The compiler: BigQuery SQL in, an engine's SQL out. Pure: no clock, no I/O, no settings."""
