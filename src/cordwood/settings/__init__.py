"""The operator's settings: one frozen struct of sections, with the source of each value."""
