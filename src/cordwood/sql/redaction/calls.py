"""The calls of an engine's functions of redaction: how rules write them, and what is done with them before printing.

The optimistic variant of a statement looks for a hint of something to redact, and fails where one is. That is a small part of
the cost of redaction. A query that reads only texts in which nothing has to be redacted, such as paths, methods and
countries, pays no more. Otherwise the full variant runs, and the engine remembers to run it at once the next time.
"""

from sqlglot import exp

from cordwood.model.redaction import RedactMode
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, is_fragment, parts_of
from cordwood.sql.nodes import swap
from cordwood.sql.operations import (
    AsEventValue,
    AsText,
    Redacted,
    RedactionCall,
    RedactText,
    does,
    found_operations,
    operation_of,
)
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_TEXT
from cordwood.sql.templates import catches_failures


def redacted_text(text: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts a text."""
    name = f"{REDACT_TEXT}_{mode}"
    return fragment(f"{name}({{0}})", text, does=RedactText(name, optimistic=f"{OPTIMISTIC_TEXT}_{mode}"))


def redacted_event(value: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts an event's value."""
    name = f"{REDACT_EVENT}_{mode}"
    return fragment(f"{name}({{0}})", value, does=RedactionCall(name))


def mode_of(node: exp.Expr) -> RedactMode:
    """Return the mode of a redacted read."""
    read = operation_of(node, Redacted)
    if read is None:
        raise ValueError("no redacted read")
    return read.mode


def optimistic(tree: exp.Expr) -> exp.Expr | None:
    """Return the tree without redaction; None where nothing would be gained, or where the failure might become a NULL."""
    fragments = filter(is_fragment, tree.find_all(exp.Anonymous))
    if next(found_operations(tree, RedactText), None) is None or any(map(catches_failures, fragments)):
        return None
    changed = copied(tree)
    for node, call in list(found_operations(changed, RedactText)):
        swap(node, fragment(f"{call.optimistic}({{0}})", *parts_of(node), does=RedactionCall(call.optimistic)))
    return changed


def keep_texts(tree: exp.Expr) -> None:
    """Read a redacted text itself where it would be read as the text of an event's value.

    No filter looks at a text before it is redacted: the time of a filter would tell whether the text has what is looked for.
    """
    for reader, _ in list(found_operations(tree, AsText)):
        value = parts_of(reader)[0].unnest()
        if does(value, AsEventValue) and does(parts_of(value)[0], RedactText):
            swap(reader, parts_of(value)[0])
