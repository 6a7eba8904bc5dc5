"""Calls of an engine's redaction functions: how rules write them, and how they are changed before printing.

The optimistic variant of a statement only searches each text for a hint, a pattern that matches wherever something may
have to be redacted, and fails if one matches. This takes a small part of the time of redaction. Queries over texts
without anything to redact, such as paths, methods and countries, need nothing else. If it fails, the full variant is
run, and the engine remembers to run that first from then on.
"""

from sqlglot import exp

from cordwood.model.redaction import RedactMode
from cordwood.sql.budget import copied
from cordwood.sql.fragment import catches_failures, fragment, is_fragment, parts_of
from cordwood.sql.nodes import (
    AsEventValue,
    AsText,
    Redacted,
    RedactionCall,
    RedactText,
    find_operations,
    has_operation,
    operation_of,
    swap,
)
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_TEXT


def redacted_text(text: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts a text."""
    name = f"{REDACT_TEXT}_{mode}"
    return fragment(f"{name}({{0}})", text, operation=RedactText(name, optimistic=f"{OPTIMISTIC_TEXT}_{mode}"))


def redacted_event(value: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts an event's value."""
    name = f"{REDACT_EVENT}_{mode}"
    return fragment(f"{name}({{0}})", value, operation=RedactionCall(name))


def redaction_mode_of(node: exp.Expr) -> RedactMode:
    """Return the redaction mode of a redacted read."""
    read = operation_of(node, Redacted)
    if read is None:
        raise ValueError("no redacted read")
    return read.mode


def optimistic_variant(tree: exp.Expr) -> exp.Expr | None:
    """Return the optimistic variant of the tree.

    Return None if the tree redacts nothing, or if the variant's failure might be caught in the SQL and become NULL.
    """
    fragments = filter(is_fragment, tree.find_all(exp.Anonymous))
    if next(find_operations(tree, RedactText), None) is None or any(map(catches_failures, fragments)):
        return None
    variant = copied(tree)
    for node, call in list(find_operations(variant, RedactText)):
        swap(node, fragment(f"{call.optimistic}({{0}})", *parts_of(node), operation=RedactionCall(call.optimistic)))
    return variant


def skip_text_conversions(tree: exp.Expr) -> None:
    """Read a redacted text directly where it would be converted to an event's value and back.

    Filters are never applied to a text before it is redacted: their timing would reveal whether it contains the
    searched text.
    """
    for reader, _ in list(find_operations(tree, AsText)):
        value = parts_of(reader)[0].unnest()
        if has_operation(value, AsEventValue) and has_operation(parts_of(value)[0], RedactText):
            swap(reader, parts_of(value)[0])
