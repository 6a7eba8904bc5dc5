"""BigQuery's data types: the types of nodes, the common type of values, and functions' result and argument types.

A node's type is stored in the node's metadata, so that copies of the node keep it. Each engine has a table of
conversions, by which `convert_to` converts a node to another type.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from sqlglot import exp

from cordwood.model.datatype import NUMBER_KINDS, Datatype, Kind
from cordwood.sql.internal_functions import RESULT_TYPE_BY_INTERNAL_FUNCTION
from cordwood.sql.nodes import internal_function_name

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
EVENT_NUMBER: Final = Datatype(Kind.FLOAT64, is_event_number=True)

_DATATYPE_BY_SQLGLOT_TYPE: Final = {
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

# The types that sqlglot's trees have for columns and parameters, by BigQuery's type.
SQLGLOT_TYPE_BY_KIND: Final[Mapping[Kind, exp.DType]] = {
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

_WIDENING_RANK_BY_NUMBER_KIND: Final = {Kind.INT64: 0, Kind.NUMERIC: 1, Kind.BIGNUMERIC: 2, Kind.FLOAT64: 3}


def array_of(element: Datatype | None) -> Datatype:
    return Datatype(Kind.ARRAY, element=element)


def struct_of(fields: Iterable[tuple[str, Datatype | None]]) -> Datatype:
    return Datatype(Kind.STRUCT, fields=tuple(fields))


def datatype_of_type_node(node: exp.Expr | None) -> Datatype | None:
    """Return the type that a type node denotes, as in a CAST; None if it is not a type of BigQuery."""
    if not isinstance(node, exp.DataType):
        return None
    if node.this == exp.DType.ARRAY:
        return array_of(datatype_of_type_node(node.expressions[0]) if node.expressions else None)
    if node.this == exp.DType.STRUCT:
        return struct_of(_field_of_type_node(field) for field in node.expressions)
    return _DATATYPE_BY_SQLGLOT_TYPE.get(node.this)


def _field_of_type_node(field: exp.Expr) -> tuple[str, Datatype | None]:
    if isinstance(field, exp.ColumnDef):
        return field.name, datatype_of_type_node(field.args.get("kind"))
    return "", datatype_of_type_node(field)


def field_type(datatype: Datatype | None, name: str) -> Datatype | None:
    """Return the type of a struct's field; for an array of structs, an array of the field's type.

    JSON and event values (VARIANT) have no declared fields, so a field of either has the same type as the value itself.
    """
    if datatype is None or datatype.kind in (Kind.JSON, Kind.VARIANT):
        return datatype
    if datatype.kind is Kind.ARRAY:
        return _array_field_type(datatype, name)
    return next((field for label, field in datatype.fields if label.lower() == name.lower()), None)


def _array_field_type(array: Datatype, name: str) -> Datatype | None:
    """Return the type of a field of an array of structs: an array of the field's values from all structs.

    If the field itself is an array, its values are concatenated, so the type is that of the field.
    """
    field = field_type(array.element, name)
    return field if field is None or field.kind is Kind.ARRAY else Datatype(Kind.ARRAY, element=field)


def is_number_type(datatype: Datatype | None) -> bool:
    return datatype is not None and datatype.kind in _WIDENING_RANK_BY_NUMBER_KIND


def common_type(types: Iterable[Datatype | None]) -> Datatype | None:
    """Return the common type of values of these types; None (the type of NULL, or an unknown type) is ignored."""
    result: Datatype | None = None
    for datatype in types:
        result = datatype if result is None else result if datatype is None else _wider_type(result, datatype)
    return result


def common_stored_type(types: Iterable[Datatype | None]) -> Datatype | None:
    """Return the common type of values that are stored in one array or one column, without being computed with.

    Events' values and integers stay as they are. So their common type is VARIANT, not a number.
    """
    known_types = [datatype for datatype in types if datatype is not None]
    if VARIANT in known_types and all(
        datatype in (VARIANT, INT64) or datatype.is_event_number for datatype in known_types
    ):
        return VARIANT
    return common_type(known_types)


def _common_nested_type(first: Datatype, second: Datatype) -> Datatype:
    if first.kind is Kind.ARRAY:
        return array_of(common_type((first.element, second.element)))
    if len(first.fields) != len(second.fields):
        return first
    fields = zip(first.fields, second.fields, strict=True)
    return Datatype(first.kind, fields=tuple((a[0], common_type((a[1], b[1]))) for a, b in fields))


def _wider_type(first: Datatype, second: Datatype) -> Datatype:
    if first.kind in _WIDENING_RANK_BY_NUMBER_KIND and second.kind in _WIDENING_RANK_BY_NUMBER_KIND:
        return _wider_number_type(first, second)
    if {first.kind, second.kind} == {Kind.VARIANT, Kind.INT64}:
        return EVENT_NUMBER
    if first.kind is second.kind:
        return _common_nested_type(first, second)
    # If a text literal meets a time, the common type is the time's type. If an event's value meets another type, the
    # common type is that other type.
    if first.kind in (Kind.STRING, Kind.VARIANT):
        return second
    return first


def _wider_number_type(first: Datatype, second: Datatype) -> Datatype:
    wider = max(first, second, key=lambda datatype: _WIDENING_RANK_BY_NUMBER_KIND[datatype.kind])
    if wider.is_event_number and not all(part.is_event_number or part == INT64 for part in (first, second)):
        return FLOAT64
    return wider


_DATATYPE_METADATA_KEY: Final = "datatype"

Node = TypeVar("Node", bound=exp.Expr)


def datatype_of(node: exp.Expr | None) -> Datatype | None:
    """Return the type that `annotate_types` stored on a node; None if it is unknown."""
    return node.meta_get(_DATATYPE_METADATA_KEY) if node is not None else None


def kind_of(node: exp.Expr | None) -> Kind | None:
    datatype = datatype_of(node)
    return datatype.kind if datatype else None


def is_event_number(node: exp.Expr | None) -> bool:
    """Return whether the node is a number from an event whose real type is known only at run time, or a value.

    Such a node has the type VARIANT, or is a FLOAT64 that was computed from such a node.
    """
    datatype = datatype_of(node)
    return datatype is not None and (datatype.kind is Kind.VARIANT or datatype.is_event_number)


def set_datatype(node: Node, datatype: Datatype | None) -> Node:
    if datatype is not None:
        node.meta[_DATATYPE_METADATA_KEY] = datatype
    return node


def inherit_metadata(node: Node, origin: exp.Expr) -> Node:
    """Copy metadata such as type and position from `origin` to `node`, its replacement, unless `node` has its own."""
    if origin is not node:
        for key, value in origin.meta.items():
            node.meta.setdefault(key, value)
    return node


Conversion = Callable[[exp.Expr], exp.Expr]
ConversionByKinds = Mapping[tuple[Kind, Kind], Conversion]


def convert_to(conversions: ConversionByKinds, node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return the node converted to a type.

    The node is returned unchanged if it has this type, if its type is unknown, or if no conversion exists.
    """
    current_kind = kind_of(node)
    if current_kind is None or current_kind is kind or isinstance(node, exp.Null):
        return node
    conversion = conversions.get((current_kind, kind))
    if conversion is None:
        return node
    is_number = is_event_number(node) and kind is Kind.FLOAT64
    return set_datatype(inherit_metadata(conversion(node), node), EVENT_NUMBER if is_number else Datatype(kind))


