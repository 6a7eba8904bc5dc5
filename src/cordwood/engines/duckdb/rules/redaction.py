"""Texts of events with what is personal hidden in them: the macros that the session has made for each mode."""

from typing import Final

from sqlglot import exp

from cordwood.sql.fragment import fragment
from cordwood.sql.redaction.hiding import HIDDEN, HIDING_EVENT, HIDING_TEXT
from cordwood.sql.redaction.meaning import mode_of, redaction_meaning

AS_VARIANT: Final = "::VARIANT"


def _text(node: exp.Expr) -> exp.Expr:
    return fragment(f"{HIDING_TEXT}_{mode_of(node)}({{0}})", node.expressions[0])


def _event_text(node: exp.Expr) -> exp.Expr:
    return fragment(f"{HIDING_TEXT}_{mode_of(node)}({{0}}::VARCHAR){AS_VARIANT}", node.expressions[0])


def _event(node: exp.Expr) -> exp.Expr:
    return fragment(f"{HIDING_EVENT}_{mode_of(node)}({{0}})", node.expressions[0])


def _secret(node: exp.Expr) -> exp.Expr:
    """Whatever the text is, the name of its field says what it is, and so are the texts of an array there.

    A record is looked through like any. Where none was ever seen, it is spared the look, and hidden whole if there is
    one after all.
    """
    if not node.expressions[2].this:
        return fragment(
            "CASE WHEN regexp_matches(variant_typeof({0}), '^(?:VARCHAR|OBJECT|ARRAY)')"
            f" THEN '{HIDDEN}'::VARIANT ELSE {{0}} END",
            node.expressions[0],
        )
    looked = f"{HIDING_EVENT}_{mode_of(node)}"
    hidden = f"'{HIDDEN}'::VARIANT"
    element = f"CASE WHEN regexp_matches(variant_typeof(e), '^(?:VARCHAR|ARRAY)') THEN {hidden} ELSE {looked}(e) END"
    return fragment(
        f"CASE WHEN variant_typeof({{0}}) = 'VARCHAR' THEN {hidden}"
        " WHEN starts_with(variant_typeof({0}), 'ARRAY')"
        f" THEN list_transform(CAST({{0}} AS VARIANT[]), lambda e: {element})::VARIANT"
        f" ELSE {looked}({{0}}) END",
        node.expressions[0],
    )


MEANING = redaction_meaning(text=_text, event_text=_event_text, event=_event, secret=_secret)
