"""Type conversions: the types to which values can be cast, the conversion to each type, and conversion functions."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall, checked_arguments
from cordwood.clickhouse_sql.datetimes import datetime_literal, parse_datetime, to_datetime
from cordwood.clickhouse_sql.values import (
    BOOL,
    CONDITION_TYPE_NAMES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    ClickHouseType,
    TypedValue,
    fill_template,
    literal_node,
    parenthesize_if_operation,
    text_value,
)
from cordwood.sql.nodes import internal_call

_TYPE_BY_DTYPE: Final[Mapping[exp.DType, ClickHouseType]] = {
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
_TYPE_BY_NAME: Final[Mapping[str, ClickHouseType]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), INT),
    **dict.fromkeys(("float32", "float64"), FLOAT),
    **dict.fromkeys(("string", "uuid"), STRING),
    "bool": BOOL,
    **dict.fromkeys(("date", "date32"), DATE),
    "datetime": DATETIME,
}
_TYPE_NAME_PATTERN: Final = re.compile(
    r"\s*+(?:(nullable)\s*+\(\s*+)?(\w++)\s*+(?:\(\s*+(\d)?\s*+(?:,?\s*+'UTC'\s*+)?\))?\s*+(?(1)\))\s*+", re.IGNORECASE
)


def type_of(translator: ArgumentTranslator, node: exp.DataType) -> ClickHouseType:
    """Return the dialect's type for a type in the syntax tree; refuse an unsupported type."""
    while node.this == exp.DType.LOWCARDINALITY and node.expressions and isinstance(node.expressions[0], exp.DataType):
        node = node.expressions[0]
    type_ = _TYPE_BY_DTYPE.get(node.this)
    if node.this == exp.DType.DATETIME64:
        scale = node.expressions[0].this if node.expressions else None
        digits = int(str(scale.this)) if isinstance(scale, exp.Literal) and str(scale.this).isdigit() else 3
        type_ = ClickHouseType("DateTime", fractional_second_digits=min(digits, 6))
    if type_ is None:
        raise translator.refused_error(
            node, f"A cast to {node.sql('clickhouse')[:60]} is not supported.", _SUPPORTED_TYPES_HINT
        )
    return type_.as_nullable() if node.args.get("nullable") else type_


_SUPPORTED_TYPES_HINT: Final = (
    "There are: String, Int64 and its like, Float64, Bool, Date, DateTime, DateTime64, and Nullable of these."
)


def parse_type_name(translator: ArgumentTranslator, node: exp.Expr, text: str) -> ClickHouseType:
    """Return the dialect's type for its name as a text, such as `Nullable(Int64)`; refuse an unsupported type."""
    match = _TYPE_NAME_PATTERN.fullmatch(text)
    name = match[2].lower() if match else ""
    type_ = (
        ClickHouseType("DateTime", fractional_second_digits=min(int(match[3] or 3), 6))
        if match and name == "datetime64"
        else _TYPE_BY_NAME.get(name)
    )
    if match is None or type_ is None:
        raise translator.refused_error(node, f"A cast to {text[:60]!r} is not supported.", _SUPPORTED_TYPES_HINT)
    return type_.as_nullable() if match[1] else type_


def cast_to(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, type_: ClickHouseType) -> TypedValue:
    """Return the value converted to the type; if a value in a row cannot be converted, the query fails when it runs."""
    converted = _CAST_BY_TYPE[type_.name](translator, node, value.with_default_for_null(), type_)
    return msgspec.structs.replace(
        converted, type=msgspec.structs.replace(converted.type, is_nullable=value.type.is_nullable or type_.is_nullable)
    )


