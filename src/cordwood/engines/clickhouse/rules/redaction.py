"""Redaction of events' texts by the functions that the statement defines in its WITH."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once
from cordwood.engines.clickhouse.rules.coercions import event_text, with_text
from cordwood.sql.fragment import fragment
from cordwood.sql.nodes import (
    RedactionCall,
    with_operation,
)
from cordwood.sql.redaction.masking import HIDDEN, REDACT_EVENT, Redactions, redaction_mode_of


def _secret(node: exp.Expr) -> exp.Expr:
    """Redact a value whose field name marks it as secret: hide any text, and the texts of an array, as a whole.

    Records are redacted like other values.
    """
    redact_function = f"{REDACT_EVENT}_{redaction_mode_of(node)}"
    element = f"if(JSONType(_e) IN ('String', 'Array'), '\"{HIDDEN}\"', ifNull({redact_function}(CAST(_e, 'Nullable(String)')), 'null'))"
    elements = (
        f"'[' || arrayStringConcat(arrayMap(_e -> {element}, JSONExtractArrayRaw(assumeNotNull(@a))), ',') || ']'"
    )
    result = once(
        f"multiIf(JSONType(@a) = 'String', '\"{HIDDEN}\"', JSONType(@a) = 'Array', {elements}, {redact_function}(@a))",
        node.expressions[0],
    )
    return with_operation(result, RedactionCall(redact_function))


def _as_event_value(text: exp.Expr) -> exp.Expr:
    return with_text(fragment("nullIf(toJSONString({0}), 'null')", text), text)


RULES = Redactions(event_text, _as_event_value, _secret).rules()
