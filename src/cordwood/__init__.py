"""Serve saved, parameterized SQL over log streams by HTTP."""

__version__ = "0.1.0"
