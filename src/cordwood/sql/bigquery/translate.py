"""TRANSLATE's mapping of characters."""

from typing import Final

from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.sql.constants import constant_text
from cordwood.sql.lowering import is_safe, span_in_text, unsupported

DUPLICATE: Final = "Duplicate character in TRANSLATE source characters"


def source_and_target(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    source, target = node.args.get("from_") or node.args.get("from"), node.args.get("to")
    if source is None or target is None:
        unsupported(node, "TRANSLATE with these arguments")
    return source, target


def has_duplicate_characters(node: exp.Expr, source: exp.Expr) -> bool:
    """Return whether a constant source has a character twice; raise QueryValue unless the call is SAFE."""
    characters = constant_text(source) or ""
    has_duplicate = len(set(characters)) < len(characters)
    if has_duplicate and not is_safe(node):
        raise QueryValue(DUPLICATE, span=span_in_text(node))
    return has_duplicate
