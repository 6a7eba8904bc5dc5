"""BigQuery's types: constants for simple types, types of nodes, and the common type of several types.

A node's type is stored in its metadata, so that copies keep it. An engine converts a node to another type by its table
of conversions.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind

STRING: Final = Datatype(Kind.STRING)
BYTES: Final = Datatype(Kind.BYTES)
INT64: Final = Datatype(Kind.INT64)
FLOAT64: Final = Datatype(Kind.FLOAT64)
NUMERIC: Final = Datatype(Kind.NUMERIC)
BIGNUMERIC: Final = Datatype(Kind.BIGNUMERIC)
BOOL: Final = Datatype(Kind.BOOL)
TIMESTAMP: Final = Datatype(Kind.TIMESTAMP)
DATETIME: Final = Datatype(Kind.DATETIME)
DATE: Final = Datatype(Kind.DATE)
TIME: Final = Datatype(Kind.TIME)
INTERVAL: Final = Datatype(Kind.INTERVAL)
JSON: Final = Datatype(Kind.JSON)
VARIANT: Final = Datatype(Kind.VARIANT)

_TYPE_BY_DTYPE: Final = {
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.BINARY: BYTES,
    exp.DType.VARBINARY: BYTES,
    exp.DType.BIGINT: INT64,
    exp.DType.INT: INT64,
    exp.DType.SMALLINT: INT64,
    exp.DType.TINYINT: INT64,
    exp.DType.DOUBLE: FLOAT64,
    exp.DType.FLOAT: FLOAT64,
    exp.DType.DECIMAL: NUMERIC,
    exp.DType.BIGDECIMAL: BIGNUMERIC,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.TIMESTAMP: DATETIME,
    exp.DType.DATETIME: DATETIME,
    exp.DType.DATE: DATE,
    exp.DType.TIME: TIME,
    exp.DType.INTERVAL: INTERVAL,
    exp.DType.JSON: JSON,
    exp.DType.VARIANT: VARIANT,
}

# sqlglot's types for columns and parameters in trees, by kind.
DTYPE_BY_KIND: Final[Mapping[Kind, exp.DType]] = {
    Kind.STRING: exp.DType.VARCHAR,
    Kind.BYTES: exp.DType.BINARY,
    Kind.INT64: exp.DType.BIGINT,
    Kind.FLOAT64: exp.DType.DOUBLE,
    Kind.NUMERIC: exp.DType.DECIMAL,
    Kind.BIGNUMERIC: exp.DType.BIGDECIMAL,
    Kind.BOOL: exp.DType.BOOLEAN,
    Kind.TIMESTAMP: exp.DType.TIMESTAMPTZ,
    Kind.DATETIME: exp.DType.TIMESTAMP,
    Kind.DATE: exp.DType.DATE,
    Kind.TIME: exp.DType.TIME,
    Kind.JSON: exp.DType.JSON,
    Kind.VARIANT: exp.DType.VARIANT,
}

_RANK_OF_NUMBER_TYPE: Final = {Kind.INT64: 0, Kind.NUMERIC: 1, Kind.BIGNUMERIC: 2, Kind.FLOAT64: 3}


def array_of(element: Datatype | None) -> Datatype:
    return Datatype(Kind.ARRAY, element=element)


def struct_of(fields: Iterable[tuple[str, Datatype | None]]) -> Datatype:
    return Datatype(Kind.STRUCT, fields=tuple(fields))


def type_in_tree(node: exp.Expr | None) -> Datatype | None:
    """Return the type that a type node denotes, as in a CAST; None if it is not a type of BigQuery."""
    if not isinstance(node, exp.DataType):
        return None
    if node.this == exp.DType.ARRAY:
        return array_of(type_in_tree(node.expressions[0]) if node.expressions else None)
    if node.this == exp.DType.STRUCT:
        return struct_of(_field_of_type_node(field) for field in node.expressions)
    return _TYPE_BY_DTYPE.get(node.this)


def _field_of_type_node(field: exp.Expr) -> tuple[str, Datatype | None]:
    if isinstance(field, exp.ColumnDef):
        return field.name, type_in_tree(field.args.get("kind"))
    return "", type_in_tree(field)


def field_of(datatype: Datatype | None, name: str) -> Datatype | None:
    """Return the type of a struct's field; for an array of structs, an array; JSON and event values are unchanged."""
    if datatype is None or datatype.kind in (Kind.JSON, Kind.VARIANT):
        return datatype
    if datatype.kind is Kind.ARRAY:
        return _field_of_array_elements(datatype, name)
    return next((field for label, field in datatype.fields if label.lower() == name.lower()), None)


def _field_of_array_elements(array: Datatype, name: str) -> Datatype | None:
    """Return the array type of a field of an array's structs; fields that are arrays are concatenated."""
    field = field_of(array.element, name)
    return field if field is None or field.kind is Kind.ARRAY else Datatype(Kind.ARRAY, element=field)


def is_number(datatype: Datatype | None) -> bool:
    return datatype is not None and datatype.kind in _RANK_OF_NUMBER_TYPE


def common_type(types: Iterable[Datatype | None]) -> Datatype | None:
    """Return the common type of values of these types; None, the type of NULL, is ignored."""
    result: Datatype | None = None
    for datatype in types:
        result = datatype if result is None else result if datatype is None else _wider_type(result, datatype)
    return result


def _common_nested_type(first: Datatype, second: Datatype) -> Datatype:
    if first.kind is Kind.ARRAY:
        return array_of(common_type((first.element, second.element)))
    if len(first.fields) != len(second.fields):
        return first
    fields = zip(first.fields, second.fields, strict=True)
    return Datatype(first.kind, fields=tuple((a[0], common_type((a[1], b[1]))) for a, b in fields))


def _wider_type(first: Datatype, second: Datatype) -> Datatype:
    if first.kind in _RANK_OF_NUMBER_TYPE and second.kind in _RANK_OF_NUMBER_TYPE:
        return max(first, second, key=lambda datatype: _RANK_OF_NUMBER_TYPE[datatype.kind])
    if first.kind is second.kind:
        return _common_nested_type(first, second)
    # A text literal beside a time is converted to the time's type; an event's value takes the other operand's type.
    if first.kind in (Kind.STRING, Kind.VARIANT):
        return second
    return first


_DATATYPE_KEY: Final = "datatype"

Node = TypeVar("Node", bound=exp.Expr)


def datatype_of(node: exp.Expr | None) -> Datatype | None:
    """Return the type that `annotate` stored on a node; None if it is unknown."""
    return node.meta_get(_DATATYPE_KEY) if node is not None else None


def kind_of(node: exp.Expr | None) -> Kind | None:
    datatype = datatype_of(node)
    return datatype.kind if datatype else None


def typed_as(node: Node, datatype: Datatype | None) -> Node:
    if datatype is not None:
        node.meta[_DATATYPE_KEY] = datatype
    return node


def inherit(node: Node, origin: exp.Expr) -> Node:
    """Copy the metadata, such as type and position, from the node that this one replaces."""
    if origin is not node:
        for key, value in origin.meta.items():
            node.meta.setdefault(key, value)
    return node


Conversion = Callable[[exp.Expr], exp.Expr]
Conversions = Mapping[tuple[Kind, Kind], Conversion]


def convert_to(conversions: Conversions, node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return the node converted to a type; unchanged if its type is this or unknown, or cannot be converted."""
    current_kind = kind_of(node)
    if current_kind is None or current_kind is kind or isinstance(node, exp.Null):
        return node
    conversion = conversions.get((current_kind, kind))
    return node if conversion is None else typed_as(inherit(conversion(node), node), Datatype(kind))
