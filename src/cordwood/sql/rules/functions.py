"""Tables of functions that all engines share: the arguments, failures and limits of each function.

A `Function` states which arguments a function takes, how each is read, and with which message the function fails. The
table of each engine has a template for the function, in which the arguments are `@a`, `@b`…
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import Rule, RuleSet, fragment, function_name, text_part, unsupported
from cordwood.sql.nodes import constant_int
from cordwood.sql.rules.vocabulary import Vocabulary

# Engines evaluate thousands of rows at a time (DuckDB 2,048 per thread, ClickHouse up to 65,536) and do not limit the
# memory of the results themselves. Therefore these constants limit the size of what one call may create.
# The limit on the results of REPEAT, LPAD and RPAD.
MAX_TEXT_BYTES: Final = 16_384
# The limit on texts that are split into characters, which take about 50 bytes each.
MAX_CHARACTERS: Final = 2_048
# The limits of GENERATE_ARRAY and related functions: BigQuery's own limit for an array made once per query, and eleven
# years of days for an array made for each row.
MAX_ELEMENTS: Final = 1_048_575
MAX_ELEMENTS_PER_ROW: Final = 4_096


def max_elements(*bounds: exp.Expr) -> int:
    """Return the limit on an array's elements between these bounds: lower if it is made for each row."""
    return MAX_ELEMENTS_PER_ROW if any(part.find(exp.Column) is not None for part in bounds) else MAX_ELEMENTS


Argument = Callable[[Vocabulary, exp.Expr], exp.Expr]
# The class of a function's node, or the name of a function without a class.
Key = type[exp.Expr] | str


class Function(msgspec.Struct, frozen=True):
    """The arguments of a function, and how it fails.

    `message` is the error message where the condition `is_invalid` is true; an engine's `Checked` replaces the
    condition. If `attempts` is set, an error of the engine itself becomes NULL inside SAFE. `count` is the index of an
    argument that is invalid only if it is negative, so that a constant that is not negative needs no check.
    """

    arguments: tuple[Argument, ...]
    message: str = ""
    is_invalid: str = ""
    attempts: bool = False
    count: int | None = None


class Checked(msgspec.Struct, frozen=True):
    """A template, and the condition under which the function fails instead.

    Engines evaluate constant expressions when they plan a query, also in branches that are not taken. If the amount of
    work depends on an argument, the check is therefore applied to this argument, `guarded`; the checked argument is
    `@checked` in the template.
    """

    is_invalid: str
    value: str
    guarded: str = ""


class Over(msgspec.Struct, frozen=True):
    """A template whose first argument is replaced by `first`, an expression of the argument that is evaluated once."""

    first: str
    template: str | Checked


class ByType(msgspec.Struct, frozen=True):
    """Two templates: one for a first argument that is text, and one for a first argument that is bytes."""

    text: str | Checked | Over
    data: str | Checked | Over


Template = str | Checked | Over | ByType


def _argument(key: str, kind: Kind | None = None, default: exp.Expr | None = None) -> Argument:
    """Return a reader of a node's argument, which converts it to `kind`, if given.

    A missing argument is replaced by `default`; without a default, the call is refused.
    """

    def read(words: Vocabulary, node: exp.Expr) -> exp.Expr:
        value = node.args.get(key)
        if not isinstance(value, exp.Expr):
            return (
                unsupported(node, f"{function_name(node)} with these arguments") if default is None else copied(default)
            )
        return value if kind is None else words.read_as(value, kind)

    return read


def _event_as(inner: Argument, kind: Kind) -> Argument:
    """Return a reader that converts only events' values to a type."""

    def read(words: Vocabulary, node: exp.Expr) -> exp.Expr:
        value = inner(words, node)
        return words.read_as(value, kind) if kind_of(value) is Kind.VARIANT else value

    return read


def _positional(index: int) -> Argument:
    """Return a reader of an argument by its index, for nodes that store their arguments as a list."""
    return lambda _, node: node.expressions[index]


def rules_from_templates(
    words: Vocabulary, functions: Mapping[Key, Function], templates: Mapping[Key, Template]
) -> RuleSet:
    """Return the lowering rules of functions from an engine's templates for them."""
    rules = {key: _rule(words, functions[key], template) for key, template in templates.items()}
    return RuleSet(
        nodes={key: rule for key, rule in rules.items() if not isinstance(key, str)},
        by_name={key: rule for key, rule in rules.items() if isinstance(key, str)},
    )


def _rule(words: Vocabulary, function: Function, template: Template) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        arguments = [read(words, node) for read in function.arguments]
        chosen = _choose_by_type(template, arguments)
        value = chosen.value if isinstance(chosen, Checked) else chosen
        is_invalid = chosen.is_invalid if isinstance(chosen, Checked) else function.is_invalid
        if isinstance(chosen, Checked) and chosen.guarded:
            checked = words.fail_if(node, is_invalid, function.message, chosen.guarded)
            value = value.replace("@checked", checked)
        elif is_invalid and not _is_valid_count(function, arguments):
            value = words.fail_if(node, is_invalid, function.message, value)
        if "@" not in value:
            return fragment(value, *arguments)
        return words.attempt(node, value, *arguments) if function.attempts else words.once(value, *arguments)

    return rule


def _choose_by_type(template: Template, arguments: list[exp.Expr]) -> str | Checked:
    """Return the template for these arguments; replace the first argument in the list if the template is an `Over`."""
    if isinstance(template, ByType):
        template = template.data if kind_of(arguments[0]) is Kind.BYTES else template.text
    if isinstance(template, Over):
        arguments[0], template = fragment(template.first, arguments[0]), template.template
    return template


