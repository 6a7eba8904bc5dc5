"""Spares a lowered tree the redaction that cannot matter: for a filter, and for a text made a value and read as text.

A piece that shares no letter with what may stand next to it is in a redacted text only if it is in the text itself.
A filter that looks for such a piece asks the text first, and has only those redacted that have it. Its answer is what
it was: a text that has the piece where something is hidden is redacted, and loses it, before the filter says yes.
"""

import re
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.redaction import AS_VARIANT
from cordwood.model.redaction import RedactMode
from cordwood.sql.fragment import fragment, is_fragment, template_of
from cordwood.sql.redaction.hiding import HIDDEN, HIDING_TEXT

_AS_TEXT: Final = "{0}::VARCHAR"
# Digests and networks have other letters too: only the one word is reasoned about.
_MACRO: Final = f"{HIDING_TEXT}_{RedactMode.REPLACE}"
_REDACTED: Final = (f"{_MACRO}({{0}})", f"{_MACRO}({_AS_TEXT})")

# A piece that may lie half in the word: it begins with an end of it, ends with a beginning, or has it whole.
_ENDS: Final = "|".join(HIDDEN[at:] for at in range(len(HIDDEN)))
_BEGINNINGS: Final = "|".join(HIDDEN[:at] for at in range(1, len(HIDDEN) + 1))
_HALF_HIDDEN: Final = f"^(?:{_ENDS})|(?:{_BEGINNINGS})$|{HIDDEN}"
_REGEX: Final = "regexp_matches({0}, {1})"
# The pattern is a value, known only when it is asked: whether it is a mere piece is for the engine to say.
_REGEX_SPARED: Final = (
    "CASE WHEN regexp_matches({2}, '^[A-Za-z0-9_/:=&@ -]+$')"
    f" AND NOT regexp_matches({{2}}, '{_HALF_HIDDEN}') AND NOT contains('{HIDDEN}', {{2}})"
    " AND NOT contains({1}, {2}) THEN false ELSE {0} END"
)


def spare(tree: exp.Expr) -> None:
    for node in filter(is_fragment, tree.find_all(exp.Anonymous)):
        _keep_text(node)
    for where in tree.find_all(exp.Where):
        for found in list(where.find_all(exp.Like, exp.EQ, exp.In, exp.Anonymous)):
            _ask_first(found)


def _keep_text(reader: exp.Expr) -> None:
    """A text that is made a value only to be read as text stays a text."""
    value = reader.expressions[1].unnest() if len(reader.expressions) == 2 else None
    template = template_of(reader)
    if value is None or not is_fragment(value) or template.count("{0}") != template.count(_AS_TEXT):
        return
    made = template_of(value)
    if made.startswith(HIDING_TEXT) and made.endswith(AS_VARIANT):
        value.expressions[0].replace(exp.Literal.string(made.removesuffix(AS_VARIANT)))
        reader.expressions[0].replace(exp.Literal.string(template.replace(_AS_TEXT, "{0}")))


def _ask_first(node: exp.Expr) -> None:
    if is_fragment(node):
        _ask_regex_first(node)
    elif _is_plainly_found(node):
        raw = _text_of(node.this)
        if raw is not None:
            asked = node.copy()
            asked.this.replace(raw)
            node.replace(fragment("(CASE WHEN NOT {1} THEN false ELSE {0} END)", node.copy(), exp.paren(asked)))


def _ask_regex_first(node: exp.Expr) -> None:
    raw = _text_of(node.expressions[1]) if template_of(node) == _REGEX else None
    if raw is not None and isinstance(node.expressions[2], (exp.Literal, exp.Parameter)):
        node.replace(fragment(f"({_REGEX_SPARED})", node.copy(), raw, node.expressions[2].copy()))


def _is_plainly_found(node: exp.Expr) -> bool:
    """Whether what the filter looks for is written there, and cannot lie in what redaction writes."""
    if isinstance(node, exp.In):
        return bool(node.expressions) and all(map(_is_untouched, node.expressions))
    sought = node.expression
    if isinstance(node, exp.EQ):
        return _is_untouched(sought)
    return isinstance(sought, exp.Literal) and sought.is_string and all(map(_is_piece, str(sought.this).split("%")))


def _is_piece(text: str) -> bool:
    """As LIKE reads it, and apart from the word that hides."""
    return not (set(text) & set("_\\")) and (not text or (text not in HIDDEN and not re.search(_HALF_HIDDEN, text)))


def _is_untouched(sought: exp.Expr) -> bool:
    """Only a text in which nothing is hidden can be the same as this one."""
    return isinstance(sought, exp.Literal) and sought.is_string and HIDDEN not in str(sought.this)


def _text_of(node: exp.Expr) -> exp.Expr | None:
    """The text itself, when the node is that text redacted."""
    node = node.unnest()
    if not is_fragment(node):
        return None
    template = template_of(node)
    if template == "{0}":
        return _text_of(node.expressions[1])
    if template not in _REDACTED:
        return None
    value = node.expressions[1].copy()
    return fragment(_AS_TEXT, value) if _AS_TEXT in template else value
