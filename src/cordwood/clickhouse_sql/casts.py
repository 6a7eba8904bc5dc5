"""Type conversions: the types that casts name, and the conversion of values to each of them."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.moments import as_moment, moment_node, read_moment
from cordwood.clickhouse_sql.template import fill, in_brackets
from cordwood.clickhouse_sql.values import BOOL, CONDITIONS, DATE, DATETIME, FLOAT, INT, STRING, Type, Value, text_value
from cordwood.sql.nodes import internal

_BY_DTYPE: Final[Mapping[exp.DType, Type]] = {
    **dict.fromkeys(
        (
            *(exp.DType.BIGINT, exp.DType.INT, exp.DType.SMALLINT, exp.DType.TINYINT),
            *(exp.DType.UBIGINT, exp.DType.UINT, exp.DType.USMALLINT, exp.DType.UTINYINT),
        ),
        INT,
    ),
    **dict.fromkeys((exp.DType.DOUBLE, exp.DType.FLOAT), FLOAT),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.UUID), STRING),
    exp.DType.BOOLEAN: BOOL,
    **dict.fromkeys((exp.DType.DATE, exp.DType.DATE32), DATE),
    **dict.fromkeys((exp.DType.DATETIME, exp.DType.TIMESTAMP), DATETIME),
}
_BY_NAME: Final[Mapping[str, Type]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), INT),
    **dict.fromkeys(("float32", "float64"), FLOAT),
    **dict.fromkeys(("string", "uuid"), STRING),
    "bool": BOOL,
    **dict.fromkeys(("date", "date32"), DATE),
    "datetime": DATETIME,
}
_NAMED: Final = re.compile(
    r"\s*(?:(nullable)\s*\(\s*)?(\w+)\s*(?:\(\s*(\d)?\s*(?:,?\s*'UTC'\s*)?\))?\s*(?(1)\))\s*", re.IGNORECASE
)


def type_of(t: Expressions, node: exp.DataType) -> Type:
    """Return the type of a type's tree."""
    while node.this == exp.DType.LOWCARDINALITY and node.expressions and isinstance(node.expressions[0], exp.DataType):
        node = node.expressions[0]
    found = _BY_DTYPE.get(node.this)
    if node.this == exp.DType.DATETIME64:
        scale = node.expressions[0].this if node.expressions else None
        digits = int(str(scale.this)) if isinstance(scale, exp.Literal) and str(scale.this).isdigit() else 3
        found = Type("DateTime", scale=min(digits, 6))
    if found is None:
        raise t.refused(node, f"A cast to {node.sql('clickhouse')[:60]} is not supported.", _KNOWN)
    return found.or_null() if node.args.get("nullable") else found


_KNOWN: Final = (
    "There are: String, Int64 and its like, Float64, Bool, Date, DateTime, DateTime64, and Nullable of these."
)


def type_named(t: Expressions, node: exp.Expr, text: str) -> Type:
    """Return the type with this name."""
    found = _NAMED.fullmatch(text)
    name = found[2].lower() if found else ""
    type_ = Type("DateTime", scale=min(int(found[3] or 3), 6)) if found and name == "datetime64" else _BY_NAME.get(name)
    if found is None or type_ is None:
        raise t.refused(node, f"A cast to {text[:60]!r} is not supported.", _KNOWN)
    return type_.or_null() if found[1] else type_


def cast_to(t: Expressions, node: exp.Expr, value: Value, type_: Type) -> Value:
    """Return the value converted to the type; invalid values fail at run time."""
    made = _CASTS[type_.name](t, node, value.as_plain(), type_)
    return msgspec.structs.replace(
        made, type=msgspec.structs.replace(made.type, nullable=value.type.nullable or type_.nullable)
    )


def to_text(value: Value) -> Value:
    """Return the value converted to text, as by toString."""
    value = value.as_plain()
    type_ = msgspec.structs.replace(STRING, nullable=value.type.nullable)
    match value.type.name:
        case "String":
            return value
        case "Nothing":
            return Value(exp.Null(), type_)
        case "UInt8":
            return Value(fill("cast(cast(@flag as int64) as string)", flag=value.node), type_)
        case "DateTime":
            seconds = f"%E{value.type.scale}S" if value.type.scale else "%S"
            return Value(
                fill(f"format_timestamp('%Y-%m-%d %H:%M:{seconds}', @moment, 'UTC')", moment=value.node), type_
            )
        case "Int64" if isinstance(value.constant, int):
            return text_value(str(value.constant))
        case "Float64":
            return Value(internal("float_text", value.node), type_)
    return Value(fill("cast(@value as string)", value=value.node), type_)


