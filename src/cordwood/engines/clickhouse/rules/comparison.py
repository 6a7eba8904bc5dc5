"""Comparisons: both sides are read as one type; NULL in a list makes the result of IN unknown."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.reading import event_text, read_as
from cordwood.engines.clickhouse.rules.words import IS_NONE, once
from cordwood.model.datatype import EXACT, MOMENTS, NUMBERS, Datatype, Kind
from cordwood.sql.constants import constant
from cordwood.sql.fragment import fragment, holes
from cordwood.sql.lowering import RuleSet
from cordwood.sql.nodes import COMPARISONS
from cordwood.sql.typing import datatype_of, kind_of, typed_as


def meeting_kind(kinds: list[Kind | None]) -> Kind | None:
    """Return the type in which values of these types are compared; None if no conversion is needed."""
    constant_value = list(dict.fromkeys(filter(None, kinds)))
    if Kind.VARIANT in constant_value:
        constant_value.remove(Kind.VARIANT)
        return _number_kind(constant_value[0]) if constant_value else Kind.STRING
    if len(constant_value) < 2:
        return None
    return next((kind for kind in MOMENTS if kind in constant_value), None) or _inexact(set(constant_value))


def _inexact(constant_value: set[Kind]) -> Kind | None:
    return Kind.FLOAT64 if Kind.FLOAT64 in constant_value and not constant_value.isdisjoint(EXACT) else None


def _number_kind(kind: Kind) -> Kind:
    return Kind.FLOAT64 if kind in NUMBERS else kind


def _compared(node: exp.Expr) -> exp.Expr:
    if type(node) in (exp.EQ, exp.NEQ) and _are_structs(node):
        same = _same_fields("{0}", "{1}", datatype_of(node.this), datatype_of(node.expression))
        return fragment(same if isinstance(node, exp.EQ) else f"(NOT {same})", node.this, node.expression)
    left, right = _met([node.this, node.expression])
    if kind_of(left) is Kind.INTERVAL is kind_of(right):
        left, right = _length(left), _length(right)
    return fragment(f"({{0}} {COMPARISONS[type(node)]} {{1}})", left, right)


def _length(interval: exp.Expr) -> exp.Expr:
    """Return the length of an interval for comparisons: a month has 30 days, a day 24 hours."""
    return once("((@a.1 * 30 + @a.2) * toInt128(86400000000) + @a.3)", interval)


def _are_structs(node: exp.Expr) -> bool:
    sides = (datatype_of(node.this), datatype_of(node.expression))
    return all(side is not None and side.kind is Kind.STRUCT and side.fields for side in sides)


def _met(parts: list[exp.Expr]) -> list[exp.Expr]:
    """Return the parts converted to the type in which they are compared."""
    kind = meeting_kind([kind_of(part) for part in parts])
    return [_meet(part, kind) for part in parts] if kind else parts


def _same_fields(left: str, right: str, one: Datatype | None, other: Datatype | None) -> str:
    """Return the equality of structs field by field, unknown if a field is NULL.

    ClickHouse's own comparison treats NULL as a value.
    """
    if one is None or other is None or not (one.fields and other.fields):
        return f"({left} = {right})"
    pairs = zip(one.fields, other.fields, strict=False)
    fields = (
        _same_fields(f"tupleElement({left}, {index})", f"tupleElement({right}, {index})", a[1], b[1])
        for index, (a, b) in enumerate(pairs, 1)
    )
    return f"({' AND '.join(fields)})"


def _meet(side: exp.Expr, kind: Kind) -> exp.Expr:
    if kind is Kind.FLOAT64 and kind_of(side) in (Kind.INT64, Kind.FLOAT64):
        return side
    return read_as(side, kind)


def _between(node: exp.Expr) -> exp.Expr:
    parts = [node.this, node.args["low"], node.args["high"]]
    kind = meeting_kind([kind_of(part) for part in parts])
    return fragment("({0} BETWEEN {1} AND {2})", *(_meet(part, kind) if kind else part for part in parts))


def _in(node: exp.Expr) -> exp.Expr:
    unnest = node.args.get("unnest")
    if unnest:
        return in_array(node.this, unnest.expressions[0] if isinstance(unnest, exp.Unnest) else unnest)
    if node.args.get("query"):
        return _in_query(node)
    return _in_list(*_met([node.this, *node.expressions]))


def _in_list(value: exp.Expr, *items: exp.Expr) -> exp.Expr:
    """Lower IN over a list; ClickHouse's own IN accepts only constants."""
    if all(constant(item) is not None for item in items) and constant(value) is None:
        return fragment(f"({{0}} IN ({holes(len(items), 1)}))", value, *items)
    own = datatype_of(value)
    equal = (_same_fields("{0}", f"{{{index}}}", own, datatype_of(item)) for index, item in enumerate(items, 1))
    return fragment(f"({' OR '.join(equal)})", value, *items)


