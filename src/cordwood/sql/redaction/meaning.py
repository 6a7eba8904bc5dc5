"""The calls of an engine's functions of redaction that its rules write."""

from sqlglot import exp

from cordwood.model.redaction import RedactMode
from cordwood.sql.fragment import fragment
from cordwood.sql.operations import Redacted, RedactionCall, RedactText, operation_of
from cordwood.sql.redaction.hiding import HIDING_EVENT, HIDING_TEXT, TRUSTING_TEXT


def redacted_text(text: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts a text."""
    name = f"{HIDING_TEXT}_{mode}"
    return fragment(f"{name}({{0}})", text, does=RedactText(name, optimistic=f"{TRUSTING_TEXT}_{mode}"))


def redacted_event(value: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts an event's value."""
    name = f"{HIDING_EVENT}_{mode}"
    return fragment(f"{name}({{0}})", value, does=RedactionCall(name))


def mode_of(node: exp.Expr) -> RedactMode:
    """Return the mode of a redacted read."""
    read = operation_of(node, Redacted)
    if read is None:
        raise ValueError("no redacted read")
    return read.mode
