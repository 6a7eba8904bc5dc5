"""Rows as bytes: one form a file."""
