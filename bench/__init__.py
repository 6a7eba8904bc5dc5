"""Benchmarks: `make bench` starts a real service, fills it, asks it, and compares with what was measured before."""
