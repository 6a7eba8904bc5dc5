"""The result types of BigQuery's functions and operators, as tables."""

from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype
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
from cordwood.sql.typing.internal import RESULTS

BY_NODE: Final[dict[type[exp.Expr], Datatype]] = {
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
BY_NAME: Final[dict[str, Datatype]] = {
    **{internal_function(name).upper(): result for name, result in RESULTS.items()},
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
