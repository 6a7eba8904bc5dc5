"""Window functions over expressions of several aggregates: each of them gets the window of the whole."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, parts_of, with_parts

_BY_SEVERAL: Final = "by_several"


def by_several(template: str, *aggregates: exp.Expr) -> exp.Expr:
    """Return an expression in which all parts are aggregates."""
    said = fragment(template, *aggregates)
    said.meta[_BY_SEVERAL] = True
    return said


def spread(window: exp.Expr) -> exp.Expr:
    """Return the window; for an expression of several aggregates, the expression with a window for each."""
    aggregate = window.this
    if not aggregate.meta_get(_BY_SEVERAL):
        return window
    return with_parts(aggregate, [_over(window, part) for part in parts_of(aggregate)])


def _over(window: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    one = copied(window)
    one.set("this", copied(aggregate))
    return one