def _is_valid_count(function: Function, arguments: list[exp.Expr]) -> bool:
    count = None if function.count is None else constant_int(arguments[function.count])
    return count is not None and count >= 0


def _text(key: str) -> Argument:
    return _event_as(_argument(key), Kind.STRING)


_THIS: Final = _argument("this")
_TEXT: Final = _text("this")
_BYTES: Final = _argument("this", Kind.BYTES)
_TIMESTAMP: Final = _argument("this", Kind.TIMESTAMP)
_DELIMITERS: Final = ' \t\n\v\f\r[](){}/|<>!?@"^#$&~_,.:;*%+-'


def _too_long(name: str) -> str:
    return f"{name} of a text of more than {MAX_CHARACTERS} characters"


def _out_of_range(kind: Kind) -> str:
    return f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31"


STRINGS: Final[Mapping[Key, Function]] = {
    exp.Length: Function((_TEXT,)),
    exp.ByteLength: Function((_TEXT,)),
    exp.Left: Function(
        (_TEXT, _argument("expression")), "Second argument in LEFT() cannot be negative", "@b < 0", count=1
    ),
    exp.Right: Function(
        (_TEXT, _argument("expression")), "Second argument in RIGHT() cannot be negative", "@b < 0", count=1
    ),
    exp.Repeat: Function(
        (_TEXT, _argument("times")),
        f"Second argument in REPEAT() cannot be negative, nor its output longer than {MAX_TEXT_BYTES} bytes",
    ),
    exp.Replace: Function((_TEXT, _argument("expression"), _argument("replacement"))),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith), Function((_TEXT, _text("expression")))),
    exp.Reverse: Function((_TEXT,), _too_long("REVERSE")),
    **dict.fromkeys((exp.Upper, exp.Lower), Function((_TEXT,))),
    exp.ToCodePoints: Function((_TEXT,), _too_long("TO_CODE_POINTS")),
    exp.CodePointsToString: Function((_THIS,), "Invalid codepoint"),
    exp.CodePointsToBytes: Function((_THIS,), "Invalid extended ASCII code point"),
    **dict.fromkeys((exp.Unicode, exp.Ascii), Function((_TEXT,))),
    exp.Chr: Function((_positional(0),), "Invalid codepoint"),
    exp.Initcap: Function((_TEXT, _argument("expression", default=text_part(_DELIMITERS))), _too_long("INITCAP")),
    exp.SafeConvertBytesToString: Function((_THIS,)),
}

HASHES: Final[Mapping[Key, Function]] = {
    **dict.fromkeys((exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA1Digest), Function((_TEXT,))),
    **dict.fromkeys((exp.LowerHex, exp.Hex, exp.ToBase64, exp.ToBase32), Function((_BYTES,))),
    exp.Unhex: Function((_TEXT,), "Failed to decode invalid hexadecimal string"),
    exp.FromBase64: Function((_TEXT,), "Failed to decode invalid base64 string", attempts=True),
    exp.FromBase32: Function((_TEXT,), "Failed to decode invalid base32 string"),
    exp.FarmFingerprint: Function(
        (_event_as(_positional(0), Kind.STRING),), "FARM_FINGERPRINT of more than 256 bytes of a column"
    ),
    exp.Uuid: Function(()),
}

NET: Final[Mapping[Key, Function]] = {
    "NET.IP_TO_STRING": Function((_positional(0),), "NET.IP_TO_STRING() requires 4 or 16 bytes"),
    "NET.IP_NET_MASK": Function(
        (_positional(0), _positional(1)),
        "The arguments of NET.IP_NET_MASK() are out of range",
        "@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8",
    ),
    "NET.IP_TRUNC": Function((_positional(0), _positional(1)), "The arguments of NET.IP_TRUNC() are out of range"),
    "NET.IPV4_FROM_INT64": Function(
        (_positional(0),),
        "NET.IPV4_FROM_INT64() encountered an integer out of range",
        "@a < -2147483648 OR @a > 4294967295",
    ),
    "NET.IPV4_TO_INT64": Function((_positional(0),), "NET.IPV4_TO_INT64() requires 4 bytes"),
    "NET.HOST": Function((_event_as(_positional(0), Kind.STRING),), attempts=True),
}

TIMES: Final[Mapping[Key, Function]] = {
    exp.DateFromParts: Function(
        tuple(map(_argument, ("year", "month", "day"))), "Input calculates to invalid date", attempts=True
    ),
    exp.TimestampFromParts: Function(
        tuple(map(_argument, ("year", "month", "day", "hour", "min", "sec"))),
        "Input calculates to invalid datetime",
        attempts=True,
    ),
    exp.TimeFromParts: Function(
        tuple(map(_argument, ("hour", "min", "sec"))), "Input calculates to invalid time", attempts=True
    ),
    **dict.fromkeys((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros), Function((_TIMESTAMP,))),
    exp.UnixDate: Function((_argument("this", Kind.DATE),)),
    exp.DateFromUnixDate: Function((_THIS,), _out_of_range(Kind.DATE)),
}


def _document(words: Vocabulary, node: exp.Expr) -> exp.Expr:
    """Return the first argument as a JSON document; a function without a class has it in a list."""
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
    exp.ArraySlice: Function(tuple(map(_argument, ("this", "start", "end")))),
    "ARRAY_IS_DISTINCT": Function((_positional(0),)),
}
