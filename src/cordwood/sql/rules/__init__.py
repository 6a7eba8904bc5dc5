"""Rules for BigQuery's functions that all engines share: they are composed from each engine's templates of SQL."""
