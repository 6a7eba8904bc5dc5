"""Processes below the serving one: how they are forked, spoken to, measured and ended. Knows nothing of logs or queries."""
