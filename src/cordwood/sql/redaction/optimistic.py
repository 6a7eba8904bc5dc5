"""The optimistic variant of a redacted statement: it looks for a hint of something to redact, and fails where one is.

Looking for the hint is a small part of the cost of redaction. A query that reads only texts in which nothing has to be
redacted, such as paths, methods and countries, pays no more than that. Otherwise the full variant runs, and the engine
remembers to run it at once the next time.
"""

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, is_fragment, parts_of
from cordwood.sql.nodes import swap
from cordwood.sql.operations import RedactionCall, RedactText, found_operations
from cordwood.sql.templates import catches_failures


def optimistic(tree: exp.Expr) -> exp.Expr | None:
    """Return the tree without redaction; None where nothing would be gained, or where the failure might become a NULL."""
    fragments = filter(is_fragment, tree.find_all(exp.Anonymous))
    if next(found_operations(tree, RedactText), None) is None or any(map(catches_failures, fragments)):
        return None
    changed = copied(tree)
    for node, call in list(found_operations(changed, RedactText)):
        swap(node, fragment(f"{call.optimistic}({{0}})", *parts_of(node), does=RedactionCall(call.optimistic)))
    return changed
