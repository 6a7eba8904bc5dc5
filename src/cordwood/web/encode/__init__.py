"""Encoders of rows, one module for each format."""
