"""Runs the pages of spec/ as tests: what a page says, what happens, and whether they agree."""
