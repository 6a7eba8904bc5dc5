"""Tools to fork, connect, measure and kill child processes; they do not depend on the rest of cordwood."""
