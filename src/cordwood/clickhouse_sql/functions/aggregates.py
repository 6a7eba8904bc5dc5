"""Aggregates: over no rows they return the default of their type, and a sum of conditions counts them."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.translate import as_float, default_of
from cordwood.clickhouse_sql.values import FLOAT, INT, Type, Value, array_of, literal_node
from cordwood.sql.nodes import internal

_Aggregate = Callable[[Expressions, Call], Value]

_NAN: Final = "cast('nan' as float64)"
_MOST_GATHERED: Final = 10_000


def aggregate(t: Expressions, call: Call) -> Value:
    """Return the aggregate of rows with the columns of `t`."""
    return _AGGREGATES[call.name](t, call)


def _arguments(t: Expressions, call: Call, count: int, parameters: int = 0) -> tuple[exp.Expr, ...]:
    if call.is_distinct and call.name not in ("count", "uniq", "uniqexact", "sum", "grouparray"):
        raise t.refused(call.node, f"{call.spelled} of DISTINCT values is not supported.")
    if len(call.arguments) != count:
        raise t.refused(call.node, f"{call.spelled} takes {count} arguments, and {len(call.arguments)} were given.")
    if len(call.parameters) > parameters:
        raise t.refused(call.node, f"{call.spelled} takes no parameters in brackets of their own.")
    return call.arguments


def _chosen(t: Expressions, call: Call, node: exp.Expr) -> exp.Expr:
    """Return the argument, or NULL where the condition of -If does not hold."""
    if call.condition is None:
        return node
    return t.fill(call.node, "if(@condition, @value, null)", condition=t.filter(call.condition), value=node)


def _with_default(t: Expressions, call: Call, made: exp.Expr, type_: Type) -> Value:
    if type_.nullable:
        return Value(made, type_)
    if type_.name in ("DateTime", "Date"):
        zero = "timestamp_micros(0)" if type_.name == "DateTime" else "date_from_unix_date(0)"
        return Value(t.fill(call.node, f"coalesce(@value, {zero})", value=made), type_)
    return Value(made, type_, default=default_of(type_))


def _count(t: Expressions, call: Call) -> Value:
    if call.is_distinct:
        return _uniq(t, call)
    if len(call.arguments) > 1:
        raise t.refused(call.node, "count takes at most 1 argument.")
    value = t.plain(call.arguments[0]) if call.arguments else None
    if call.condition is not None:
        condition = t.filter(call.condition)
        if value is not None and value.type.nullable:
            condition = t.fill(call.node, "@condition and @value is not null", condition=condition, value=value.node)
        return Value(t.fill(call.node, "countif(@condition)", condition=condition), INT)
    if value is None or not value.type.nullable:
        return Value(t.fill(call.node, "count(*)"), INT)
    return Value(t.fill(call.node, "count(@value)", value=value.node), INT)


def _uniq(t: Expressions, call: Call) -> Value:
    """Return uniq and related functions, which ClickHouse approximates, as an exact count."""
    if len(call.arguments) > 1:
        hint = "Write uniq(concat(a, '/', b)), or count the rows of SELECT DISTINCT a, b in brackets."
        raise t.refused(call.node, f"{call.spelled} of several values is not supported.", hint)
    (node,) = _arguments(t, call, 1)
    value = _chosen(t, call, t.plain(node).node)
    return Value(t.fill(call.node, "count(distinct @value)", value=value), INT)


def _sum(t: Expressions, call: Call) -> Value:
    (node,) = _arguments(t, call, 1)
    value = t.number(node)
    distinct = "distinct " if call.is_distinct else ""
    made = t.fill(call.node, f"sum({distinct}@value)", value=_chosen(t, call, value.node))
    return _with_default(t, call, made, value.type)


def _avg(t: Expressions, call: Call) -> Value:
    (node,) = _arguments(t, call, 1)
    value = as_float(t.number(node))
    made = t.fill(call.node, "avg(@value)", value=_chosen(t, call, value.node))
    return _or_nan(t, call, made, value)


def _or_nan(t: Expressions, call: Call, made: exp.Expr, value: Value) -> Value:
    """Return the aggregate, with NaN instead of NULL for no rows, unless its type has NULL."""
    if value.type.nullable:
        return Value(made, FLOAT.or_null())
    return Value(t.fill(call.node, f"coalesce(@value, {_NAN})", value=made), FLOAT)


def _spread(name: str) -> _Aggregate:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = _arguments(t, call, 1)
        value = as_float(t.number(node))
        made = t.fill(call.node, f"{name}(@value)", value=_chosen(t, call, value.node))
        return _or_nan(t, call, made, value)

    return function


def _extreme(name: str) -> _Aggregate:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = _arguments(t, call, 1)
        value = _without_nan(_comparable(t, node), name)
        made = t.fill(call.node, f"{name}(@value)", value=_chosen(t, call, value.node))
        return _with_default(t, call, made, value.type)

    return function


def _without_nan(value: Value, name: str = "") -> Value:
    """Return the value with NaN replaced by NULL, because ClickHouse's aggregates ignore NaN."""
    if value.type.name != "Float64" or value.is_constant or name == "any_value":
        return value
    return msgspec.structs.replace(value, node=internal("not_nan", value.node))


