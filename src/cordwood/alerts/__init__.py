"""Alerts: evaluate saved queries periodically, keep the states of their groups, and send the changes."""
