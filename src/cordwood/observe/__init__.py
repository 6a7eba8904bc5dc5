"""Observations: facts as structs, from which the log and the metrics are derived."""
