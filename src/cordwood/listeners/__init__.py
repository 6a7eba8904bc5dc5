"""Listeners beside HTTP: syslog, Fluent Forward, and OTLP over gRPC. Imported only if a setting has an address for one."""
