"""The modifiers of aggregate arguments, and the types that aggregates require of event values."""

from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import inherit, kind_of
from cordwood.sql.lowering import fragment, function_name, parts_of, span_in_text, unsupported, with_parts
from cordwood.sql.nodes import constant_int

_MODIFIERS: Final = (exp.Limit, exp.Order, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax, exp.Distinct)

_EVENT_VALUE_KIND: Final[dict[type[exp.Expr], Kind]] = {
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr, exp.CountIf), Kind.BOOL),
    **dict.fromkeys((exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop), Kind.FLOAT64),
    **dict.fromkeys((exp.Sum, exp.Avg), Kind.FLOAT64),
}


class Argument(msgspec.Struct):
    """An aggregate's argument with its DISTINCT, ORDER BY, LIMIT, IGNORE NULLS and HAVING MAX modifiers."""

    value: exp.Expr
    distinct: bool = False
    order: exp.Expr | None = None
    limit: exp.Expr | None = None
    ignore_nulls: bool | None = None
    having: exp.Expr | None = None


def read_argument(node: exp.Expr) -> Argument:
    argument = Argument(node.this)
    inner = node.this
    while isinstance(inner, _MODIFIERS):
        inner = _strip_modifier(inner, argument)
    argument.value = inner
    # In sqlglot's tree, IGNORE NULLS may also be the parent of the aggregate.
    if isinstance(node.parent, (exp.IgnoreNulls, exp.RespectNulls)):
        argument.ignore_nulls = isinstance(node.parent, exp.IgnoreNulls)
    if argument.having is not None and not isinstance(node, exp.AnyValue):
        unsupported(node, f"{function_name(node)} with HAVING MAX or MIN")
    _check_kind(node, argument.value)
    return argument


_NUMBERS: Final = (frozenset({Kind.INT64, Kind.FLOAT64, *EXACT_NUMERIC_KINDS}), "numbers")
_CONDITIONS: Final = (frozenset({Kind.BOOL}), "conditions")
_WHOLE_NUMBERS: Final = (frozenset({Kind.INT64}), "whole numbers")
_ACCEPTED_KINDS: Final[dict[type[exp.Expr], tuple[frozenset[Kind], str]]] = {
    **dict.fromkeys((exp.Sum, exp.Avg, exp.PercentileCont), _NUMBERS),
    **dict.fromkeys((exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop), _NUMBERS),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr, exp.CountIf), _CONDITIONS),
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), _WHOLE_NUMBERS),
}


def _check_kind(node: exp.Expr, value: exp.Expr) -> None:
    """Refuse an argument of a known wrong type. Event values are not checked, since their types vary by row."""
    kind = kind_of(value)
    if kind in (None, Kind.VARIANT) or type(node) not in _ACCEPTED_KINDS:
        return
    if kind is Kind.INTERVAL:
        unsupported(node, f"{function_name(node)} of INTERVAL")
    kinds, expectation = _ACCEPTED_KINDS[type(node)]
    if kind not in kinds:
        raise QuerySyntax(f"{function_name(node)} takes {expectation}, not {kind}.", span=span_in_text(node))


_MAX_QUANTILES: Final = 10_000


def read_quantiles(node: exp.Expr) -> tuple[Argument, int]:
    """Return the argument of APPROX_QUANTILES and its number of quantiles."""
    argument, parts = read_argument(node), _quantile_count(node)
    if isinstance(parts, exp.IgnoreNulls | exp.RespectNulls):
        argument.ignore_nulls, parts = isinstance(parts, exp.IgnoreNulls), parts.this
    count = constant_int(parts)
    if count is None:
        unsupported(node, "APPROX_QUANTILES with a number of quantiles that is not a literal")
    if count > _MAX_QUANTILES:
        unsupported(node, f"APPROX_QUANTILES of more than {_MAX_QUANTILES} parts")
    if count < 1:
        raise QuerySyntax("APPROX_QUANTILES needs at least one part.", span=span_in_text(node))
    return argument, count


def _quantile_count(node: exp.Expr) -> exp.Expr | None:
    """Return the second argument; `APPROX_QUANTILES(DISTINCT x, n)` is parsed as two distinct values."""
    parts: exp.Expr | None = node.args.get("expression")
    if parts is None and isinstance(node.this, exp.Distinct) and len(node.this.expressions) == 2:
        parts = node.this.expressions[1]
    return parts


def _strip_modifier(inner: exp.Expr, argument: Argument) -> exp.Expr:
    stripped: exp.Expr = inner.this
    if isinstance(inner, exp.Limit):
        argument.limit = inner.expression
    elif isinstance(inner, exp.Order):
        argument.order = inner
    elif isinstance(inner, exp.HavingMax):
        argument.having = inner
    elif isinstance(inner, exp.Distinct):
        argument.distinct = True
        stripped = inner.expressions[0]
    else:
        argument.ignore_nulls = isinstance(inner, exp.IgnoreNulls)
    return stripped


def event_value_kind(node: exp.Expr) -> Kind | None:
    """Return the type to which an aggregate converts an event's value; None for aggregates that accept any type."""
    return _EVENT_VALUE_KIND.get(type(node))


def has_window(node: exp.Expr) -> bool:
    """Return whether the aggregate has OVER or FILTER, which must directly follow it."""
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)):
        parent = parent.parent
    return isinstance(parent, (exp.Window, exp.Filter))


_SEVERAL_AGGREGATES: Final = "by_several"


def combine_aggregates(template: str, *aggregates: exp.Expr) -> exp.Expr:
    """Combine several aggregates in one expression, and mark it, so that OVER is applied to each of them."""
    combined = fragment(template, *aggregates)
    combined.meta[_SEVERAL_AGGREGATES] = True
    return combined


def distribute_window(window: exp.Expr) -> exp.Expr:
    """Return a window over an aggregate unchanged.

    For a window over an expression of several aggregates, return the expression with a window over each of them.
    """
    aggregate = window.this
    if not aggregate.meta_get(_SEVERAL_AGGREGATES):
        return window
    return with_parts(aggregate, [_over(window, part) for part in parts_of(aggregate)])


def _over(window: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    windowed = copied(window)
    windowed.set("this", copied(aggregate))
    return windowed


def drop_modifier(node: exp.Expr) -> exp.Expr:
    """Remove IGNORE NULLS or RESPECT NULLS, which the rule of the aggregate inside has already applied."""
    inner: exp.Expr = node.this
    return inherit(inner, node)


def nan_for_single_infinite(aggregate: exp.Expr, single_value: exp.Expr) -> exp.Expr:
    """Return the aggregate, but NaN if its only value is not finite, where engines return zero.

    `single_value` selects any one of the aggregated values: multiplied by zero, it is NaN if it is not finite.
    """
    return combine_aggregates("({0} + 0 * {1})", aggregate, single_value)
