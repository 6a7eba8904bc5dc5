"""Window functions over expressions of several aggregates: each of them gets the window of the whole."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, parts_of, with_parts

_SEVERAL_AGGREGATES: Final = "by_several"


def combine_aggregates(template: str, *aggregates: exp.Expr) -> exp.Expr:
    """Return an expression in which all parts are aggregates."""
    combined = fragment(template, *aggregates)
    combined.meta[_SEVERAL_AGGREGATES] = True
    return combined


def distribute_window(window: exp.Expr) -> exp.Expr:
    """Return the window; for an expression of several aggregates, the expression with a window for each."""
    aggregate = window.this
    if not aggregate.meta_get(_SEVERAL_AGGREGATES):
        return window
    return with_parts(aggregate, [_over(window, part) for part in parts_of(aggregate)])


def _over(window: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    windowed = copied(window)
    windowed.set("this", copied(aggregate))
    return windowed
