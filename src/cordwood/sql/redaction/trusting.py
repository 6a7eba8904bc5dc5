"""A redacted statement that trusts that there is nothing to redact: it looks for a hint, and fails where it finds one.

To look is a small part of what redaction costs to make ready. Where a query reads only texts in which nothing is
hidden, paths and methods and countries, that is all it pays; else it is run again as it should be, and remembered.
"""

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import is_fragment, template_of
from cordwood.sql.redaction.hiding import HIDING_TEXT, TRUSTING_TEXT


def trusting(tree: exp.Expr) -> exp.Expr | None:
    """None where nothing would be gained, or where the failure might pass for a NULL."""
    templates = [template_of(node) for node in tree.find_all(exp.Anonymous) if is_fragment(node)]
    if not any(map(_redacts, templates)) or any("try(" in template for template in templates):
        return None
    trusting = copied(tree)
    for node in list(trusting.find_all(exp.Anonymous)):
        if is_fragment(node) and _redacts(template_of(node)):
            trusted = template_of(node).replace(HIDING_TEXT, TRUSTING_TEXT, 1)
            node.expressions[0].replace(exp.Literal.string(trusted))
    return trusting


def _redacts(template: str) -> bool:
    return template.startswith(f"{HIDING_TEXT}_")
