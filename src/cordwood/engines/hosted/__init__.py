"""An engine in a process of its own, which can be killed at any moment and is then replaced."""
