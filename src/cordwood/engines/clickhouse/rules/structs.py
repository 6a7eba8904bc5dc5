"""STRUCT values: named tuples; fields without a name are named by their place."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.reading import read_as
from cordwood.engines.clickhouse.rules.relations import gather, is_gatherable, tuple_of
from cordwood.engines.clickhouse.rules.words import null_of, type_part
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.structs import field_values, is_list
from cordwood.sql.constants import is_null
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import Meaning
from cordwood.sql.typing import datatype_of, kind_of


def _struct(node: exp.Expr) -> exp.Expr:
    datatype = datatype_of(node) or Datatype(Kind.STRUCT)
    return packed(datatype, field_values(node))


def packed(datatype: Datatype, values: list[exp.Expr]) -> exp.Expr:
    """A tuple of that type; where a field's type is not known, of whatever its values are."""
    types = [field for _, field in datatype.fields] or [None] * len(values)
    values = [null_of(field) if is_null(value) else value for value, field in zip(values, types, strict=False)]
    return tuple_of(datatype, values)


def _tuple(node: exp.Expr) -> exp.Expr:
    if is_list(node):
        return node
    return packed(datatype_of(node) or Datatype(Kind.STRUCT), node.expressions)


def _array(node: exp.Expr) -> exp.Expr:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return _array_of_query(items[0])
    datatype = datatype_of(node)
    element = datatype.element if datatype else None
    name = type_part(datatype) if element is not None or not items else None
    if name is None:
        return fragment(f"[{holes(len(items))}]", *items)
    elements = [_as_element(item, element) for item in items]
    return fragment(f"CAST([{holes(len(items))}], {{{len(items)}}})", *elements, name)


def _as_element(item: exp.Expr, element: Datatype | None) -> exp.Expr:
    return item if element is None or kind_of(item) is Kind.VARIANT else read_as(item, element.kind)


def _array_of_query(query: exp.Expr) -> exp.Expr:
    """Gathered in the query itself where it can be, so that it may read the row outside."""
    if is_gatherable(query):
        return fragment("({0})", gather(query))
    # The engine's own aggregate leaves NULLs out, unless they are wrapped.
    return fragment("arrayMap(_t -> _t.1, (SELECT groupArray(tuple(COLUMNS('.*'))) FROM ({0})))", query)


def _field(node: exp.Expr) -> exp.Expr:
    """A field of a STRUCT; of JSON it is the value under that key."""
    if not isinstance(node.expression, exp.Identifier):
        return node
    name = node.expression.name
    if kind_of(node.this) is Kind.JSON:
        return fragment("nullIf(JSONExtractRaw({0}, {1}), '')", node.this, text_part(name))
    return fragment("tupleElement({0}, {1})", node.this, _place(datatype_of(node.this), name))


def _place(datatype: Datatype | None, name: str) -> exp.Expr:
    """The field's place, so that case does not count; its name where places are not known."""
    names = [label.lower() for label, _ in datatype.fields] if datatype else []
    return exp.Literal.number(names.index(name.lower()) + 1) if name.lower() in names else text_part(name)


MEANING = Meaning(nodes={exp.Struct: _struct, exp.Tuple: _tuple, exp.Array: _array, exp.Dot: _field})
