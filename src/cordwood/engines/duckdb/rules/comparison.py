"""Comparisons: both sides are read as one type; structs compare by position, not by field name."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.reading import read_as
from cordwood.engines.duckdb.rules.words import type_part
from cordwood.model.datatype import MOMENTS, NUMBERS, Datatype, Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet
from cordwood.sql.typing import datatype_of, kind_of, typed_as
from cordwood.sql.typing.datatypes import common_type


def meeting_kind(kinds: list[Kind | None]) -> Kind | None:
    """Return the type in which values of these types are compared; None if no conversion is needed."""
    known = [kind for kind in kinds if kind is not None]
    if Kind.VARIANT in known:
        others = [kind for kind in known if kind is not Kind.VARIANT]
        return _number_kind(others[0]) if others else Kind.STRING
    if len(set(known)) < 2:
        return None
    return next((kind for kind in (*MOMENTS, Kind.BYTES) if kind in known), None)


def _number_kind(kind: Kind) -> Kind:
    return Kind.FLOAT64 if kind in NUMBERS else kind


def _compared(node: exp.Expr) -> exp.Expr:
    sides = [node.this, node.expression]
    kind = meeting_kind([kind_of(side) for side in sides])
    if kind is not None:
        return type(node)(this=_meet(sides[0], kind), expression=_meet(sides[1], kind))
    if kind_of(sides[0]) is kind_of(sides[1]) is Kind.STRUCT:
        return _structs_compared(node, sides)
    return node


def _structs_compared(node: exp.Expr, sides: list[exp.Expr]) -> exp.Expr:
    """Compare structs: `=` and `<>` field by field, unknown if a field is NULL; others under common field names."""
    both = common_type(map(datatype_of, sides))
    if both is not None and isinstance(node, (exp.EQ, exp.NEQ)) and both.fields:
        equal = _fields_equal("{0}", "{1}", both)
        return fragment(equal if isinstance(node, exp.EQ) else f"NOT ({equal})", *sides)
    return type(node)(this=positional(sides[0], both), expression=positional(sides[1], both))


def _fields_equal(left: str, right: str, both: Datatype) -> str:
    pieces = []
    for at, (_, field) in enumerate(both.fields):
        one, other = (f"struct_extract_at({side}, {at + 1})" for side in (left, right))
        nested = field is not None and field.kind is Kind.STRUCT and field.fields
        pieces.append(_fields_equal(one, other, field) if nested and field else f"{one} = {other}")
    return "(" + " AND ".join(pieces) + ")"


def _meet(side: exp.Expr, kind: Kind) -> exp.Expr:
    return side if kind is Kind.FLOAT64 and kind_of(side) in NUMBERS else read_as(side, kind)


def _alike(side: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Return a struct with the names and types that both sides have in common."""
    return positional(side, common_type((datatype_of(side), datatype_of(other))))


def positional(node: exp.Expr, to: Datatype | None) -> exp.Expr:
    """Convert a struct to another type by position: a cast of DuckDB would match fields by name."""
    own, spelled = datatype_of(node), type_part(to)
    if spelled is None or own == to:
        return node
    return fragment(f"CAST(row({_fields(own, '{0}')}) AS {{1}})", node, spelled) if own and own.fields else node


def _fields(own: Datatype, value: str) -> str:
    parts = enumerate((field for _, field in own.fields), start=1)
    return ", ".join(_nameless(field, f"struct_extract_at({value}, {at})") for at, field in parts)


def _nameless(own: Datatype | None, value: str) -> str:
    """Return a nested struct, or array of structs, without field names."""
    if own is not None and own.kind is Kind.STRUCT and own.fields:
        return f"CASE WHEN {value} IS NOT NULL THEN row({_fields(own, value)}) END"
    if own is not None and own.kind is Kind.ARRAY and own.element and own.element.kind is Kind.STRUCT:
        return f"list_transform({value}, lambda _f: {_nameless(own.element, '_f')})"
    return value


