"""Redaction of personal data and secrets: patterns for texts, and the reads of events to which they apply."""