def to_text(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue) -> TypedValue:
    """Return the value converted to a text in the same form as by ClickHouse's toString.

    Refuse an array, a map or an interval with the position of `node`.
    """
    if value.type.name in ("Array", "Map", "Interval"):
        raise translator.refused_error(
            node, f"{value.type.with_capital_article} cannot be made a text.", _TEXT_HINT_BY_TYPE.get(value.type.name)
        )
    value = value.with_default_for_null()
    type_ = msgspec.structs.replace(STRING, is_nullable=value.type.is_nullable)
    match value.type.name:
        case "String":
            return value
        case "Nothing":
            return TypedValue(exp.Null(), type_)
        case "UInt8":
            return TypedValue(fill_template("cast(cast(@flag as int64) as string)", flag=value.node), type_)
        case "DateTime":
            seconds = f"%E{value.type.fractional_second_digits}S" if value.type.fractional_second_digits else "%S"
            return TypedValue(
                fill_template(f"format_timestamp('%Y-%m-%d %H:%M:{seconds}', @moment, 'UTC')", moment=value.node), type_
            )
        case "Int64" if isinstance(value.constant_value, int):
            return text_value(str(value.constant_value))
        case "Float64":
            return TypedValue(internal_call("float_text", value.node), type_)
    return TypedValue(fill_template("cast(@value as string)", value=value.node), type_)


MAP_HINT: Final = "Write a value of the map, as in log_attributes['a.b']."
_TEXT_HINT_BY_TYPE: Final = {"Array": "Write arrayStringConcat(…) for an array.", "Map": MAP_HINT}


def _cast_to_text(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, _: ClickHouseType) -> TypedValue:
    return to_text(translator, node, value)


def _cast_to_int(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, _: ClickHouseType) -> TypedValue:
    match value.type.name:
        case "Int64":
            return value
        case "UInt8" | "Bool" | "Nothing":
            return TypedValue(translator.fill_template(node, "cast(@value as int64)", value=value.node), INT)
        case "Float64":
            return TypedValue(translator.fill_template(node, "cast(trunc(@value) as int64)", value=value.node), INT)
        case "String":
            return TypedValue(translator.fill_template(node, "cast(@value as int64)", value=value.node), INT)
        case "DateTime":
            return TypedValue(translator.fill_template(node, "unix_seconds(@value)", value=value.node), INT)
        case "Date":
            return TypedValue(translator.fill_template(node, "unix_date(@value)", value=value.node), INT)
    raise translator.refused_error(node, f"{value.type.with_capital_article} cannot be made a number.")


def _cast_to_float(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, _: ClickHouseType) -> TypedValue:
    match value.type.name:
        case "Float64":
            return value
        case "UInt8" | "Bool":
            return TypedValue(
                translator.fill_template(node, "cast(cast(@value as int64) as float64)", value=value.node), FLOAT
            )
        case "Int64" | "String" | "Nothing":
            return TypedValue(translator.fill_template(node, "cast(@value as float64)", value=value.node), FLOAT)
        case "DateTime":
            return TypedValue(
                translator.fill_template(
                    node, "ieee_divide(cast(unix_micros(@value) as float64), 1000000.0)", value=value.node
                ),
                FLOAT,
            )
    raise translator.refused_error(node, f"{value.type.with_capital_article} cannot be made a number.")


def _cast_to_bool(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, _: ClickHouseType) -> TypedValue:
    if value.type.name in CONDITION_TYPE_NAMES:
        return TypedValue(value.node, BOOL, constant_value=value.constant_value)
    if value.type.name in ("Int64", "Float64"):
        return TypedValue(exp.NEQ(this=parenthesize_if_operation(value.node), expression=exp.Literal.number(0)), BOOL)
    if value.type.name == "Nothing":
        return TypedValue(translator.fill_template(node, "cast(null as bool)"), BOOL)
    raise translator.refused_error(
        node, f"{value.type.with_capital_article} cannot be made a Bool.", "Compare it, as in x = 'true'."
    )


def _cast_to_datetime(
    translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, type_: ClickHouseType
) -> TypedValue:
    converted = _convert_to_datetime(translator, node, value)
    unit = {0: "second", 3: "millisecond"}.get(type_.fractional_second_digits)
    if unit is not None and converted.type.fractional_second_digits > type_.fractional_second_digits:
        converted = TypedValue(
            translator.fill_template(node, f"timestamp_trunc(@moment, {unit})", moment=converted.node), converted.type
        )
    return msgspec.structs.replace(
        converted, type=msgspec.structs.replace(converted.type, fractional_second_digits=type_.fractional_second_digits)
    )


