"""The meaning that a target gives to what redaction has put into a plan, and the mode that stands in it."""

from sqlglot import exp

from cordwood.model.redaction import RedactMode
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, Rule
from cordwood.sql.nodes import REDACTED_EVENT, REDACTED_EVENT_TEXT, REDACTED_SECRET, REDACTED_TEXT
from cordwood.sql.operations import RedactionCall, RedactText
from cordwood.sql.redaction.hiding import HIDING_EVENT, HIDING_TEXT, TRUSTING_TEXT


def redaction_meaning(*, text: Rule, event_text: Rule, event: Rule, secret: Rule) -> Meaning:
    """One rule a kind of value; its first argument is the value."""
    return Meaning(
        named={
            REDACTED_TEXT.upper(): text,
            REDACTED_EVENT_TEXT.upper(): event_text,
            REDACTED_EVENT.upper(): event,
            REDACTED_SECRET.upper(): secret,
        }
    )


def redacted_text(text: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts a text."""
    name = f"{HIDING_TEXT}_{mode}"
    return fragment(f"{name}({{0}})", text, does=RedactText(name, optimistic=f"{TRUSTING_TEXT}_{mode}"))


def redacted_event(value: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts an event's value."""
    name = f"{HIDING_EVENT}_{mode}"
    return fragment(f"{name}({{0}})", value, does=RedactionCall(name))


def mode_of(node: exp.Expr) -> RedactMode:
    return RedactMode(str(constant_text(node.expressions[1])))
