"""The cache of answers: its interface, and an implementation in memory."""
