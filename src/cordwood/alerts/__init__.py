"""Alerts: evaluate saved queries periodically, track which groups of rows fire, and send notifications of changes."""
