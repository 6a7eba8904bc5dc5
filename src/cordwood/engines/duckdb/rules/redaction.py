"""Texts of events with what is personal hidden in them: the macros that the session has made for each mode."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.words import variant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning
from cordwood.sql.operations import (
    AsEventValue,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
    RedactionCall,
    operation_of,
)
from cordwood.sql.redaction.calls import mode_of, redacted_event, redacted_text
from cordwood.sql.redaction.masking import HIDDEN, REDACT_EVENT


def _text(node: exp.Expr) -> exp.Expr:
    return redacted_text(node.expressions[0], mode_of(node))


def _event_text(node: exp.Expr) -> exp.Expr:
    text = redacted_text(variant_text(node.expressions[0]), mode_of(node))
    return fragment("{0}::VARIANT", text, does=AsEventValue())


def _event(node: exp.Expr) -> exp.Expr:
    return redacted_event(node.expressions[0], mode_of(node))


def _secret(node: exp.Expr) -> exp.Expr:
    """Whatever the text is, the name of its field says what it is, and so are the texts of an array there.

    A record is looked through like any. Where none was ever seen, it is spared the look, and hidden whole if there is
    one after all.
    """
    secret = operation_of(node, RedactedSecret)
    if secret is not None and not secret.may_be_record:
        return fragment(
            "CASE WHEN regexp_matches(variant_typeof({0}), '^(?:VARCHAR|OBJECT|ARRAY)')"
            f" THEN '{HIDDEN}'::VARIANT ELSE {{0}} END",
            node.expressions[0],
        )
    looked = f"{REDACT_EVENT}_{mode_of(node)}"
    hidden = f"'{HIDDEN}'::VARIANT"
    element = f"CASE WHEN regexp_matches(variant_typeof(e), '^(?:VARCHAR|ARRAY)') THEN {hidden} ELSE {looked}(e) END"
    return fragment(
        f"CASE WHEN variant_typeof({{0}}) = 'VARCHAR' THEN {hidden}"
        " WHEN starts_with(variant_typeof({0}), 'ARRAY')"
        f" THEN list_transform(CAST({{0}} AS VARIANT[]), lambda e: {element})::VARIANT"
        f" ELSE {looked}({{0}}) END",
        node.expressions[0],
        does=RedactionCall(looked),
    )


MEANING = Meaning(
    operations={
        RedactedText: _text,
        RedactedEventText: _event_text,
        RedactedEvent: _event,
        RedactedSecret: _secret,
    }
)