def _comparable(t: Expressions, node: exp.Expr) -> Value:
    value = t.plain(node)
    if value.type.name in ("UInt8", "Bool"):
        return t.number(node)
    if value.type.name in ("Map", "Array", "Interval"):
        raise t.refused(node, f"A {value.type} cannot be aggregated so.")
    return value


def _by(name: str) -> _Aggregate:
    """Return a function for the first argument of the row with the least or greatest second one."""

    def function(t: Expressions, call: Call) -> Value:
        node, by = _arguments(t, call, 2)
        value, order = _comparable(t, node), _comparable(t, by)
        parts = {"value": value.node, "order": _chosen(t, call, order.node)}
        return _with_default(t, call, t.fill(call.node, f"{name}(@value, @order)", **parts), value.type)

    return function


def _gathered(*, is_distinct: bool) -> _Aggregate:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = _arguments(t, call, 1, parameters=1)
        value = _comparable(t, node)
        distinct = "distinct " if is_distinct or call.is_distinct else ""
        limit = f" limit {_most(t, call)}" if call.parameters else ""
        template = f"array_agg({distinct}@value ignore nulls{limit})"
        made = t.fill(call.node, template, value=_chosen(t, call, value.node))
        return Value(t.fill(call.node, "coalesce(@value, [])", value=made), array_of(value.type.never_null()))

    return function


def _most(t: Expressions, call: Call) -> int:
    most = int(t.constant_number(call.parameters[0], "The number of values"))
    if not 1 <= most <= _MOST_GATHERED:
        raise t.refused(call.node, f"From 1 to {_MOST_GATHERED} values can be gathered.")
    return most


def _quantile(name: str, level: float | None = None) -> _Aggregate:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = _arguments(t, call, 1, parameters=1)
        share = t.constant_number(call.parameters[0], "The level of a quantile") if call.parameters else level or 0.5
        if not 0 <= share <= 1:
            raise t.refused(call.node, "The level of a quantile lies between 0 and 1.")
        value = _without_nan(as_float(t.number(node)))
        made = internal(name, _chosen(t, call, value.node), literal_node(float(share)))
        return _or_nan(t, call, made, value)

    return function


_AGGREGATES: Final[Mapping[str, _Aggregate]] = {
    "any": _extreme("any_value"),
    "anylast": _extreme("any_value"),
    "argmax": _by("max_by"),
    "argmin": _by("min_by"),
    "avg": _avg,
    "count": _count,
    "countdistinct": _uniq,
    "grouparray": _gathered(is_distinct=False),
    "groupuniqarray": _gathered(is_distinct=True),
    "max": _extreme("max"),
    "median": _quantile("quantile"),
    "min": _extreme("min"),
    "quantile": _quantile("quantile"),
    "quantileexactinclusive": _quantile("quantile"),
    "quantiletdigest": _quantile("quantile_tdigest"),
    "stddevpop": _spread("stddev_pop"),
    "stddevsamp": _spread("stddev_samp"),
    "sum": _sum,
    **dict.fromkeys(("uniq", "uniqcombined", "uniqexact", "uniqhll12"), _uniq),
    "varpop": _spread("var_pop"),
    "varsamp": _spread("var_samp"),
}

NAMES: Final = frozenset(_AGGREGATES)
