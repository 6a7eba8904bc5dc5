"""Name resolution: names become columns, records become paths, and parameters become slots."""
