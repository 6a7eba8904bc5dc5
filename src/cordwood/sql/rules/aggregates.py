"""The modifiers of aggregates' arguments, and the types to which aggregates convert event values."""

from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import BadQuerySyntax
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import inherit_metadata, is_event_number, kind_of
from cordwood.sql.lowering import (
    bigquery_function_name,
    fragment_node,
    fragment_parts,
    raise_unsupported,
    replace_fragment_parts,
    span_of_node_or_descendant,
)
from cordwood.sql.nodes import constant_int

_MODIFIER_CLASSES: Final = (exp.Limit, exp.Order, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax, exp.Distinct)

# Integers with fewer digits are below 2^53, so that a FLOAT64 holds them exactly.
MIN_LARGE_INTEGER_DIGITS: Final = 16

_EVENT_VALUE_KIND_BY_AGGREGATE: Final[dict[type[exp.Expr], Kind]] = {
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr, exp.CountIf), Kind.BOOL),
    **dict.fromkeys((exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop), Kind.FLOAT64),
    **dict.fromkeys((exp.Sum, exp.Avg), Kind.FLOAT64),
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), Kind.INT64),
}


class AggregateArgument(msgspec.Struct):
    """An aggregate's argument with its DISTINCT, ORDER BY, LIMIT, IGNORE NULLS and HAVING MAX modifiers."""

    value: exp.Expr
    is_distinct: bool = False
    order: exp.Expr | None = None
    limit: exp.Expr | None = None
    ignores_nulls: bool | None = None
    having: exp.Expr | None = None


def read_aggregate_argument(node: exp.Expr) -> AggregateArgument:
    argument = AggregateArgument(node.this)
    inner = node.this
    while isinstance(inner, _MODIFIER_CLASSES):
        inner = _read_and_strip_modifier(inner, argument)
    argument.value = inner
    # In sqlglot's tree, IGNORE NULLS may also be the parent of the aggregate.
    if isinstance(node.parent, (exp.IgnoreNulls, exp.RespectNulls)):
        argument.ignores_nulls = isinstance(node.parent, exp.IgnoreNulls)
    if argument.having is not None and not isinstance(node, exp.AnyValue):
        raise_unsupported(node, f"{bigquery_function_name(node)} with HAVING MAX or MIN")
    _check_argument_kind(node, argument.value)
    return argument


_NUMBER_KINDS_AND_NAME: Final = (frozenset({Kind.INT64, Kind.FLOAT64, *EXACT_NUMERIC_KINDS}), "numbers")
_CONDITION_KINDS_AND_NAME: Final = (frozenset({Kind.BOOL}), "conditions")
_WHOLE_NUMBER_KINDS_AND_NAME: Final = (frozenset({Kind.INT64}), "whole numbers")
_ACCEPTED_KINDS_BY_AGGREGATE: Final[dict[type[exp.Expr], tuple[frozenset[Kind], str]]] = {
    **dict.fromkeys((exp.Sum, exp.Avg, exp.PercentileCont), _NUMBER_KINDS_AND_NAME),
    **dict.fromkeys((exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop), _NUMBER_KINDS_AND_NAME),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr, exp.CountIf), _CONDITION_KINDS_AND_NAME),
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), _WHOLE_NUMBER_KINDS_AND_NAME),
}


def _check_argument_kind(node: exp.Expr, value: exp.Expr) -> None:
    """Refuse an argument of a wrong type. The types of event values vary by row, so event values are not checked."""
    kind = kind_of(value)
    if kind in (None, Kind.VARIANT) or type(node) not in _ACCEPTED_KINDS_BY_AGGREGATE:
        return
    if kind is Kind.INTERVAL:
        raise_unsupported(node, f"{bigquery_function_name(node)} of INTERVAL")
    kinds, expectation = _ACCEPTED_KINDS_BY_AGGREGATE[type(node)]
    if kind not in kinds and not (Kind.INT64 in kinds and is_event_number(value)):
        raise BadQuerySyntax(
            f"{bigquery_function_name(node)} takes {expectation}, not {kind}.", span=span_of_node_or_descendant(node)
        )


_MAX_QUANTILES: Final = 10_000


