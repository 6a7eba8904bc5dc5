"""Listeners for protocols other than HTTP: syslog, Fluent Forward, and OTLP over gRPC.

The package is imported only if a setting has an address for one of these listeners.
"""
