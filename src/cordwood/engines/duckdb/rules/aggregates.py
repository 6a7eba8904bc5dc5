"""Aggregates and window functions: DISTINCT, ORDER BY, LIMIT, IGNORE NULLS and HAVING MAX, and the types of the results.

A cast of a window function's result is outside of OVER.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.casts import cast_to, event_text
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.bigquery.aggregates import (
    Argument,
    combine_aggregates,
    distribute_window,
    event_value_kind,
    has_window,
    read_argument,
)
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import inherit, kind_of
from cordwood.sql.typing.datatypes import STRING

# The meta key of a sum of events' values, which is answered as an integer if it is one.
EVENT_NUMBER: Final = "event_number"


def _array_agg_of(argument: Argument, *, skip_nulls: bool, value: str = "{0}") -> exp.Expr:
    """Return array_agg with all modifiers of the argument."""
    if constant_int(argument.limit) == 0:
        return fragment("CASE WHEN count({0}) < 0 THEN array_agg({0}) END", argument.value)
    parts = [argument.value]
    template = f"array_agg({'DISTINCT ' if argument.distinct else ''}{value}"
    if argument.order is not None:
        template += " ORDER BY " + ", ".join(
            f"{{{len(parts) + index}}}" for index in range(len(argument.order.expressions))
        )
        parts += argument.order.expressions
    template += ")"
    if skip_nulls:
        template += " FILTER (WHERE {0} IS NOT NULL)"
    if argument.limit is not None:
        template = f"({template})[1:{{{len(parts)}}}]"
        parts.append(argument.limit)
    return fragment(template, *parts)


def _array_agg(node: exp.Expr) -> exp.Expr:
    argument = read_argument(node)
    if argument.ignore_nulls and has_window(node):
        # DuckDB accepts no OVER after a FILTER inside parentheses.
        present = "nullif(list_filter({0}, lambda _e: _e IS NOT NULL), [])"
        return combine_aggregates(present, _array_agg_of(argument, skip_nulls=False))
    return _array_agg_of(argument, skip_nulls=bool(argument.ignore_nulls))


def _array_concat_agg(node: exp.Expr) -> exp.Expr:
    return fragment("flatten({0})", _array_agg_of(read_argument(node), skip_nulls=True))


def _string_agg(node: exp.Expr) -> exp.Expr:
    argument = read_argument(node)
    separator = node.args.get("separator") or exp.Literal.string(",")
    value, argument.value = argument.value, _as_text(node, argument.value)
    _order_by_distinct_text(argument, value)
    if argument.limit is not None:
        return fragment("array_to_string({0}, {1})", _array_agg_of(argument, skip_nulls=True), separator)
    distinct = "DISTINCT " if argument.distinct else ""
    order = argument.order.expressions if argument.order is not None else []
    return fragment(f"string_agg({distinct}{{0}}, {{1}}{_order_clause(len(order))})", argument.value, separator, *order)


def _order_clause(count: int) -> str:
    """Return the ORDER BY of a fragment whose first two parts are the value and the separator."""
    return " ORDER BY " + ", ".join(f"{{{index + 2}}}" for index in range(count)) if count else ""


def _order_by_distinct_text(argument: Argument, value: exp.Expr) -> None:
    """Order by the converted text in a DISTINCT aggregate: DuckDB requires the two expressions to be the same."""
    if not argument.distinct or argument.order is None:
        return
    for item in argument.order.expressions:
        if isinstance(item, exp.Ordered) and item.this == value:
            item.set("this", copied(argument.value))


def _as_text(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    kind = kind_of(value)
    if kind is Kind.BYTES:
        unsupported(node, "STRING_AGG of BYTES")
    if kind is Kind.VARIANT:
        return event_text(value)
    return value if kind in (None, Kind.STRING) else cast_to(node, value, STRING)


def _simple(name: str, template: str = "{0}") -> Rule:
    """Return the rule of an aggregate that DuckDB has under this name."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        return fragment(template.replace("{0}", _call_template(name, argument)), _value(argument, node))

    return rule


def _call_template(name: str, argument: Argument) -> str:
    """Return the template of an aggregate over one value, with DISTINCT where the argument has it."""
    return f"{name}({'DISTINCT ' if argument.distinct else ''}{{0}})"


def _value(argument: Argument, node: exp.Expr) -> exp.Expr:
    kind = event_value_kind(node)
    if kind_of(argument.value) is Kind.VARIANT and kind is not None:
        return read_as(argument.value, kind)
    return argument.value


