"""Name resolution of a query: names become columns, records become paths, and parameters become slots."""