def _text(t: Expressions, node: exp.Expr, value: Value, _: Type) -> Value:
    if value.type.name in ("Array", "Map", "Interval"):
        raise t.refused(node, f"A {value.type} cannot be made a text.", "Write arrayStringConcat(…) for an array.")
    return to_text(value)


def _whole(t: Expressions, node: exp.Expr, value: Value, _: Type) -> Value:
    match value.type.name:
        case "Int64":
            return value
        case "UInt8" | "Bool" | "Nothing":
            return Value(t.fill(node, "cast(@value as int64)", value=value.node), INT)
        case "Float64":
            return Value(t.fill(node, "cast(trunc(@value) as int64)", value=value.node), INT)
        case "String":
            return Value(t.fill(node, "cast(@value as int64)", value=value.node), INT)
        case "DateTime":
            return Value(t.fill(node, "unix_seconds(@value)", value=value.node), INT)
        case "Date":
            return Value(t.fill(node, "unix_date(@value)", value=value.node), INT)
    raise t.refused(node, f"A {value.type} cannot be made a number.")


def _float(t: Expressions, node: exp.Expr, value: Value, _: Type) -> Value:
    match value.type.name:
        case "Float64":
            return value
        case "UInt8" | "Bool":
            return Value(t.fill(node, "cast(cast(@value as int64) as float64)", value=value.node), FLOAT)
        case "Int64" | "String" | "Nothing":
            return Value(t.fill(node, "cast(@value as float64)", value=value.node), FLOAT)
        case "DateTime":
            return Value(
                t.fill(node, "ieee_divide(cast(unix_micros(@value) as float64), 1000000.0)", value=value.node), FLOAT
            )
    raise t.refused(node, f"A {value.type} cannot be made a number.")


def _truth(t: Expressions, node: exp.Expr, value: Value, _: Type) -> Value:
    if value.type.name in CONDITIONS:
        return Value(value.node, BOOL, constant=value.constant)
    if value.type.name in ("Int64", "Float64"):
        return Value(exp.NEQ(this=in_brackets(value.node), expression=exp.Literal.number(0)), BOOL)
    raise t.refused(node, f"A {value.type} cannot be made a Bool.", "Compare it, as in x = 'true'.")


def _moment(t: Expressions, node: exp.Expr, value: Value, type_: Type) -> Value:
    made = _any_moment(t, node, value)
    unit = {0: "second", 3: "millisecond"}.get(type_.scale)
    if unit is not None and made.type.scale > type_.scale:
        made = Value(t.fill(node, f"timestamp_trunc(@moment, {unit})", moment=made.node), made.type)
    return msgspec.structs.replace(made, type=msgspec.structs.replace(made.type, scale=type_.scale))


def _any_moment(t: Expressions, node: exp.Expr, value: Value) -> Value:
    """Return any value that can be one as a DateTime; numbers are seconds since 1970."""
    type_ = Type("DateTime", scale=6)
    match value.type.name:
        case "Int64":
            return Value(t.fill(node, "timestamp_seconds(@value)", value=value.node), type_)
        case "Float64":
            made = t.fill(
                node, "timestamp_micros(cast(trunc(@value * 1000000.0) as int64))", value=in_brackets(value.node)
            )
            return Value(made, type_)
        case "String" if isinstance(value.constant, str):
            moment = read_moment(value.constant)
            if moment is None:
                raise t.refused(
                    node, f"{value.constant[:40]!r} is not a time.", "Write it as in '2026-06-22 09:30:00'."
                )
            return Value(moment_node(t, node, moment), type_)
        case "String":
            return Value(t.fill(node, "cast(@value as timestamp)", value=value.node), type_)
    return as_moment(t, node, value)


def _day(t: Expressions, node: exp.Expr, value: Value, _: Type) -> Value:
    if value.type.name == "Date":
        return value
    if value.type.name in ("Int64", "Float64"):
        # Small numbers are days since 1970, others are seconds.
        if isinstance(value.constant, int) and 0 <= value.constant < _MOST_DAYS:
            return Value(t.fill(node, "date_from_unix_date(@value)", value=value.node), DATE)
        if not isinstance(value.constant, int):
            raise t.refused(
                node, "A number that is not constant cannot be made a Date.", "Write toDate(toDateTime(…))."
            )
    if value.type.name == "String" and not value.is_constant:
        return Value(t.fill(node, "cast(substr(@value, 1, 10) as date)", value=value.node), DATE)
    moment = _any_moment(t, node, value)
    return Value(t.fill(node, "date(@value, 'UTC')", value=moment.node), DATE)


_MOST_DAYS: Final = 65_536
_CASTS: Final = {
    "String": _text,
    "Int64": _whole,
    "Float64": _float,
    "Bool": _truth,
    "DateTime": _moment,
    "Date": _day,
}