def _sum(node: exp.Expr) -> exp.Expr:
    """Lower SUM; the result is cast outside of the window, if there is one."""
    argument = read_argument(node)
    aggregate = fragment(_call_template("sum", argument), _value(argument, node))
    if kind_of(argument.value) is Kind.VARIANT:
        aggregate.meta[EVENT_NUMBER] = True
    return cast_outside_window(node, aggregate, "BIGINT" if kind_of(node) is Kind.INT64 else None)


def _avg(node: exp.Expr) -> exp.Expr:
    argument = read_argument(node)
    value = _value(argument, node)
    kind = kind_of(node)
    if kind not in EXACT:
        return fragment(_call_template("avg", argument), value)
    total, count = (fragment(_call_template(name, argument), copied(value)) for name in ("sum", "count"))
    return combine_aggregates(
        _exact_average("DECIMAL(38, 9)" if kind is Kind.NUMERIC else "DECIMAL(38, 18)"), total, count
    )


def _exact_average(decimal: str) -> str:
    """Return the template of an exact average, divided as integers and rounded half away from zero.

    DuckDB's own average goes through a double. The template uses no lambda, because HAVING does not accept one.
    """
    exponent = "e-9" if decimal.endswith(" 9)") else "e-18"
    units = f"replace({{0}}::{decimal}::VARCHAR, '.', '')::HUGEINT"
    return f"(({units} // {{1}} + {units} % {{1}} * 2 // {{1}}) || '{exponent}')::{decimal}"


def cast_outside_window(node: exp.Expr, aggregate: exp.Expr, cast: str | None) -> exp.Expr:
    """Cast an aggregate, or leave the cast to the window's rule: none may be between an aggregate and its OVER."""
    if cast is None:
        return aggregate
    if has_window(node):
        aggregate.meta["cast"] = cast
        return aggregate
    return fragment(f"{{0}}::{cast}", aggregate)


def _count(node: exp.Expr) -> exp.Expr:
    if isinstance(node.this, exp.Star) or node.this is None:
        return fragment("count(*)")
    argument = read_argument(node)
    value = argument.value
    if kind_of(value) is Kind.VARIANT and argument.distinct:
        value = read_as(value, Kind.STRING)
    return fragment(_call_template("count", argument), value)


def _count_if(node: exp.Expr) -> exp.Expr:
    argument = read_argument(node)
    value = _value(argument, node)
    distinct = "DISTINCT " if argument.distinct else ""
    return fragment(f"count({distinct}CASE WHEN {{0}} THEN 1 END)", value)


