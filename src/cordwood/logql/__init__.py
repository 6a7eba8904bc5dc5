"""LogQL, the query language of Grafana Loki: parsed, translated to the tree that SQL would give, and compiled like SQL."""
