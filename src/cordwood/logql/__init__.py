"""The compiler of LogQL, Grafana Loki's query language: it translates LogQL to BigQuery's syntax tree."""
