"""Followed queries: one evaluation of each query as events arrive, and any number of followers of its rows."""
