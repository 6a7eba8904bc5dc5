"""Name resolution: names to columns, records to paths, and parameters to slots."""
