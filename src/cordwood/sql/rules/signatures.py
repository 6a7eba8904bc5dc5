"""The arguments and failures of functions that are rows of the engines' tables."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.size_limits import MAX_CHARACTERS, MAX_TEXT_BYTES
from cordwood.sql.fragment import text_part
from cordwood.sql.rules.functions import Argument, Function, Key, argument, event_as, positional
from cordwood.sql.rules.vocabulary import Vocabulary


def _text(key: str) -> Argument:
    return event_as(argument(key), Kind.STRING)


_THIS: Final = argument("this")
_TEXT: Final = _text("this")
_BYTES: Final = argument("this", Kind.BYTES)
_TIMESTAMP: Final = argument("this", Kind.TIMESTAMP)
_DELIMITERS: Final = ' \t\n\v\f\r[](){}/|<>!?@"^#$&~_,.:;*%+-'


def _too_long(name: str) -> str:
    return f"{name} of a text of more than {MAX_CHARACTERS} characters"


def _out_of_range(kind: Kind) -> str:
    return f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31"


STRINGS: Final[Mapping[Key, Function]] = {
    exp.Length: Function((_TEXT,)),
    exp.ByteLength: Function((_TEXT,)),
    exp.Left: Function(
        (_TEXT, argument("expression")), "Second argument in LEFT() cannot be negative", "@b < 0", count=1
    ),
    exp.Right: Function(
        (_TEXT, argument("expression")), "Second argument in RIGHT() cannot be negative", "@b < 0", count=1
    ),
    exp.Repeat: Function(
        (_TEXT, argument("times")),
        f"Second argument in REPEAT() cannot be negative, nor its output longer than {MAX_TEXT_BYTES} bytes",
    ),
    exp.Replace: Function((_TEXT, argument("expression"), argument("replacement"))),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith), Function((_TEXT, _text("expression")))),
    exp.Reverse: Function((_TEXT,), _too_long("REVERSE")),
    **dict.fromkeys((exp.Upper, exp.Lower), Function((_TEXT,))),
    exp.ToCodePoints: Function((_TEXT,), _too_long("TO_CODE_POINTS")),
    exp.CodePointsToString: Function((_THIS,), "Invalid codepoint"),
    exp.CodePointsToBytes: Function((_THIS,), "Invalid extended ASCII code point"),
    **dict.fromkeys((exp.Unicode, exp.Ascii), Function((_TEXT,))),
    exp.Chr: Function((positional(0),), "Invalid codepoint"),
    exp.Initcap: Function((_TEXT, argument("expression", default=text_part(_DELIMITERS))), _too_long("INITCAP")),
    exp.SafeConvertBytesToString: Function((_THIS,)),
}

HASHES: Final[Mapping[Key, Function]] = {
    **dict.fromkeys((exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA1Digest), Function((_TEXT,))),
    **dict.fromkeys((exp.LowerHex, exp.Hex, exp.ToBase64, exp.ToBase32), Function((_BYTES,))),
    exp.Unhex: Function((_TEXT,), "Failed to decode invalid hexadecimal string"),
    exp.FromBase64: Function((_TEXT,), "Failed to decode invalid base64 string", attempts=True),
    exp.FromBase32: Function((_TEXT,), "Failed to decode invalid base32 string"),
    exp.FarmFingerprint: Function(
        (event_as(positional(0), Kind.STRING),), "FARM_FINGERPRINT of more than 256 bytes of a column"
    ),
    exp.Uuid: Function(()),
}

NET: Final[Mapping[Key, Function]] = {
    "NET.IP_TO_STRING": Function((positional(0),), "NET.IP_TO_STRING() requires 4 or 16 bytes"),
    "NET.IP_NET_MASK": Function(
        (positional(0), positional(1)),
        "The arguments of NET.IP_NET_MASK() are out of range",
        "@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8",
    ),
    "NET.IP_TRUNC": Function((positional(0), positional(1)), "The arguments of NET.IP_TRUNC() are out of range"),
    "NET.IPV4_FROM_INT64": Function(
        (positional(0),),
        "NET.IPV4_FROM_INT64() encountered an integer out of range",
        "@a < -2147483648 OR @a > 4294967295",
    ),
    "NET.IPV4_TO_INT64": Function((positional(0),), "NET.IPV4_TO_INT64() requires 4 bytes"),
    "NET.HOST": Function((event_as(positional(0), Kind.STRING),), attempts=True),
}

TIMES: Final[Mapping[Key, Function]] = {
    exp.DateFromParts: Function(
        tuple(map(argument, ("year", "month", "day"))), "Input calculates to invalid date", attempts=True
    ),
    exp.TimestampFromParts: Function(
        tuple(map(argument, ("year", "month", "day", "hour", "min", "sec"))),
        "Input calculates to invalid datetime",
        attempts=True,
    ),
    exp.TimeFromParts: Function(
        tuple(map(argument, ("hour", "min", "sec"))), "Input calculates to invalid time", attempts=True
    ),
    **dict.fromkeys((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros), Function((_TIMESTAMP,))),
    exp.UnixDate: Function((argument("this", Kind.DATE),)),
    exp.DateFromUnixDate: Function((_THIS,), _out_of_range(Kind.DATE)),
}


def _document(words: Vocabulary, node: exp.Expr) -> exp.Expr:
    """Return the first argument, whether or not the function has a class, as a JSON document."""
    return words.json_document(node.this if isinstance(node.this, exp.Expr) else node.expressions[0])


def _required(name: str) -> Function:
    return Function((_document,), f"The provided JSON input is not {name}", attempts=True)


JSON: Final[Mapping[Key, Function]] = {
    exp.JSONType: Function((_document,)),
    exp.JSONBool: _required("a boolean"),
    exp.Int64: _required("an integer"),
    exp.Float64: _required("a number"),
    exp.String: _required("a string"),
    **dict.fromkeys((exp.LaxBool, exp.LaxInt64, exp.LaxFloat64, exp.LaxString, "LAX_STRING"), Function((_document,))),
}

ARRAYS: Final[Mapping[Key, Function]] = {
    exp.ArrayReverse: Function((_THIS,)),
    **dict.fromkeys(
        (exp.ArrayFirst, exp.ArrayLast),
        Function((_THIS,), "ARRAY_FIRST or ARRAY_LAST cannot take the element of an empty array"),
    ),
    # Offsets from zero with both ends included; negative ones count from the end.
    exp.ArraySlice: Function(tuple(map(argument, ("this", "start", "end")))),
    "ARRAY_IS_DISTINCT": Function((positional(0),)),
}
