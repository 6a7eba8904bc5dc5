"""Detection of other SQL dialects after a query has failed: what BigQuery writes instead."""