# Result types that do not depend on the arguments, by the class of the call's node in sqlglot.
RESULT_TYPE_BY_NODE_CLASS: Final[dict[type[exp.Expr], Datatype]] = {
    **dict.fromkeys(
        (
            *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Between),
            *(exp.In, exp.Like, exp.ILike, exp.Exists, exp.NullSafeEQ, exp.NullSafeNEQ, exp.RegexpLike, exp.Boolean),
            *(exp.StartsWith, exp.EndsWith, exp.Contains, exp.IsNan, exp.IsInf, exp.LogicalAnd, exp.LogicalOr),
            *(exp.JSONBool, exp.LaxBool, exp.Any, exp.All, exp.ArrayContains),
        ),
        BOOL,
    ),
    **dict.fromkeys(
        (
            *(exp.Count, exp.CountIf, exp.ApproxDistinct, exp.Length, exp.ByteLength, exp.StrPosition),
            *(exp.RegexpInstr, exp.DateDiff, exp.TimestampDiff, exp.DatetimeDiff, exp.TimeDiff),
            *(exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros, exp.UnixDate, exp.ArraySize),
            *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.BitwiseAndAgg, exp.BitwiseOrAgg),
            *(exp.BitwiseXorAgg, exp.BitwiseCount, exp.FarmFingerprint, exp.Grouping, exp.LaxInt64, exp.RangeBucket),
            *(exp.Levenshtein, exp.Unicode, exp.Ascii, exp.Int64, exp.BitwiseNot),
        ),
        INT64,
    ),
    **dict.fromkeys(
        (
            *(exp.Exp, exp.Ln, exp.Sqrt, exp.Cbrt, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan),
            *(exp.Atan2, exp.Sinh, exp.Cosh, exp.Tanh, exp.Asinh, exp.Acosh, exp.Atanh, exp.Cot, exp.Coth, exp.Csc),
            *(exp.Csch, exp.Sec, exp.Sech, exp.Rand, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance),
            *(exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.PercentRank, exp.CumeDist, exp.Float64),
            *(exp.LaxFloat64, exp.CosineDistance, exp.EuclideanDistance),
        ),
        FLOAT64,
    ),
    **dict.fromkeys(
        (
            *(exp.Host, exp.RegDomain, exp.Format, exp.TimeToStr, exp.JSONExtractScalar, exp.JSONType),
            *(exp.LaxString, exp.LowerHex, exp.Hex, exp.MD5, exp.CodePointsToString, exp.Normalize, exp.Initcap),
            *(exp.SafeConvertBytesToString, exp.Soundex, exp.Uuid, exp.ArrayToString, exp.String, exp.Chr),
            *(exp.ToBase32, exp.ToBase64, exp.Collate, exp.RawString),
        ),
        STRING,
    ),
    **dict.fromkeys(
        (
            *(exp.SHA, exp.SHA2, exp.MD5Digest, exp.SHA1Digest, exp.SHA2Digest, exp.Unhex, exp.CodePointsToBytes),
            *(exp.FromBase64, exp.FromBase32, exp.ByteString),
        ),
        BYTES,
    ),
    **dict.fromkeys(
        (
            *(exp.JSONArray, exp.JSONObject, exp.JSONSet, exp.JSONRemove, exp.JSONStripNulls, exp.ParseJSON),
            *(exp.JSONArrayAppend, exp.JSONArrayInsert),
        ),
        JSON,
    ),
    **dict.fromkeys(
        (exp.StrToTime, exp.Timestamp, exp.UnixToTime, exp.CurrentTimestamp, exp.TsOrDsToTimestamp), TIMESTAMP
    ),
    **dict.fromkeys(
        (exp.ParseDatetime, exp.TsOrDsToDatetime, exp.Datetime, exp.TimestampFromParts, exp.CurrentDatetime), DATETIME
    ),
    **dict.fromkeys(
        (exp.StrToDate, exp.Date, exp.DateFromParts, exp.TsOrDsToDate, exp.DateFromUnixDate, exp.CurrentDate), DATE
    ),
    **dict.fromkeys((exp.ParseTime, exp.Time, exp.TsOrDsToTime, exp.TimeFromParts, exp.CurrentTime), TIME),
    exp.LastDay: DATE,
    exp.RegexpExtractAll: array_of(STRING),
    exp.JSONValueArray: array_of(STRING),
    exp.ToCodePoints: array_of(INT64),
    exp.GenerateDateArray: array_of(DATE),
    exp.GenerateTimestampArray: array_of(TIMESTAMP),
    exp.JSONKeysAtDepth: array_of(STRING),
    exp.ParseNumeric: NUMERIC,
    exp.ParseBignumeric: BIGNUMERIC,
}