def _extremum(name: str) -> Rule:
    """Return the rule of MIN or MAX: NaN if any value is NaN; events' values compare as numbers if all are."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        if kind_of(argument.value) is Kind.VARIANT:
            return _event_extremum(name, argument.value)
        if kind_of(argument.value) is Kind.FLOAT64 and name == "min":
            any_nan = fragment("bool_or(isnan({0}))", copied(argument.value))
            minimum = fragment("min({0})", argument.value)
            return combine_aggregates("CASE WHEN {0} THEN 'nan'::DOUBLE ELSE {1} END", any_nan, minimum)
        return fragment(f"{name}({{0}})", argument.value)

    return rule


def _event_extremum(name: str, value: exp.Expr) -> exp.Expr:
    numbers, texts = read_as(value, Kind.FLOAT64), read_as(copied(value), Kind.STRING)
    counts = (fragment("count({0})", copied(values)) for values in (numbers, texts))
    extremes = (fragment(f"{name}({{0}})", values) for values in (numbers, texts))
    template = f"CASE WHEN {{0}} = {{1}} THEN {event_number('{2}')} ELSE ({{3}})::VARIANT END"
    return combine_aggregates(template, *counts, *extremes)


def event_number(number: str) -> str:
    """Return the template of a number read from events: an integer if it is integral."""
    return f"CASE WHEN {number} = trunc({number}) AND abs({number}) < 1e15 THEN {number}::BIGINT::VARIANT ELSE {number}::VARIANT END"


def _any_value(node: exp.Expr) -> exp.Expr:
    argument = read_argument(node)
    if argument.having is not None:
        name = "max" if argument.having.args.get("max") else "min"
        return _at_extremum(name, argument.value, argument.having.expression)
    return fragment("any_value({0})", argument.value)


def _at_extremum(name: str, value: exp.Expr, key: exp.Expr) -> exp.Expr:
    """Return a value from the rows with the extreme key; NULL only if all of those values are NULL."""
    if kind_of(key) is Kind.VARIANT:
        return fragment(f"arg_{name}_null({{0}}, {{1}})", value, key)
    extreme = fragment(f"{name}({{0}})", key)
    extreme_of_present = fragment(f"{name}(CASE WHEN {{1}} IS NOT NULL THEN {{0}} END)", copied(key), copied(value))
    return combine_aggregates(
        "CASE WHEN {0} = {1} THEN {2} END",
        extreme,
        extreme_of_present,
        fragment(f"arg_{name}({{0}}, {{1}})", value, copied(key)),
    )


def _arg_extremum(name: str) -> Rule:
    return lambda node: _at_extremum(name, node.this, node.expression)


def _drop_modifier(node: exp.Expr) -> exp.Expr:
    """Remove the node: the rule of the aggregate inside has applied the modifier."""
    inner: exp.Expr = node.this
    return inherit(inner, node)


def _grouping(node: exp.Expr) -> exp.Expr:
    return fragment("grouping({0})", node.expressions[0] if node.expressions else node.this)


def _bitwise(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        return fragment(_call_template(name, argument), argument.value)

    return rule


def _pair(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = read_as(node.this, Kind.FLOAT64), read_as(node.expression, Kind.FLOAT64)
        aggregate = fragment(f"{name}({{0}}, {{1}})", left, right)
        if name.endswith("samp"):
            return aggregate
        return _nan_for_single_infinite(aggregate, fragment("any_value({0} + {1})", copied(left), copied(right)))

    return rule


def _population(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        value = fragment("{0}::DOUBLE", _value(argument, node))
        aggregate = fragment(_call_template(name, argument), value)
        return _nan_for_single_infinite(aggregate, fragment("any_value({0})", copied(value)))

    return rule


def _nan_for_single_infinite(aggregate: exp.Expr, single_value: exp.Expr) -> exp.Expr:
    """Return NaN for a single value that is not finite, where DuckDB returns zero."""
    return combine_aggregates("({0} + 0 * {1})", aggregate, single_value)


def _correlation(node: exp.Expr) -> exp.Expr:
    """Lower CORR: fewer than two pairs give NULL, where DuckDB returns NaN."""
    pair = read_as(node.this, Kind.FLOAT64), read_as(node.expression, Kind.FLOAT64)
    count = fragment("regr_count({0}, {1})", *(copied(side) for side in pair))
    return combine_aggregates("CASE WHEN {0} > 1 THEN {1} END", count, fragment("corr({0}, {1})", *pair))


def _window(node: exp.Expr) -> exp.Expr:
    cast = node.this.meta_get("cast")
    # A copy, because a node cannot be part of its own replacement.
    return fragment(f"{{0}}::{cast}", copied(node)) if cast else distribute_window(node)


def _navigation(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        nulls = " IGNORE NULLS" if argument.ignore_nulls else ""
        arguments = [node.args[key] for key in ("offset", "default") if node.args.get(key) is not None]
        kind = kind_of(node)
        if len(arguments) > 1 and kind is not None and kind_of(arguments[1]) is not kind_of(argument.value):
            argument.value, arguments[1] = read_as(argument.value, kind), read_as(arguments[1], kind)
        holes = "".join(f", {{{index + 1}}}" for index in range(len(arguments)))
        return fragment(f"{name}({{0}}{holes}{nulls})", argument.value, *arguments)

    return rule


RULES = RuleSet(
    nodes={
        exp.ArrayAgg: _array_agg,
        exp.ArrayConcatAgg: _array_concat_agg,
        exp.GroupConcat: _string_agg,
        exp.Count: _count,
        exp.CountIf: _count_if,
        exp.LogicalAnd: _simple("bool_and"),
        exp.LogicalOr: _simple("bool_or"),
        exp.Sum: _sum,
        exp.Avg: _avg,
        exp.Min: _extremum("min"),
        exp.Max: _extremum("max"),
        exp.AnyValue: _any_value,
        exp.ArgMax: _arg_extremum("max"),
        exp.ArgMin: _arg_extremum("min"),
        exp.IgnoreNulls: _drop_modifier,
        exp.RespectNulls: _drop_modifier,
        exp.Grouping: _grouping,
        exp.BitwiseAndAgg: _bitwise("bit_and"),
        exp.BitwiseOrAgg: _bitwise("bit_or"),
        exp.BitwiseXorAgg: _bitwise("bit_xor"),
        exp.Stddev: _simple("stddev_samp"),
        exp.StddevSamp: _simple("stddev_samp"),
        exp.StddevPop: _population("stddev_pop"),
        exp.Variance: _simple("var_samp"),
        exp.VariancePop: _population("var_pop"),
        exp.Corr: _correlation,
        exp.CovarPop: _pair("covar_pop"),
        exp.CovarSamp: _pair("covar_samp"),
        exp.Window: _window,
        exp.Filter: _window,
        exp.FirstValue: _navigation("first_value"),
        exp.LastValue: _navigation("last_value"),
        exp.NthValue: _navigation("nth_value"),
        exp.Lead: _navigation("lead"),
        exp.Lag: _navigation("lag"),
    },
)
