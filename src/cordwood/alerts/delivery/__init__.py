"""Delivery of notifications: creating messages in the format of each target, and sending them within a deadline."""
