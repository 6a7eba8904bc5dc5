"""STRUCT values as named tuples; fields without a name are named by position."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import null_of, type_part
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.engines.clickhouse.rules.relations import gather, is_gatherable, tuple_of
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.structs import field_values, is_list
from cordwood.sql.constants import is_null
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import RuleSet
from cordwood.sql.typing import datatype_of, kind_of, typed_as
from cordwood.sql.typing.datatypes import struct_of
from cordwood.sql.typing.scopes import field_of

# Metadata key of a query with aggregates. Aggregates cannot be nested, so an outer query collects its rows to an array.
_AGGREGATES: Final = "aggregates"


def _struct(node: exp.Expr) -> exp.Expr:
    datatype = datatype_of(node) or Datatype(Kind.STRUCT)
    return pack_struct(datatype, field_values(node))


def pack_struct(datatype: Datatype, values: list[exp.Expr]) -> exp.Expr:
    """Return a tuple of that type; without a cast if a field's type is not known."""
    types = [field for _, field in datatype.fields] or [None] * len(values)
    values = [null_of(field) if is_null(value) else value for value, field in zip(values, types, strict=False)]
    return tuple_of(datatype, values)


def _tuple(node: exp.Expr) -> exp.Expr:
    if is_list(node):
        return node
    return pack_struct(datatype_of(node) or Datatype(Kind.STRUCT), node.expressions)


def _array(node: exp.Expr) -> exp.Expr:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return _array_of_query(items[0])
    datatype = datatype_of(node)
    element = datatype.element if datatype else None
    is_known = element is not None or (isinstance(node.parent, exp.Unnest) and all(map(is_null, items)))
    name = type_part(datatype or Datatype(Kind.ARRAY)) if is_known else None
    if name is None:
        return fragment(f"[{holes(len(items))}]", *items)
    elements = [_as_element(item, element) for item in items]
    return fragment(f"CAST([{holes(len(items))}], {{{len(items)}}})", *elements, name)


def _as_element(item: exp.Expr, element: Datatype | None) -> exp.Expr:
    return item if element is None or kind_of(item) is Kind.VARIANT else read_as(item, element.kind)


def _array_of_query(query: exp.Expr) -> exp.Expr:
    """Aggregate the rows in the query itself if possible, so that it may refer to the outer row."""
    if is_gatherable(query) and not query.meta_get(_AGGREGATES):
        return fragment("({0})", gather(query))
    # groupArray skips NULLs unless they are inside tuples.
    return fragment("arrayMap(_t -> _t.1, (SELECT groupArray(tuple(COLUMNS('.*'))) FROM ({0})))", query)


def _note_items(node: exp.Expr) -> exp.Expr:
    """Record facts about the items before they are lowered, because lowering loses them."""
    datatype = datatype_of(node)
    for item in node.expressions:
        if isinstance(item, exp.Query):
            item.meta[_AGGREGATES] = any(item.find_all(exp.AggFunc, exp.Window))
        elif isinstance(item, (exp.Struct, exp.Tuple)) and datatype is not None:
            _adopt_types(item, datatype.element)
    return node


def _adopt_types(item: exp.Expr, element: Datatype | None) -> None:
    """Give a NULL field the type that it has in the other elements: ClickHouse needs a type for the array."""
    item_type, values = datatype_of(item), field_values(item) if isinstance(item, exp.Struct) else item.expressions
    if item_type is None or element is None or not len(item_type.fields) == len(element.fields) == len(values):
        return
    triples = zip(item_type.fields, element.fields, values, strict=True)
    typed_as(
        item,
        struct_of(
            (name, element_field if is_null(value) else field) for (name, field), (_, element_field), value in triples
        ),
    )


def _field(node: exp.Expr) -> exp.Expr:
    """Lower access to a field: of a STRUCT, of JSON (the value under that key), or of every element of an array."""
    if not isinstance(node.expression, exp.Identifier):
        return node
    if kind_of(node.this) is Kind.ARRAY:
        return _field_of_elements(node)
    name = node.expression.name
    if kind_of(node.this) is Kind.JSON:
        return fragment("nullIf(JSONExtractRaw({0}, {1}), '')", node.this, text_part(name))
    return fragment("tupleElement({0}, {1})", node.this, _field_position(datatype_of(node.this), name))


def _field_of_elements(node: exp.Expr) -> exp.Expr:
    """Return the field of every element; fields that are arrays are concatenated."""
    base = datatype_of(node.this)
    element = base.element if base else None
    name = node.expression.name
    fields = fragment("arrayMap(_e -> tupleElement(_e, {1}), {0})", node.this, _field_position(element, name))
    field = field_of(element, name)
    return fragment("arrayFlatten({0})", fields) if field is not None and field.kind is Kind.ARRAY else fields


def _field_position(datatype: Datatype | None, name: str) -> exp.Expr:
    """Return the field's position, because names are case-insensitive; its name if positions are not known."""
    names = [label.lower() for label, _ in datatype.fields] if datatype else []
    return exp.Literal.number(names.index(name.lower()) + 1) if name.lower() in names else text_part(name)


RULES = RuleSet(
    nodes={exp.Struct: _struct, exp.Tuple: _tuple, exp.Array: _array, exp.Dot: _field},
    before_children={exp.Array: _note_items},
)
