"""The events of the demo: a week of ordinary traffic, an incident in the last hours, and live traffic while it runs."""