def _convert_to_datetime(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue) -> TypedValue:
    """Return the value as a DateTime; a number counts as seconds since 1970.

    Refuse a value whose type cannot be converted.
    """
    type_ = ClickHouseType("DateTime", fractional_second_digits=6)
    match value.type.name:
        case "Int64":
            return TypedValue(translator.fill_template(node, "timestamp_seconds(@value)", value=value.node), type_)
        case "Float64":
            converted = translator.fill_template(
                node,
                "timestamp_micros(cast(trunc(@value * 1000000.0) as int64))",
                value=parenthesize_if_operation(value.node),
            )
            return TypedValue(converted, type_)
        case "String" if isinstance(value.constant_value, str):
            moment = parse_datetime(value.constant_value)
            if moment is None:
                raise translator.refused_error(
                    node, f"{value.constant_value[:40]!r} is not a time.", "Write it as in '2026-06-22 09:30:00'."
                )
            return TypedValue(datetime_literal(translator, node, moment), type_)
        case "String":
            return TypedValue(translator.fill_template(node, "cast(@value as timestamp)", value=value.node), type_)
    return to_datetime(translator, node, value)


def _cast_to_date(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, _: ClickHouseType) -> TypedValue:
    if value.type.name == "Date":
        return value
    if value.type.name in ("Int64", "Float64"):
        # In ClickHouse, a number below `_MIN_NUMBER_READ_AS_SECONDS` counts days since 1970, and any other number
        # counts seconds.
        if isinstance(value.constant_value, int) and 0 <= value.constant_value < _MIN_NUMBER_READ_AS_SECONDS:
            return TypedValue(translator.fill_template(node, "date_from_unix_date(@value)", value=value.node), DATE)
        if not isinstance(value.constant_value, int):
            raise translator.refused_error(
                node, "A number that is not constant cannot be made a Date.", "Write toDate(toDateTime(…))."
            )
    if value.type.name == "String" and not value.is_constant:
        return TypedValue(translator.fill_template(node, "cast(substr(@value, 1, 10) as date)", value=value.node), DATE)
    moment = _convert_to_datetime(translator, node, value)
    return TypedValue(translator.fill_template(node, "date(@value, 'UTC')", value=moment.node), DATE)


_MIN_NUMBER_READ_AS_SECONDS: Final = 65_536
_CAST_BY_TYPE: Final = {
    "String": _cast_to_text,
    "Int64": _cast_to_int,
    "Float64": _cast_to_float,
    "Bool": _cast_to_bool,
    "DateTime": _cast_to_datetime,
    "Date": _cast_to_date,
}


_CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]

_BITS_BY_FUNCTION: Final = {
    "toint8": 8,
    "toint16": 16,
    "toint32": 32,
    "toint64": 64,
    "touint8": 8,
    "touint16": 16,
    "touint32": 32,
    "touint64": 64,
}


def _int_or_default_translator(bits: int, *, is_signed: bool, is_null: bool) -> _CallTranslator:
    """Return the translator of a function, such as toInt8OrNull, that converts a text with a decimal integer.

    For any other text, and for a number out of range, the function returns NULL if `is_null` is set, and otherwise 0.
    For NULL, it always returns NULL.
    """
    minimum = -(2 ** (bits - 1)) if is_signed else 0
    maximum = 2 ** (bits - 1) - 1 if is_signed else min(2**bits, 2**63) - 1

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        text = _text_argument(translator, *checked_arguments(translator, call, 1))
        bounds = [exp.Literal.string(str(minimum)), exp.Literal.string(str(maximum))]
        converted = TypedValue(internal_call("whole_number", text.node, *bounds), INT.as_nullable())
        return converted if is_null else _replace_unreadable_by_zero(translator, call, text, converted)

    return translate_call


def _float_or_default_translator(*, is_null: bool) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        text = _text_argument(translator, *checked_arguments(translator, call, 1))
        converted = TypedValue(internal_call("float_number", text.node), FLOAT.as_nullable())
        return converted if is_null else _replace_unreadable_by_zero(translator, call, text, converted)

    return translate_call


