"""An engine in a process of its own, behind the port: it can be killed at any moment and is replaced."""
