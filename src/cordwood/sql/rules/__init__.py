"""Lowering rules for BigQuery's functions that all engines share; rules are composed of each engine's SQL templates."""
