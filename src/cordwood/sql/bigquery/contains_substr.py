"""The arguments of CONTAINS_SUBSTR."""

from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.sql.constants import is_null
from cordwood.sql.lowering import span_in_text, unsupported


def strip_lower_calls(node: exp.Expr) -> exp.Expr:
    """Remove the LOWER calls that sqlglot puts around both arguments; refuse a NULL to search for."""
    if node.args.get("json_scope") is not None:
        unsupported(node, "CONTAINS_SUBSTR with a json_scope")
    for name in ("this", "expression"):
        part = node.args[name]
        node.set(name, part.this if isinstance(part, exp.Lower) else part)
    if is_null(node.expression):
        raise QueryValue("The value that CONTAINS_SUBSTR looks for must not be NULL.", span=span_in_text(node))
    return node
