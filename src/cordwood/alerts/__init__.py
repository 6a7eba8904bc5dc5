"""Alerts: evaluate saved queries periodically, keep the states of groups of rows, and send notifications of changes."""
