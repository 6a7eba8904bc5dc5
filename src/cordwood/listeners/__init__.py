"""Listeners beside HTTP: syslog over TCP, TLS and UDP, and Fluent Forward. Imported only if a setting has an address."""
