"""Whether a call is redacted, and how: the key's terms before the header, the header before the endpoint."""

from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.serve.ask import Ask
from cordwood.sql.redaction.redaction import Redaction


class Redactions:
    """One for each mode, for as long as the process runs: each remembers the names that it has judged."""

    def __init__(self, rules: RedactionRules) -> None:
        self._by_mode = {mode: Redaction(mode, rules) for mode in RedactMode}

    def of(self, ask: Ask) -> Redaction | None:
        """None for a call that is answered as it is stored."""
        return self.by_mode(ask.endpoint.redact_mode) if ask.redacts else None

    def by_mode(self, mode: str) -> Redaction:
        return self._by_mode[RedactMode(mode)]
