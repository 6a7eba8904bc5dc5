"""The argument types of BigQuery's functions, by sqlglot's class of the call and its key of the argument."""

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import NUMBERS, Kind

TEXTS: Final = frozenset({Kind.STRING, Kind.BYTES})
DATES: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
TIMES: Final = DATES | {Kind.TIME}


class Argument(msgspec.Struct, frozen=True):
    """An argument, the types that it may have, and the hint for a value of another type."""

    key: str
    kinds: frozenset[Kind]
    hint: str


def _text_arguments(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key, TEXTS, "Write CAST(… AS STRING) around it.") for key in keys)


def _integer_arguments(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key, frozenset({Kind.INT64}), "Write a whole number, or CAST(… AS INT64).") for key in keys)


def _number_arguments(*keys: str) -> tuple[Argument, ...]:
    hint = "Read a text as a number with CAST(… AS INT64) or CAST(… AS FLOAT64)."
    return tuple(Argument(key, frozenset(NUMBERS), hint) for key in keys)


def _time_arguments(*keys: str) -> tuple[Argument, ...]:
    return tuple(Argument(key, TIMES, "Write TIMESTAMP(…) around it.") for key in keys)


def _bit_arguments(*keys: str) -> tuple[Argument, ...]:
    kinds = frozenset({Kind.INT64, Kind.BYTES})
    return tuple(Argument(key, kinds, "Whole numbers and bytes have bits.") for key in keys)


_JSON: Final = (Argument("this", frozenset({Kind.STRING}), "Write TO_JSON_STRING(…) around it."),)
_ARRAY: Final = (
    Argument("this", frozenset({Kind.ARRAY}), "An array is wanted here; the length of a text is LENGTH(…)."),
)

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
    **dict.fromkeys((exp.JSONExtract, exp.JSONExtractScalar, exp.JSONExtractArray, exp.JSONValueArray), _JSON),
    **dict.fromkeys((exp.ArraySize, exp.ArrayReverse), _ARRAY),
}
