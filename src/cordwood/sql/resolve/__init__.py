"""Names to columns, records to paths, parameters to slots: the meaning of a query in its scope."""
