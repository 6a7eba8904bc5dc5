"""Fork, connect, measure and kill processes below the serving one; independent of logs and queries."""
