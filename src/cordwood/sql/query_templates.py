"""Templates of BigQuery SQL, filled as trees, so that no value is ever printed into SQL."""

from functools import cache

import sqlglot
from sqlglot import exp

from cordwood.sql.budget import copied

Part = exp.Expr | str | int | tuple[exp.Expr, ...]


def fill(template: str, at: int = 0, /, **parts: Part) -> exp.Expr:
    """Return the template's tree with each `@name` replaced, at position `at` of the LQL; strings become literals."""
    tree = copied(parsed(template))
    for node in list(tree.walk()):
        node.meta["start"] = node.meta["end"] = at
    holes = [node for node in tree.find_all(exp.Parameter) if node.name in parts]
    for hole in holes:
        made = _tree(parts[hole.name], at)
        if hole is tree:
            return made
        hole.replace(made)
    return tree


def literal(text: str, at: int = 0) -> exp.Expr:
    return _placed(exp.Literal.string(text), at)


def number(text: str, at: int = 0) -> exp.Expr:
    """Return a number literal; a negative one is wrapped in Neg, as in a parsed tree."""
    made: exp.Expr = exp.Literal.number(text.removeprefix("-"))
    return _placed(exp.Neg(this=made) if text.startswith("-") else made, at)


def identifier(name: str, at: int = 0) -> exp.Identifier:
    """Return an identifier, quoted only if necessary: an unquoted key matches in any case."""
    made = exp.to_identifier(name, quoted=not exp.SAFE_IDENTIFIER_RE.match(name))
    made.meta["start"] = made.meta["end"] = at
    return made


def table(name: str) -> exp.Expr:
    return exp.Table(this=identifier(name))


def column(names: tuple[str, ...], at: int = 0) -> exp.Expr:
    """Return a dotted name, in the form of a parsed tree."""
    first, *fields = [identifier(name, at) for name in names]
    tree: exp.Expr = _placed(exp.Column(this=first), at)
    if fields:
        tree = _placed(exp.Column(this=fields[0], table=first), at)
    for deeper in fields[1:]:
        tree = _placed(exp.Dot(this=tree, expression=deeper), at)
    return tree


def alias(tree: exp.Expr, name: str, at: int = 0) -> exp.Expr:
    return _placed(exp.Alias(this=tree, alias=identifier(name, at)), at)


def ordered(value: exp.Expr, is_descending: bool) -> exp.Expr:  # noqa: FBT001 # one direction or the other
    """Return a sort key. NULL comes first in ascending and last in descending order, as in BigQuery."""
    return exp.Ordered(this=value, desc=is_descending, nulls_first=not is_descending)


def all_of(conditions: list[exp.Expr]) -> exp.Expr:
    """Join conditions, of which there must be at least one, with AND."""
    return conditions[0] if len(conditions) == 1 else exp.and_(*conditions, copy=False)


def any_of(conditions: list[exp.Expr]) -> exp.Expr:
    return conditions[0] if len(conditions) == 1 else exp.paren(exp.or_(*conditions, copy=False), copy=False)


def _tree(part: Part, at: int) -> exp.Expr:
    if isinstance(part, str):
        return literal(part, at)
    if isinstance(part, int):
        return number(str(part), at)
    if isinstance(part, tuple):
        return exp.Tuple(expressions=[copied(node) for node in part])
    return copied(part)


def _placed(node: exp.Expr, at: int) -> exp.Expr:
    node.meta["start"] = node.meta["end"] = at
    return node


@cache
def parsed(template: str) -> exp.Expr:
    tree = sqlglot.parse_one(template, read="bigquery")
    for function in tree.find_all(exp.Func):
        _keep_written_name(function, template)
    return tree


def _keep_written_name(function: exp.Func, template: str) -> None:
    """Keep the function's written name: `admit` looks it up in the source text, which is LQL here."""
    if "start" in function.meta:
        word = template[function.meta["start"] : function.meta["end"] + 1]
        function.meta.setdefault("bigquery_name", word.upper())
