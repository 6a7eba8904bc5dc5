"""Loki's read API: queries in LogQL, labels, streams and volumes, as Grafana and logcli ask for them."""
