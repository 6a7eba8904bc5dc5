"""Engines: their interface, the packages of the two engines, and `hosted`, which runs an engine in its own process."""
