"""Texts of events with what is personal hidden in them: the functions that stand before the statement."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.reading import event_text, with_text
from cordwood.engines.clickhouse.rules.words import once
from cordwood.sql.fragment import fragment
from cordwood.sql.redaction.hiding import HIDDEN, HIDING_EVENT, HIDING_TEXT
from cordwood.sql.redaction.meaning import mode_of, redaction_meaning


def _text(node: exp.Expr) -> exp.Expr:
    return fragment(f"{HIDING_TEXT}_{mode_of(node)}({{0}})", node.expressions[0])


def _event_text(node: exp.Expr) -> exp.Expr:
    text = fragment(f"{HIDING_TEXT}_{mode_of(node)}({{0}})", event_text(node.expressions[0]))
    return with_text(fragment("nullIf(toJSONString({0}), 'null')", text), text)


def _event(node: exp.Expr) -> exp.Expr:
    return fragment(f"{HIDING_EVENT}_{mode_of(node)}({{0}})", node.expressions[0])


def _secret(node: exp.Expr) -> exp.Expr:
    """Whatever the text is, the name of its field says what it is, and so are the texts of an array there.

    A record is looked through like any.
    """
    looked = f"{HIDING_EVENT}_{mode_of(node)}"
    element = f"if(JSONType(_e) IN ('String', 'Array'), '\"{HIDDEN}\"', ifNull({looked}(CAST(_e, 'Nullable(String)')), 'null'))"
    elements = (
        f"'[' || arrayStringConcat(arrayMap(_e -> {element}, JSONExtractArrayRaw(assumeNotNull(@a))), ',') || ']'"
    )
    return once(
        f"multiIf(JSONType(@a) = 'String', '\"{HIDDEN}\"', JSONType(@a) = 'Array', {elements}, {looked}(@a))",
        node.expressions[0],
    )


MEANING = redaction_meaning(text=_text, event_text=_event_text, event=_event, secret=_secret)
