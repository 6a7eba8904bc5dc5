"""Fork, connect, measure and kill child processes; independent of logs and queries."""
