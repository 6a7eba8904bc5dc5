"""Templates of BigQuery SQL, filled as trees, with parts that are moved rather than copied."""

from sqlglot import exp

from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import swap
from cordwood.sql.query_templates import parse_template


def fill(template: str, offset: int | None = None, /, **parts: exp.Expr) -> exp.Expr:
    """Return the template's tree with each `@name` replaced by the part of that name.

    A part without a parent is moved, and copied for further uses. All nodes of the template get the position `offset`
    in the author's text.
    """
    tree = copied(parse_template(template))
    spend(1)
    for node in tree.walk():
        node.meta.pop("start", None)
        if offset is not None:
            node.meta["start"] = node.meta["end"] = offset
    holes = [node for node in tree.find_all(exp.Parameter) if node.name in parts]
    used_parts: set[str] = set()
    for hole in holes:
        part = parts[hole.name]
        replacement = copied(part) if hole.name in used_parts or part.parent is not None else part
        used_parts.add(hole.name)
        if hole is tree:
            return replacement
        swap(hole, as_operand(replacement) if isinstance(hole.parent, _OPERATORS) else replacement)
    return tree


_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In)


def as_operand(node: exp.Expr) -> exp.Expr:
    """Return an operand; an operation is parenthesised, because printers do not add parentheses."""
    is_operation = isinstance(node, _OPERATORS) and not isinstance(node, (exp.Paren, exp.Dot, exp.Func))
    return exp.Paren(this=node) if is_operation or isinstance(node, exp.Connector) else node
