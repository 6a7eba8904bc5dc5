"""Redaction of events' texts by an engine's functions for each mode."""

import msgspec
from sqlglot import exp

from cordwood.sql.lowering import Rule, RuleSet
from cordwood.sql.nodes import RedactedEvent, RedactedEventText, RedactedSecret, RedactedText
from cordwood.sql.redaction.calls import redacted_event, redacted_text, redaction_mode_of
from cordwood.sql.rules.vocabulary import Conversion


class Redactions(msgspec.Struct, frozen=True):
    """The rules of redacted values: `event_text` reads an event's value as text, and `event_value` makes one of a text."""

    event_text: Conversion
    event_value: Conversion
    secret: Rule

    def _text(self, node: exp.Expr) -> exp.Expr:
        return redacted_text(node.expressions[0], redaction_mode_of(node))

    def _event_text(self, node: exp.Expr) -> exp.Expr:
        return self.event_value(redacted_text(self.event_text(node.expressions[0]), redaction_mode_of(node)))

    def _event(self, node: exp.Expr) -> exp.Expr:
        return redacted_event(node.expressions[0], redaction_mode_of(node))

    def rules(self) -> RuleSet:
        return RuleSet(
            operations={
                RedactedText: self._text,
                RedactedEventText: self._event_text,
                RedactedEvent: self._event,
                RedactedSecret: self.secret,
            }
        )
