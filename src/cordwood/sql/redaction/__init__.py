"""Redaction of personal data and secrets: patterns for texts, and rewriting of the reads of events."""
