"""STRUCT values: fields without a name are named by position, and the first element's names are the array's."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import field_part
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.engines.duckdb.rules.conditions import positional
from cordwood.engines.duckdb.rules.json_values import path_text
from cordwood.engines.duckdb.sql_values import engine_name
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.structs import field_values, is_list
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.typing import datatype_of, kind_of
from cordwood.sql.typing.scopes import field_of


def _struct(node: exp.Expr) -> exp.Expr:
    datatype = datatype_of(node) or Datatype(Kind.STRUCT)
    return pack_struct(datatype, field_values(node))


def pack_struct(datatype: Datatype, values: list[exp.Expr]) -> exp.Expr:
    names = [field_part(datatype, index) for index in range(len(values))]
    fields = ", ".join(f"{{{index + len(values)}}} := {{{index}}}" for index in range(len(values)))
    return fragment(f"struct_pack({fields})", *values, *names)


def _tuple(node: exp.Expr) -> exp.Expr:
    if is_list(node):
        return node
    return pack_struct(datatype_of(node) or Datatype(Kind.STRUCT), node.expressions)


def _array(node: exp.Expr) -> exp.Expr:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return fragment("ARRAY({0})", items[0])
    datatype = datatype_of(node)
    element = datatype.element if datatype else None
    if element is None:
        return exp.Array(expressions=items)
    return exp.Array(expressions=[as_element(item, element) for item in items])


def as_element(item: exp.Expr, element: Datatype) -> exp.Expr:
    if element.kind is Kind.STRUCT:
        return positional(item, element)
    return item if kind_of(item) is Kind.VARIANT else read_as(item, element.kind)


def _field(node: exp.Expr) -> exp.Expr:
    """Lower access to a field of a STRUCT; for JSON it is the value under that key."""
    if kind_of(node.this) is Kind.ARRAY:
        return _field_of_elements(node)
    if kind_of(node.this) is Kind.JSON and isinstance(node.expression, exp.Identifier):
        return fragment("json_extract({0}, {1})", node.this, text_part(path_text([node.expression.name])))
    if isinstance(node.this, exp.Column) or not isinstance(node.expression, exp.Identifier):
        return node
    return fragment("struct_extract({0}, {1})", node.this, text_part(engine_name(node.expression.name)))


def _field_of_elements(node: exp.Expr) -> exp.Expr:
    """Lower `UNNEST(orders.items)`: the field of every element; fields that are arrays are concatenated."""
    base = datatype_of(node.this)
    field = field_of(base.element if base else None, node.expression.name)
    if field is None:
        unsupported(node, "A field of an array's elements")
    name = text_part(engine_name(node.expression.name))
    fields = fragment("list_transform({0}, lambda _e: struct_extract(_e, {1}))", node.this, name)
    return fragment("flatten({0})", fields) if field.kind is Kind.ARRAY else fields


def _select_as_struct(node: exp.Expr) -> exp.Expr:
    """Lower SELECT AS STRUCT: columns become fields with unique names."""
    if str(node.args.get("kind") or "").upper() == "STRUCT":
        fields = tuple((item.alias_or_name, datatype_of(item)) for item in node.expressions)
        for index, item in enumerate(node.expressions):
            if isinstance(item, exp.Alias):
                item.set("alias", field_part(Datatype(Kind.STRUCT, fields=fields), index))
    return node


RULES = RuleSet(
    nodes={exp.Select: _select_as_struct, exp.Struct: _struct, exp.Tuple: _tuple, exp.Array: _array, exp.Dot: _field}
)
