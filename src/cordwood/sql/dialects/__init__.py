"""Recognise spellings of other SQL dialects and say what BigQuery writes instead, only after a query has failed."""
