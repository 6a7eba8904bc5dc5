"""What is personal or secret in a text, and where in a plan texts are read from events."""
