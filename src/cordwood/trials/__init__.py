"""Endpoint tests: Markdown pages with events, calls, and the expected answers."""
