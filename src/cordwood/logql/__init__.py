"""LogQL, the query language of Grafana Loki: parsed, translated to BigQuery's syntax tree, and compiled like SQL."""
