"""The operator's settings: a frozen struct of sections, with the source of each value."""
