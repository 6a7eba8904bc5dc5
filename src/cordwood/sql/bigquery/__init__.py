"""BigQuery's formats, time zones and date parts, independent of the engine that computes them."""
