"""Plan and run queries on the embedded engine."""
