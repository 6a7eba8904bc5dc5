"""The optimistic variant of a redacted statement: it looks for a hint of something to redact, and fails where one is.

Looking for the hint is a small part of the cost of redaction. A query that reads only texts in which nothing has to be
redacted, such as paths, methods and countries, pays no more than that. Otherwise the full variant runs, and the engine
remembers to run it at once the next time.
"""

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import is_fragment, template_of
from cordwood.sql.redaction.hiding import HIDING_TEXT, TRUSTING_TEXT


def optimistic(tree: exp.Expr) -> exp.Expr | None:
    """Return the tree without redaction; None where nothing would be gained, or where the failure might become a NULL."""
    templates = [template_of(node) for node in tree.find_all(exp.Anonymous) if is_fragment(node)]
    if not any(map(_redacts, templates)) or any("try(" in template for template in templates):
        return None
    changed = copied(tree)
    for node in list(changed.find_all(exp.Anonymous)):
        if is_fragment(node) and _redacts(template_of(node)):
            trusted = template_of(node).replace(HIDING_TEXT, TRUSTING_TEXT, 1)
            node.expressions[0].replace(exp.Literal.string(trusted))
    return changed


def _redacts(template: str) -> bool:
    return template.startswith(f"{HIDING_TEXT}_")
