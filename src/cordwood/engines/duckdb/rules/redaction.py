"""Redaction of events' texts by the macros that the session has created for each mode."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import variant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.nodes import (
    AsEventValue,
    RedactedSecret,
    RedactionCall,
    operation_of,
)
from cordwood.sql.redaction.masking import HIDDEN, REDACT_EVENT, Redactions, redaction_mode_of


def _secret(node: exp.Expr) -> exp.Expr:
    """Redact a value whose field name marks it as secret: hide any text, and the texts of an array, as a whole.

    Records are redacted like other values. If no record was seen at the path, records are not searched, and one that
    occurs nevertheless is hidden as a whole.
    """
    secret = operation_of(node, RedactedSecret)
    if secret is not None and not secret.may_be_record:
        return fragment(
            "CASE WHEN regexp_matches(variant_typeof({0}), '^(?:VARCHAR|OBJECT|ARRAY)')"
            f" THEN '{HIDDEN}'::VARIANT ELSE {{0}} END",
            node.expressions[0],
        )
    redact_function = f"{REDACT_EVENT}_{redaction_mode_of(node)}"
    hidden = f"'{HIDDEN}'::VARIANT"
    element = (
        f"CASE WHEN regexp_matches(variant_typeof(e), '^(?:VARCHAR|ARRAY)') THEN {hidden} ELSE {redact_function}(e) END"
    )
    return fragment(
        f"CASE WHEN variant_typeof({{0}}) = 'VARCHAR' THEN {hidden}"
        " WHEN starts_with(variant_typeof({0}), 'ARRAY')"
        f" THEN list_transform(CAST({{0}} AS VARIANT[]), lambda e: {element})::VARIANT"
        f" ELSE {redact_function}({{0}}) END",
        node.expressions[0],
        operation=RedactionCall(redact_function),
    )


def _as_event_value(text: exp.Expr) -> exp.Expr:
    return fragment("{0}::VARIANT", text, operation=AsEventValue())


RULES = Redactions(variant_text, _as_event_value, _secret).rules()
