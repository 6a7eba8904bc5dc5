"""Whether and how an answer is redacted: the key decides before the header, the header before the endpoint."""

from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.serve.ask import Ask
from cordwood.sql.redaction.redaction import Redaction


class Redactions:
    """One Redaction for each mode.

    They live as long as the process, because each caches the names it has classified.
    """

    def __init__(self, rules: RedactionRules) -> None:
        self._by_mode = {mode: Redaction(mode, rules) for mode in RedactMode}

    def of(self, ask: Ask) -> Redaction | None:
        """Return the redaction of a request; None if it is answered as stored."""
        return self.by_mode(ask.endpoint.redact_mode) if ask.redacts else None

    def by_mode(self, mode: str) -> Redaction:
        return self._by_mode[RedactMode(mode)]