# Result types of functions that sqlglot parses as Anonymous nodes, by function name.
RESULT_TYPE_BY_FUNCTION_NAME: Final[dict[str, Datatype]] = {
    **{internal_function_name(name).upper(): result for name, result in RESULT_TYPE_BY_INTERNAL_FUNCTION.items()},
    "TIMESTAMP_BUCKET": TIMESTAMP,
    "DATETIME_BUCKET": DATETIME,
    "DATE_BUCKET": DATE,
    "ARRAY_IS_DISTINCT": BOOL,
    "ERROR": INT64,
    "IEEE_DIVIDE": FLOAT64,
    "INSTR": INT64,
    "BIT_XOR": INT64,
    "TO_BASE32": STRING,
    "IS_INF": BOOL,
    "GENERATE_UUID": STRING,
    "NUMERIC": NUMERIC,
    "STRING": STRING,
    "BOOL": BOOL,
    "JSON_TYPE": STRING,
    "SESSION_USER": STRING,
    "LAX_STRING": STRING,
    "TO_JSON_STRING": STRING,
    "IP_FROM_STRING": BYTES,
    "SAFE_IP_FROM_STRING": BYTES,
    "IP_TO_STRING": STRING,
    "IP_NET_MASK": BYTES,
    "IP_TRUNC": BYTES,
    "IPV4_FROM_INT64": BYTES,
    "IPV4_TO_INT64": INT64,
    "PUBLIC_SUFFIX": STRING,
}


