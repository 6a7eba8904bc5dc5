"""The compiler of LQL, the short query language: it translates LQL to the syntax tree of equivalent BigQuery SQL."""
