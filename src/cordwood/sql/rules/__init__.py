"""The lowering rules that all engines share for BigQuery's functions; each engine provides its SQL templates."""
