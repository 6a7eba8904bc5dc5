"""BigQuery's types: constants for simple types, the types in trees, and the common type of several."""

from collections.abc import Iterable
from typing import Final

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

_BY_DTYPE: Final = {
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

_NUMBER_RANK: Final = {Kind.INT64: 0, Kind.NUMERIC: 1, Kind.BIGNUMERIC: 2, Kind.FLOAT64: 3}


def array_of(element: Datatype | None) -> Datatype:
    return Datatype(Kind.ARRAY, element=element)


def struct_of(fields: Iterable[tuple[str, Datatype | None]]) -> Datatype:
    return Datatype(Kind.STRUCT, fields=tuple(fields))


def type_in_tree(node: exp.Expr | None) -> Datatype | None:
    """Return the type that a tree spells, as in a CAST; None if it is not a type of BigQuery."""
    if not isinstance(node, exp.DataType):
        return None
    if node.this == exp.DType.ARRAY:
        return array_of(type_in_tree(node.expressions[0]) if node.expressions else None)
    if node.this == exp.DType.STRUCT:
        return struct_of(_field_in_tree(field) for field in node.expressions)
    return _BY_DTYPE.get(node.this)


def _field_in_tree(field: exp.Expr) -> tuple[str, Datatype | None]:
    if isinstance(field, exp.ColumnDef):
        return field.name, type_in_tree(field.args.get("kind"))
    return "", type_in_tree(field)


def is_number(datatype: Datatype | None) -> bool:
    return datatype is not None and datatype.kind in _NUMBER_RANK


def common_type(types: Iterable[Datatype | None]) -> Datatype | None:
    """Return the common type of values of these types; None, the type of NULL, is ignored."""
    result: Datatype | None = None
    for datatype in types:
        result = datatype if result is None else result if datatype is None else _wider_type(result, datatype)
    return result


def _common_nested(first: Datatype, second: Datatype) -> Datatype:
    if first.kind is Kind.ARRAY:
        return array_of(common_type((first.element, second.element)))
    if len(first.fields) != len(second.fields):
        return first
    fields = zip(first.fields, second.fields, strict=True)
    return Datatype(first.kind, fields=tuple((a[0], common_type((a[1], b[1]))) for a, b in fields))


def _wider_type(first: Datatype, second: Datatype) -> Datatype:
    if first.kind in _NUMBER_RANK and second.kind in _NUMBER_RANK:
        return max(first, second, key=lambda datatype: _NUMBER_RANK[datatype.kind])
    if first.kind is second.kind:
        return _common_nested(first, second)
    # A literal text next to a time is read as that time; an event's value takes the other operand's type.
    if first.kind in (Kind.STRING, Kind.VARIANT):
        return second
    return first
