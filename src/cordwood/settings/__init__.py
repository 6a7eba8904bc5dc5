"""The operator's settings, grouped into sections, and the loader that records the source of each value."""