def _replace_unreadable_by_zero(
    translator: ArgumentTranslator, call: FunctionCall, text: TypedValue, converted: TypedValue
) -> TypedValue:
    """Return the number in `converted`, and 0 if `text` is not such a number; return NULL if `text` may be NULL and is.

    `converted` is NULL in both cases.
    """
    if not text.type.is_nullable:
        return TypedValue(converted.node, converted.type.as_not_null(), default_for_null=0)
    parts = {"text": text.node, "number": converted.node}
    number = translator.fill_template(call.node, "if(@text is null, null, coalesce(@number, 0))", **parts)
    return TypedValue(number, converted.type)


def _text_argument(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    """Return the value of an argument that must be a text.

    If the argument reads a missing key of a map, which is an empty text in ClickHouse, the value is NULL. NULL need not
    be replaced by an empty text, because an empty text is not a number either. Such a value is not nullable by its
    type, so the caller can tell it from a value that may be NULL in ClickHouse.
    """
    value = translator.translate_expression(node)
    if value.type.name == "Nothing":
        return TypedValue(translator.fill_template(node, "cast(null as string)"), STRING.as_nullable())
    if value.type.name != "String":
        hint = "Numbers need no conversion: write toInt64(…) for another type."
        raise translator.refused_error(node, f"A text is wanted here, and this is {value.type.with_article}.", hint)
    return value


def _cast_translator(type_: ClickHouseType) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = checked_arguments(translator, call, 1)
        value = translator.value_with_default_for_null(node)
        converted = cast_to(translator, call.node, value, type_)
        return msgspec.structs.replace(
            converted, type=msgspec.structs.replace(converted.type, is_nullable=value.type.is_nullable)
        )

    return translate_call


def _to_int_translator(bits: int, *, is_signed: bool) -> _CallTranslator:
    """Return the translator of a function that converts a value to an integer of `bits` bits.

    If the number needs more bits, the function keeps only the lowest bits.
    """
    cast = _cast_translator(INT)
    count = 2**bits
    low = count // 2 if is_signed else 0

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        converted = cast(translator, call)
        if bits == _MAX_INTEGER_BITS:
            return converted
        if isinstance(converted.constant_value, int):
            number = (converted.constant_value + low) % count - low
            return msgspec.structs.replace(converted, node=literal_node(number), constant_value=number)
        parts = {
            name: literal_node(number) for name, number in (("count", count), ("above", count + low), ("low", low))
        }
        wrapped = translator.fill_template(
            call.node, "mod(mod(@value, @count) + @above, @count) - @low", value=converted.node, **parts
        )
        return TypedValue(wrapped, converted.type)

    return translate_call


_MAX_INTEGER_BITS: Final = 64


def _translate_to_string(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = checked_arguments(translator, call, 1)
    value = translator.translate_expression(node)
    return value if value.type.name == "String" else cast_to(translator, call.node, value, STRING)


def _translate_uuid(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Return a constant UUID as a text in lower case, because events' ids have this form."""
    (node,) = checked_arguments(translator, call, 1)
    text = translator.constant_text(node, "A UUID")
    return text_value(text.lower())


def _integer_translators_by_function() -> dict[str, _CallTranslator]:
    functions: dict[str, _CallTranslator] = {}
    for name, bits in _BITS_BY_FUNCTION.items():
        is_signed = not name.startswith("tou")
        functions[name] = _to_int_translator(bits, is_signed=is_signed)
        functions[f"{name}orzero"] = _int_or_default_translator(bits, is_signed=is_signed, is_null=False)
        functions[f"{name}ornull"] = _int_or_default_translator(bits, is_signed=is_signed, is_null=True)
    return functions


TRANSLATOR_BY_FUNCTION: Final[Mapping[str, _CallTranslator]] = {
    **_integer_translators_by_function(),
    "tofloat32": _cast_translator(FLOAT),
    "tofloat64": _cast_translator(FLOAT),
    "tofloat32orzero": _float_or_default_translator(is_null=False),
    "tofloat64orzero": _float_or_default_translator(is_null=False),
    "tofloat32ornull": _float_or_default_translator(is_null=True),
    "tofloat64ornull": _float_or_default_translator(is_null=True),
    "tobool": _cast_translator(BOOL),
    "tostring": _translate_to_string,
    "touuid": _translate_uuid,
}
