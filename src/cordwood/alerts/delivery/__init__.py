"""Delivery of notifications: format the messages for each target, and send them within a deadline."""
