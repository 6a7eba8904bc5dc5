"""The result types and argument types of BigQuery's functions and operators, as tables."""

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import NUMBERS, Datatype, Kind
from cordwood.sql.internal_functions import RESULT_TYPES
from cordwood.sql.nodes import internal_function
from cordwood.sql.typing.datatypes import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    STRING,
    TIME,
    TIMESTAMP,
    array_of,
)

RESULT_BY_NODE: Final[dict[type[exp.Expr], Datatype]] = {
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

# Functions for which sqlglot has no class.
RESULT_BY_NAME: Final[dict[str, Datatype]] = {
    **{internal_function(name).upper(): result for name, result in RESULT_TYPES.items()},
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


TEXT_KINDS: Final = frozenset({Kind.STRING, Kind.BYTES})
DATE_KINDS: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
TIME_KINDS: Final = DATE_KINDS | {Kind.TIME}


class Argument(msgspec.Struct, frozen=True):
    """An argument of a function: the types that it may have, and the hint for a value of another type."""

    key: str
    kinds: frozenset[Kind]
    hint: str


def _text_arguments(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key, TEXT_KINDS, "Write CAST(… AS STRING) around it.") for key in keys)


def _integer_arguments(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key, frozenset({Kind.INT64}), "Write a whole number, or CAST(… AS INT64).") for key in keys)


def _number_arguments(*keys: str) -> tuple[Argument, ...]:
    hint = "Read a text as a number with CAST(… AS INT64) or CAST(… AS FLOAT64)."
    return tuple(Argument(key, frozenset(NUMBERS), hint) for key in keys)


def _time_arguments(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key, TIME_KINDS, "Write TIMESTAMP(…) around it.") for key in keys)


def _bit_arguments(*keys: str) -> tuple[Argument, ...]:
    kinds = frozenset({Kind.INT64, Kind.BYTES})
    return tuple(Argument(key, kinds, "Whole numbers and bytes have bits.") for key in keys)


_JSON_ARGUMENT: Final = (Argument("this", frozenset({Kind.STRING}), "Write TO_JSON_STRING(…) around it."),)
_ARRAY_ARGUMENT: Final = (
    Argument("this", frozenset({Kind.ARRAY}), "An array is wanted here; the length of a text is LENGTH(…)."),
)

# Arguments with checked types, by sqlglot's class of the call; each is named by its key in the node.
ARGUMENTS: Final[Mapping[type[exp.Expr], tuple[Argument, ...]]] = {
    **dict.fromkeys((exp.Upper, exp.Lower, exp.Length, exp.Reverse, exp.Initcap), _text_arguments("this")),
    **dict.fromkeys(
        (exp.StartsWith, exp.EndsWith, exp.Split, exp.Like, exp.Trim), _text_arguments("this", "expression")
    ),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpExtract, exp.RegexpExtractAll), _text_arguments("this", "expression")),
    **dict.fromkeys((exp.Replace, exp.RegexpReplace), _text_arguments("this", "expression", "replacement")),
    exp.StrPosition: _text_arguments("this", "substr"),
    **dict.fromkeys((exp.StrToDate, exp.StrToTime, exp.ParseDatetime, exp.ParseTime), _text_arguments("this")),
    exp.GroupConcat: _text_arguments("separator"),
    exp.Substring: (*_text_arguments("this"), *_integer_arguments("start", "length")),
    **dict.fromkeys((exp.Left, exp.Right), (*_text_arguments("this"), *_integer_arguments("expression"))),
    exp.Pad: (*_text_arguments("this"), *_integer_arguments("expression"), *_text_arguments("fill_pattern")),
    exp.Repeat: (*_text_arguments("this"), *_integer_arguments("times")),
    **dict.fromkeys(
        (exp.Abs, exp.Sign, exp.Ceil, exp.Floor, exp.Sqrt, exp.Exp, exp.Ln, exp.Neg), _number_arguments("this")
    ),
    **dict.fromkeys((exp.Mod, exp.IntDiv, exp.SafeDivide, exp.Pow, exp.Log), _number_arguments("this", "expression")),
    exp.Round: (*_number_arguments("this"), *_integer_arguments("decimals")),
    exp.Trunc: (*_number_arguments("this"), *_integer_arguments("decimals")),
    **dict.fromkeys((exp.TimestampTrunc, exp.TimestampAdd, exp.TimestampSub), _time_arguments("this")),
    **dict.fromkeys(
        (exp.TimestampDiff, exp.DatetimeDiff, exp.DateDiff, exp.TimeDiff), _time_arguments("this", "expression")
    ),
    **dict.fromkeys((exp.MD5Digest, exp.SHA, exp.SHA2Digest, exp.LowerHex, exp.Unhex), _text_arguments("this")),
    **dict.fromkeys(
        (exp.ToBase64, exp.FromBase64, exp.Unicode, exp.ByteLength, exp.Normalize), _text_arguments("this")
    ),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor), _bit_arguments("this", "expression")),
    **dict.fromkeys(
        (exp.BitwiseLeftShift, exp.BitwiseRightShift), (*_bit_arguments("this"), *_integer_arguments("expression"))
    ),
    exp.BitwiseCount: _bit_arguments("this"),
    exp.UnixToTime: _integer_arguments("this"),
    exp.UnixDate: (Argument("this", frozenset({Kind.DATE}), "Write DATE(…) around it."),),
    **dict.fromkeys((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros), _time_arguments("this")),
    exp.Extract: _time_arguments("expression"),
    **dict.fromkeys((exp.JSONExtract, exp.JSONExtractScalar, exp.JSONExtractArray, exp.JSONValueArray), _JSON_ARGUMENT),
    **dict.fromkeys((exp.ArraySize, exp.ArrayReverse), _ARRAY_ARGUMENT),
}
