"""Engines: the interface that each implements, and one package for each engine, with the same file names."""
