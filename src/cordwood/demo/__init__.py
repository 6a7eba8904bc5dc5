"""The demo's events: a week of ordinary traffic, an incident in its last hours, and what arrives while the demo runs."""
