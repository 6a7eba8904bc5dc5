"""Engines: the interface that each implements, and one package per engine with the same file names in each."""
