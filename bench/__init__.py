"""Benchmarks.

`make bench` loads events into a real service, times queries, and compares the ratios with a baseline.
"""