STRING_AND_BYTES_KINDS: Final = frozenset({Kind.STRING, Kind.BYTES})
KINDS_WITH_DATE: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
DATE_AND_TIME_KINDS: Final = KINDS_WITH_DATE | {Kind.TIME}


class ArgumentTypeRule(msgspec.Struct, frozen=True):
    """The types that an argument of a function may have, and the hint in the error for an argument of another type."""

    argument_key: str
    accepted_kinds: frozenset[Kind]
    hint: str


def _text_argument_rules(*keys: str) -> tuple[ArgumentTypeRule, ...]:
    return tuple(ArgumentTypeRule(key, STRING_AND_BYTES_KINDS, "Write CAST(… AS STRING) around it.") for key in keys)


def _integer_argument_rules(*keys: str) -> tuple[ArgumentTypeRule, ...]:
    return tuple(
        ArgumentTypeRule(key, frozenset({Kind.INT64}), "Write a whole number, or CAST(… AS INT64).") for key in keys
    )


def _number_argument_rules(*keys: str) -> tuple[ArgumentTypeRule, ...]:
    hint = "Read a text as a number with CAST(… AS INT64) or CAST(… AS FLOAT64)."
    return tuple(ArgumentTypeRule(key, frozenset(NUMBER_KINDS), hint) for key in keys)


def _time_argument_rules(*keys: str) -> tuple[ArgumentTypeRule, ...]:
    return tuple(ArgumentTypeRule(key, DATE_AND_TIME_KINDS, "Write TIMESTAMP(…) around it.") for key in keys)


def _bit_argument_rules(*keys: str) -> tuple[ArgumentTypeRule, ...]:
    kinds = frozenset({Kind.INT64, Kind.BYTES})
    return tuple(ArgumentTypeRule(key, kinds, "Whole numbers and bytes have bits.") for key in keys)


_JSON_ARGUMENT_RULES: Final = (
    ArgumentTypeRule("this", frozenset({Kind.STRING}), "Write TO_JSON_STRING(…) around it."),
)
_ARRAY_ARGUMENT_RULES: Final = (
    ArgumentTypeRule("this", frozenset({Kind.ARRAY}), "An array is wanted here; the length of a text is LENGTH(…)."),
)