def in_array(value: exp.Expr, array: exp.Expr) -> exp.Expr:
    """Return the test for an element of an array: NULL if no element is equal and an element or the value is NULL."""
    datatype = datatype_of(array)
    element = datatype.element if datatype else None
    if element is not None and element.kind is Kind.VARIANT:
        kind = _number_kind(kind_of(value) or Kind.STRING)
        item = typed_as(fragment("_e"), element)
        array = fragment("arrayMap(_e -> {1}, {0})", array, read_as(item, kind))
        value = read_as(value, kind)
    elif element is not None and element.kind is Kind.STRUCT and element.fields:
        return _struct_in_array(value, array, _same_fields("{0}", "_e", datatype_of(value), element))
    elif element is not None:
        value = read_as(value, element.kind)
    return fragment(
        "multiIf(empty({1}), false, isNull({0}), NULL, has({1}, {0}), true, has({1}, NULL), NULL, false)", value, array
    )


def _struct_in_array(value: exp.Expr, array: exp.Expr, same: str) -> exp.Expr:
    """Return the test for a struct in an array: NULL if no element is equal and one may be, because of a NULL field."""
    found = f"arrayExists(_e -> ifNull({same}, false), {{1}})"
    maybe = f"arrayExists(_e -> isNull({same}), {{1}})"
    return fragment(
        f"multiIf(empty({{1}}), false, isNull({{0}}), NULL, {found}, true, {maybe}, NULL, false)", value, array
    )


def _in_query(node: exp.Expr) -> exp.Expr:
    query = node.args["query"]
    own, other = kind_of(node.this), kind_of(query)
    kind = meeting_kind([own, other])
    value = _meet(node.this, kind) if kind and other is not Kind.VARIANT else node.this
    if other is Kind.VARIANT:
        return _in_events(node, kind or Kind.STRING)
    return _in_collected(value, query)


def _in_collected(value: exp.Expr, query: exp.Expr) -> exp.Expr:
    """Lower IN over a query with three-valued logic; ClickHouse's own IN has two values."""
    found = fragment("arrayMap(_t -> _t.1, (SELECT groupArray(tuple(_c)) FROM (SELECT * FROM {0}) AS _q(_c)))", query)
    return in_array(value, found)


def _in_events(node: exp.Expr, kind: Kind) -> exp.Expr:
    column = typed_as(fragment("_c"), Datatype(Kind.VARIANT))
    return fragment(
        "{0} IN (SELECT {1} FROM {2} AS _q(_c))", read_as(node.this, kind), read_as(column, kind), node.args["query"]
    )


def _truth(node: exp.Expr) -> exp.Expr:
    for key in ("this", "expression"):
        part = node.args.get(key)
        if isinstance(part, exp.Expr) and kind_of(part) is Kind.VARIANT:
            node.set(key, read_as(part, Kind.BOOL))
    return node


def _and(node: exp.Expr) -> exp.Expr:
    truth = _truth(node)
    sign = "AND" if isinstance(node, exp.And) else "OR"
    return fragment(f"({{0}} {sign} {{1}})", truth.this, truth.expression)


def _not(node: exp.Expr) -> exp.Expr:
    return fragment("(NOT {0})", _truth(node).this)


def _is(node: exp.Expr) -> exp.Expr:
    if isinstance(node.expression, exp.Boolean):
        value = read_as(node.this, Kind.BOOL)
        return fragment(
            f"(ifNull({{0}}, {'false' if node.expression.this else 'true'}) = {str(node.expression.this).lower()})",
            value,
        )
    if node.this.unnest().meta_get(IS_NONE):
        return fragment("true")
    if kind_of(node.this) is Kind.VARIANT:
        return fragment("({0} IS NULL)", event_text(node.this))
    return fragment("({0} IS NULL)", node.this)


MEANING = RuleSet(
    nodes={
        **dict.fromkeys(COMPARISONS, _compared),
        **dict.fromkeys((exp.And, exp.Or), _and),
        exp.Not: _not,
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
    }
)