def read_quantiles(node: exp.Expr) -> tuple[AggregateArgument, int]:
    """Return the argument of APPROX_QUANTILES with its modifiers, and the number of quantiles."""
    argument, parts = read_aggregate_argument(node), _quantile_count(node)
    if isinstance(parts, exp.IgnoreNulls | exp.RespectNulls):
        argument.ignores_nulls, parts = isinstance(parts, exp.IgnoreNulls), parts.this
    count = constant_int(parts)
    if count is None:
        raise_unsupported(node, "APPROX_QUANTILES with a number of quantiles that is not a literal")
    if count > _MAX_QUANTILES:
        raise_unsupported(node, f"APPROX_QUANTILES of more than {_MAX_QUANTILES} parts")
    if count < 1:
        raise BadQuerySyntax("APPROX_QUANTILES needs at least one part.", span=span_of_node_or_descendant(node))
    return argument, count


def _quantile_count(node: exp.Expr) -> exp.Expr | None:
    """Return the second argument of APPROX_QUANTILES. In `(DISTINCT x, n)`, the parser puts it into DISTINCT."""
    parts: exp.Expr | None = node.args.get("expression")
    if parts is None and isinstance(node.this, exp.Distinct) and len(node.this.expressions) == 2:
        parts = node.this.expressions[1]
    return parts


def _read_and_strip_modifier(inner: exp.Expr, argument: AggregateArgument) -> exp.Expr:
    stripped: exp.Expr = inner.this
    if isinstance(inner, exp.Limit):
        argument.limit = inner.expression
    elif isinstance(inner, exp.Order):
        argument.order = inner
    elif isinstance(inner, exp.HavingMax):
        argument.having = inner
    elif isinstance(inner, exp.Distinct):
        argument.is_distinct = True
        stripped = inner.expressions[0]
    else:
        argument.ignores_nulls = isinstance(inner, exp.IgnoreNulls)
    return stripped


def aggregated_event_value_kind(node: exp.Expr) -> Kind | None:
    """Return the type to which an aggregate converts an event's value; None for aggregates that accept any type."""
    return _EVENT_VALUE_KIND_BY_AGGREGATE.get(type(node))


def has_window_or_filter(node: exp.Expr) -> bool:
    """Return whether the aggregate has OVER or FILTER, which must directly follow the aggregate in the SQL."""
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)):
        parent = parent.parent
    return isinstance(parent, (exp.Window, exp.Filter))


_COMBINED_AGGREGATES_METADATA_KEY: Final = "by_several"


def combine_aggregates(template: str, *aggregates: exp.Expr) -> exp.Expr:
    """Return an expression of several aggregates, which is marked so that OVER is applied to each of them."""
    combined = fragment_node(template, *aggregates)
    combined.meta[_COMBINED_AGGREGATES_METADATA_KEY] = True
    return combined


def distribute_window(window: exp.Expr) -> exp.Expr:
    """Move a window over an expression of several aggregates inwards, so that each aggregate has the window.

    Return a window over a single aggregate unchanged.
    """
    aggregate = window.this
    if not aggregate.meta_get(_COMBINED_AGGREGATES_METADATA_KEY):
        return window
    return replace_fragment_parts(aggregate, [_apply_window(window, part) for part in fragment_parts(aggregate)])


def _apply_window(window: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    windowed = copy_tree(window)
    windowed.set("this", copy_tree(aggregate))
    return windowed


def drop_nulls_modifier(node: exp.Expr) -> exp.Expr:
    """Remove IGNORE NULLS or RESPECT NULLS around an aggregate, because the aggregate's rule has already applied it."""
    inner: exp.Expr = node.this
    return inherit_metadata(inner, node)


def make_nan_for_infinite_value(aggregate: exp.Expr, single_value: exp.Expr) -> exp.Expr:
    """Return the aggregate, changed so that it is NaN for a single infinite or NaN value, where engines return zero.

    `single_value` selects any one of the aggregated values. The SQL adds zero times this value, which is NaN if the
    value is not finite, and otherwise zero.
    """
    return combine_aggregates("({0} + 0 * {1})", aggregate, single_value)