# Arguments whose types are checked, by the class of the call's node in sqlglot. `ArgumentTypeRule.argument_key` is the
# argument's key in the node.
ARGUMENT_RULES_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], tuple[ArgumentTypeRule, ...]]] = {
    **dict.fromkeys((exp.Upper, exp.Lower, exp.Length, exp.Reverse, exp.Initcap), _text_argument_rules("this")),
    **dict.fromkeys(
        (exp.StartsWith, exp.EndsWith, exp.Split, exp.Like, exp.Trim), _text_argument_rules("this", "expression")
    ),
    **dict.fromkeys(
        (exp.RegexpLike, exp.RegexpExtract, exp.RegexpExtractAll), _text_argument_rules("this", "expression")
    ),
    **dict.fromkeys((exp.Replace, exp.RegexpReplace), _text_argument_rules("this", "expression", "replacement")),
    exp.StrPosition: _text_argument_rules("this", "substr"),
    **dict.fromkeys((exp.StrToDate, exp.StrToTime, exp.ParseDatetime, exp.ParseTime), _text_argument_rules("this")),
    exp.GroupConcat: _text_argument_rules("separator"),
    exp.Substring: (*_text_argument_rules("this"), *_integer_argument_rules("start", "length")),
    **dict.fromkeys((exp.Left, exp.Right), (*_text_argument_rules("this"), *_integer_argument_rules("expression"))),
    exp.Pad: (
        *_text_argument_rules("this"),
        *_integer_argument_rules("expression"),
        *_text_argument_rules("fill_pattern"),
    ),
    exp.Repeat: (*_text_argument_rules("this"), *_integer_argument_rules("times")),
    **dict.fromkeys(
        (exp.Abs, exp.Sign, exp.Ceil, exp.Floor, exp.Sqrt, exp.Exp, exp.Ln, exp.Neg), _number_argument_rules("this")
    ),
    **dict.fromkeys(
        (exp.Mod, exp.IntDiv, exp.SafeDivide, exp.Pow, exp.Log), _number_argument_rules("this", "expression")
    ),
    exp.Round: (*_number_argument_rules("this"), *_integer_argument_rules("decimals")),
    exp.Trunc: (*_number_argument_rules("this"), *_integer_argument_rules("decimals")),
    **dict.fromkeys((exp.TimestampTrunc, exp.TimestampAdd, exp.TimestampSub), _time_argument_rules("this")),
    **dict.fromkeys(
        (exp.TimestampDiff, exp.DatetimeDiff, exp.DateDiff, exp.TimeDiff), _time_argument_rules("this", "expression")
    ),
    **dict.fromkeys((exp.MD5Digest, exp.SHA, exp.SHA2Digest, exp.LowerHex, exp.Unhex), _text_argument_rules("this")),
    **dict.fromkeys(
        (exp.ToBase64, exp.FromBase64, exp.Unicode, exp.ByteLength, exp.Normalize), _text_argument_rules("this")
    ),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor), _bit_argument_rules("this", "expression")),
    **dict.fromkeys(
        (exp.BitwiseLeftShift, exp.BitwiseRightShift),
        (*_bit_argument_rules("this"), *_integer_argument_rules("expression")),
    ),
    exp.BitwiseCount: _bit_argument_rules("this"),
    exp.UnixToTime: _integer_argument_rules("this"),
    exp.UnixDate: (ArgumentTypeRule("this", frozenset({Kind.DATE}), "Write DATE(…) around it."),),
    **dict.fromkeys((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros), _time_argument_rules("this")),
    exp.Extract: _time_argument_rules("expression"),
    **dict.fromkeys(
        (exp.JSONExtract, exp.JSONExtractScalar, exp.JSONExtractArray, exp.JSONValueArray), _JSON_ARGUMENT_RULES
    ),
    **dict.fromkeys((exp.ArraySize, exp.ArrayReverse), _ARRAY_ARGUMENT_RULES),
}
