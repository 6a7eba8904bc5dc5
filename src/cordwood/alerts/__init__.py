"""Alerts: evaluate saved queries periodically, keep the states of their groups, and send notifications of changes."""
