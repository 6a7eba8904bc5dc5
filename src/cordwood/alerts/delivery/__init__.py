"""Delivery: the messages of a notification in the form of each target, and sending them within a deadline."""
