"""Make queries with a WITH begin with SELECT: ClickHouse accepts no parenthesis after WITH."""

from typing import Final

from sqlglot import exp

_FIRST: Final = "_first"
# The clauses behind a parenthesized query, which apply to the whole query.
_BEHIND: Final = ("order", "limit", "offset")


def begin_with_select(tree: exp.Expr) -> exp.Expr:
    """Return the lowered tree with the leading parenthesis after each WITH read as a relation."""
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
    """Return a SELECT over the parenthesized query, with the clauses that were behind the parenthesis."""
    inner = exp.Subquery(this=bracket.this, alias=exp.TableAlias(this=exp.to_identifier(_FIRST, quoted=True)))
    made = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    for key in ("with_", *_BEHIND):
        made.set(key, bracket.args.get(key))
    return made
