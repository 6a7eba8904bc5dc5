"""Listeners beside HTTP: syslog, Fluent Forward, and OTLP over gRPC.

The package is imported only if a setting has an address for a listener.
"""
