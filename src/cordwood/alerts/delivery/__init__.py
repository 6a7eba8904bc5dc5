"""Delivery of notifications: their messages in the format of each target, and sending them within a deadline."""
