"""Spellings of other SQL dialects, and what BigQuery writes instead: used only once a query has failed."""
