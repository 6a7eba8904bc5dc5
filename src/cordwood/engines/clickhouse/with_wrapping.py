"""Make queries with a WITH begin with SELECT: ClickHouse accepts no parenthesis after WITH."""

from typing import Final

from sqlglot import exp

_RELATION_NAME: Final = "_first"
# The clauses behind a parenthesized query, which apply to the whole query.
_TRAILING_CLAUSES: Final = ("order", "limit", "offset")


def begin_with_select(tree: exp.Expr) -> exp.Expr:
    """Return the lowered tree with the leading parenthesis after each WITH read as a relation."""
    queries = [with_.parent for with_ in tree.find_all(exp.With)]
    for query in queries:
        first = _leading_query(query)
        if isinstance(first, exp.Subquery):
            relation = as_relation(first)
            first.replace(relation)
            tree = relation if first is tree else tree
    return tree


def _leading_query(query: exp.Expr | None) -> exp.Expr | None:
    while isinstance(query, exp.SetOperation):
        query = query.this
    return query


def as_relation(parenthesized: exp.Expr) -> exp.Select:
    """Return a SELECT over the parenthesized query, with the clauses that were behind the parenthesis."""
    inner = exp.Subquery(
        this=parenthesized.this, alias=exp.TableAlias(this=exp.to_identifier(_RELATION_NAME, quoted=True))
    )
    relation = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    for key in ("with_", *_TRAILING_CLAUSES):
        relation.set(key, parenthesized.args.get(key))
    return relation