def _between(node: exp.Expr) -> exp.Expr:
    parts = [node.this, node.args["low"], node.args["high"]]
    kind = meeting_kind([kind_of(part) for part in parts])
    if kind is not None:
        this, low, high = (_meet(part, kind) for part in parts)
        return exp.Between(this=this, low=low, high=high)
    return node


def _in(node: exp.Expr) -> exp.Expr:
    if node.args.get("unnest"):
        return _in_array(node)
    if node.args.get("query"):
        return _in_query(node)
    kind = meeting_kind([kind_of(part) for part in (node.this, *node.expressions)])
    if all(_is_struct(part) for part in (node.this, *node.expressions)):
        return _in_structs(node.this, node.expressions)
    if kind is None:
        return _in_places(node.this, node.expressions)
    return exp.In(this=_meet(node.this, kind), expressions=[_meet(item, kind) for item in node.expressions])


def _in_structs(value: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    """Lower IN over structs field by field: in DuckDB's own IN, NULL in a field is an ordinary value."""
    both = [common_type([datatype_of(value), datatype_of(item)]) for item in items]
    if not all(each and each.fields for each in both):
        return _in_places(value, items)
    equal = [_fields_equal("{0}", f"{{{at}}}", each) for at, each in enumerate(both, 1) if each]
    return fragment(f"({' OR '.join(equal)})", value, *items)


def _in_places(value: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    placed = [positional(item, datatype_of(value)) if _is_struct(item) else item for item in items]
    return exp.In(this=value, expressions=placed)


def _is_struct(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.STRUCT


def _in_array(node: exp.Expr) -> exp.Expr:
    """Lower `IN UNNEST(…)`: NULL if no element is equal and an element or the value is NULL."""
    unnest = node.args["unnest"]
    array = unnest.expressions[0] if isinstance(unnest, exp.Unnest) else unnest
    return in_array(node.this, array)


def in_array(value: exp.Expr, array: exp.Expr) -> exp.Expr:
    datatype = datatype_of(array)
    element = datatype.element if datatype else None
    if element is not None and element.kind is Kind.VARIANT:
        kind = _number_kind(kind_of(value) or Kind.STRING)
        read = typed_as(fragment("_e"), element)
        array = fragment("list_transform({0}, lambda _e: {1})", array, read_as(read, kind))
        value = read_as(value, kind)
    else:
        if element is not None and element.kind is kind_of(value) is Kind.STRUCT:
            return _struct_in_array(value, array, element)
        value = read_as(value, element.kind) if element else value
    return fragment("{0} IN (SELECT unnest({1}))", value, array)


def _struct_in_array(value: exp.Expr, array: exp.Expr, element: Datatype) -> exp.Expr:
    equal = _fields_equal("{0}", "_u", element)
    found = f"CASE WHEN bool_or({equal}) THEN true WHEN count(*) > count({equal}) THEN NULL ELSE false END"
    return fragment(f"(SELECT {found} FROM (SELECT unnest({{1}}) AS _u))", value, array)  # noqa: S608 - a template of ours


def _in_query(node: exp.Expr) -> exp.Expr:
    query = node.args["query"]
    own, other = kind_of(node.this), kind_of(query)
    kind = meeting_kind([own, other])
    if kind is not None and other is not Kind.VARIANT:
        return exp.In(this=_meet(node.this, kind), query=query)
    if other is Kind.VARIANT:
        return _in_events(node, Kind.STRING if kind is None else kind)
    if own is Kind.STRUCT:
        return exp.In(this=positional(node.this, datatype_of(query)), query=query)
    return node


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


def _is(node: exp.Expr) -> exp.Expr:
    return _truth(node) if isinstance(node.expression, exp.Boolean) else node


MEANING = RuleSet(
    nodes={
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _compared),
        **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _compared),
        **dict.fromkeys((exp.And, exp.Or, exp.Not), _truth),
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
    }
)
