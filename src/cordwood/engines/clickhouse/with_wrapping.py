"""A query with sub-queries of its own begins with SELECT: after WITH, ClickHouse reads no bracket."""

from typing import Final

from sqlglot import exp

_FIRST: Final = "_first"
# What stands behind a bracketed query is said of the whole.
_BEHIND: Final = ("order", "limit", "offset")


def begin_with_select(tree: exp.Expr) -> exp.Expr:
    """The lowered tree, the first bracket of every WITH's query read as a relation."""
    holders = [with_.parent for with_ in tree.find_all(exp.With)]
    for holder in holders:
        first = _first(holder)
        if isinstance(first, exp.Subquery):
            made = as_relation(first)
            first.replace(made)
            tree = made if first is tree else tree
    return tree


def _first(query: exp.Expr | None) -> exp.Expr | None:
    while isinstance(query, exp.SetOperation):
        query = query.this
    return query


def as_relation(bracket: exp.Expr) -> exp.Select:
    """The bracketed query read by another, of which is said what was said behind the bracket."""
    inner = exp.Subquery(this=bracket.this, alias=exp.TableAlias(this=exp.to_identifier(_FIRST, quoted=True)))
    made = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    for key in ("with_", *_BEHIND):
        made.set(key, bracket.args.get(key))
    return made
