"""Hints for SQL of other dialects: after a query has failed, find foreign syntax and say how BigQuery writes it."""
