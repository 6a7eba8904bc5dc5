"""Texts of events with what is personal hidden in them: the macros that the session has made for each mode."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.redaction import EVENT_MACRO, HIDDEN, TEXT_MACRO
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning
from cordwood.sql.nodes import REDACTED_EVENT, REDACTED_EVENT_TEXT, REDACTED_SECRET, REDACTED_TEXT

AS_VARIANT: Final = "::VARIANT"


def _text(node: exp.Expr) -> exp.Expr:
    return fragment(f"{TEXT_MACRO}_{_mode(node)}({{0}})", node.expressions[0])


def _event_text(node: exp.Expr) -> exp.Expr:
    return fragment(f"{TEXT_MACRO}_{_mode(node)}({{0}}::VARCHAR){AS_VARIANT}", node.expressions[0])


def _event(node: exp.Expr) -> exp.Expr:
    return fragment(f"{EVENT_MACRO}_{_mode(node)}({{0}})", node.expressions[0])


def _secret(node: exp.Expr) -> exp.Expr:
    """Whatever the text is, the name of its field says what it is; a record there is looked through like any.

    Where no record was ever seen, it is spared the look, and hidden whole if there is one after all.
    """
    if not node.expressions[2].this:
        return fragment(
            "CASE WHEN regexp_matches(variant_typeof({0}), '^(?:VARCHAR|OBJECT|ARRAY)')"
            f" THEN '{HIDDEN}'::VARIANT ELSE {{0}} END",
            node.expressions[0],
        )
    return fragment(
        f"CASE WHEN variant_typeof({{0}}) = 'VARCHAR' THEN '{HIDDEN}'::VARIANT"
        f" ELSE {EVENT_MACRO}_{_mode(node)}({{0}}) END",
        node.expressions[0],
    )


def _mode(node: exp.Expr) -> str:
    mode: str = node.expressions[1].this
    return mode


MEANING = Meaning(
    named={
        REDACTED_TEXT.upper(): _text,
        REDACTED_EVENT.upper(): _event,
        REDACTED_EVENT_TEXT.upper(): _event_text,
        REDACTED_SECRET.upper(): _secret,
    }
)
