"""Followed queries: each query is evaluated once as events arrive, for any number of followers of its rows."""
