"""Templates of BigQuery SQL, filled as trees, with parts that are moved rather than copied."""

from sqlglot import exp

from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import swap
from cordwood.sql.query_templates import parse_template


def fill(template: str, at: int | None = None, /, **parts: exp.Expr) -> exp.Expr:
    """Return the template's tree with each `@name` replaced by the part of that name.

    A part without a parent is moved, and copied for further uses. All nodes of the template get the position `at` in
    the author's text.
    """
    tree = copied(parse_template(template))
    spend(1)
    for node in tree.walk():
        node.meta.pop("start", None)
        if at is not None:
            node.meta["start"] = node.meta["end"] = at
    holes = [node for node in tree.find_all(exp.Parameter) if node.name in parts]
    moved: set[str] = set()
    for hole in holes:
        part = parts[hole.name]
        made = copied(part) if hole.name in moved or part.parent is not None else part
        moved.add(hole.name)
        if hole is tree:
            return made
        swap(hole, in_brackets(made) if isinstance(hole.parent, _OPERATORS) else made)
    return tree


_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In)


def in_brackets(node: exp.Expr) -> exp.Expr:
    """Return an operand; an operation is parenthesised, because printers do not add parentheses."""
    is_operation = isinstance(node, _OPERATORS) and not isinstance(node, (exp.Paren, exp.Dot, exp.Func))
    return exp.Paren(this=node) if is_operation or isinstance(node, exp.Connector) else node
