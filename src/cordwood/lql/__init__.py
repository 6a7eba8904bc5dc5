"""LQL, the short query language, translated to the syntax tree of the equivalent BigQuery SQL."""
