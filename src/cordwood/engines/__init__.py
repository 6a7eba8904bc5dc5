"""Engines: the port, and one folder an engine with the same file names in each."""
