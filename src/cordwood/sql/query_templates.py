"""Templates of BigQuery SQL in which placeholders are replaced by trees, so that no value is ever printed into SQL."""

from functools import cache

import sqlglot
from sqlglot import exp

from cordwood.sql.budget import copy_tree

TemplatePart = exp.Expr | str | int | tuple[exp.Expr, ...]


def fill_query_template(template: str, offset: int = 0, /, **parts: TemplatePart) -> exp.Expr:
    """Return the template's tree, in which each `@name` is replaced by the keyword argument of this name.

    Arguments that are texts or numbers become literals. All nodes of the template get the position `offset` in the
    query's text.
    """
    tree = copy_tree(parse_template(template))
    for node in list(tree.walk()):
        node.meta["start"] = node.meta["end"] = offset
    placeholders = [node for node in tree.find_all(exp.Parameter) if node.name in parts]
    for placeholder in placeholders:
        replacement = _template_part_tree(parts[placeholder.name], offset)
        if placeholder is tree:
            return replacement
        placeholder.replace(replacement)
    return tree


def text_literal(text: str, offset: int = 0) -> exp.Expr:
    return _set_position(exp.Literal.string(text), offset)


def number_literal(text: str, offset: int = 0) -> exp.Expr:
    """Return a number literal; a negative number is wrapped in Neg, as in a parsed tree."""
    literal_node: exp.Expr = exp.Literal.number(text.removeprefix("-"))
    return _set_position(exp.Neg(this=literal_node) if text.startswith("-") else literal_node, offset)


def make_identifier(name: str, offset: int = 0) -> exp.Identifier:
    """Return an identifier, quoted only if necessary: an unquoted name also matches keys in another letter case."""
    identifier_node = exp.to_identifier(name, quoted=not exp.SAFE_IDENTIFIER_RE.match(name))
    identifier_node.meta["start"] = identifier_node.meta["end"] = offset
    return identifier_node


def table_node(name: str) -> exp.Expr:
    return exp.Table(this=make_identifier(name))


def column_node(names: tuple[str, ...], offset: int = 0) -> exp.Expr:
    """Return the tree of a dotted name, as the parser would make it from the list of its parts."""
    first, *fields = [make_identifier(name, offset) for name in names]
    tree: exp.Expr = _set_position(exp.Column(this=first), offset)
    if fields:
        tree = _set_position(exp.Column(this=fields[0], table=first), offset)
    for field in fields[1:]:
        tree = _set_position(exp.Dot(this=tree, expression=field), offset)
    return tree


def alias_node(tree: exp.Expr, name: str, offset: int = 0) -> exp.Expr:
    return _set_position(exp.Alias(this=tree, alias=make_identifier(name, offset)), offset)


def sort_key(value: exp.Expr, is_descending: bool) -> exp.Expr:  # noqa: FBT001 # one direction or the other
    """Return a sort key. NULL comes first in ascending and last in descending order, as in BigQuery."""
    return exp.Ordered(this=value, desc=is_descending, nulls_first=not is_descending)


def join_with_and(conditions: list[exp.Expr]) -> exp.Expr:
    """Join one or more conditions with AND."""
    return conditions[0] if len(conditions) == 1 else exp.and_(*conditions, copy=False)


def join_with_or(conditions: list[exp.Expr]) -> exp.Expr:
    return conditions[0] if len(conditions) == 1 else exp.paren(exp.or_(*conditions, copy=False), copy=False)


def _template_part_tree(part: TemplatePart, offset: int) -> exp.Expr:
    if isinstance(part, str):
        return text_literal(part, offset)
    if isinstance(part, int):
        return number_literal(str(part), offset)
    if isinstance(part, tuple):
        return exp.Tuple(expressions=[copy_tree(node) for node in part])
    return copy_tree(part)


def _set_position(node: exp.Expr, offset: int) -> exp.Expr:
    node.meta["start"] = node.meta["end"] = offset
    return node


@cache
def parse_template(template: str) -> exp.Expr:
    tree = sqlglot.parse_one(template, read="bigquery")
    for function in tree.find_all(exp.Func):
        _record_written_function_name(function, template)
    return tree


def _record_written_function_name(function: exp.Func, template: str) -> None:
    """Store on the function's node the name that the template has for the function.

    Otherwise, `admit` would look for the name in the text of the query.
    """
    if "start" in function.meta:
        word = template[function.meta["start"] : function.meta["end"] + 1]
        function.meta.setdefault("bigquery_name", word.upper())
