"""Engines: their common interface, the packages of the two engines, and `hosted`: an engine in its own process."""
