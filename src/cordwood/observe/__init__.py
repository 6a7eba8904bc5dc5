"""Observations: structs with facts about what the service did. The log and the metrics are derived from them."""
