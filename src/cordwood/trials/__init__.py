"""Endpoint tests: Markdown pages with given events and calls, and the expected answers."""
