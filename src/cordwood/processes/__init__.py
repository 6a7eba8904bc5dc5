"""Tools to fork, connect, measure and kill child processes. They do not depend on the rest of cordwood."""
