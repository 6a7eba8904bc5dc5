"""Tables of functions that all engines share: the arguments, failures and limits of each function.

A `FunctionSignature` states which arguments a function takes, how each is read, and with which message the function
fails. The table of each engine has a template for the function, in which the arguments are `@a`, `@b`…
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import (
    LoweringRule,
    RuleSet,
    bigquery_function_name,
    fragment_node,
    raise_unsupported,
    string_literal_node,
)
from cordwood.sql.nodes import constant_int
from cordwood.sql.rules.vocabulary import CommonSql

# The limit on the results of REPEAT, LPAD and RPAD. Engines evaluate thousands of rows at a time (DuckDB 2,048 per
# thread, ClickHouse up to 65,536) and do not limit the memory of the results themselves. Therefore, this constant and
# the next ones limit the size of the value that one call may create.
MAX_PADDED_TEXT_BYTES: Final = 16_384
# The limit on the length of texts that are split into characters. Each character takes about 50 bytes.
MAX_SPLIT_CHARACTERS: Final = 2_048
# The limits on the elements of arrays that GENERATE_ARRAY and related functions make. An array that is made once per
# query has BigQuery's own limit. An array that is made for each row may have an element for each day of eleven years.
MAX_GENERATED_ELEMENTS: Final = 1_048_575
MAX_GENERATED_ELEMENTS_PER_ROW: Final = 4_096


def max_generated_elements(*bounds: exp.Expr) -> int:
    """Return how many elements a generated array may have: fewer if its `bounds` (start, end, step) vary by row."""
    return (
        MAX_GENERATED_ELEMENTS_PER_ROW
        if any(part.find(exp.Column) is not None for part in bounds)
        else MAX_GENERATED_ELEMENTS
    )


ArgumentReader = Callable[[CommonSql, exp.Expr], exp.Expr]
# The key of a function in these tables: the class of its node in sqlglot, or its name if it has no class.
FunctionKey = type[exp.Expr] | str


class FunctionSignature(msgspec.Struct, frozen=True):
    """The arguments of a function, and how it fails.

    The function fails with `failure_message` if `failure_condition` is true; an engine's `CheckedTemplate` may replace
    the condition. If `can_engine_fail` is set, the engine's own function may raise an error, which becomes NULL inside
    SAFE. If a function fails only because one argument, a count, is negative, `count_argument_index` is the index of
    this argument. For a constant count that is not negative, the condition is then not checked.
    """

    argument_readers: tuple[ArgumentReader, ...]
    failure_message: str = ""
    failure_condition: str = ""
    can_engine_fail: bool = False
    count_argument_index: int | None = None


class CheckedTemplate(msgspec.Struct, frozen=True):
    """A template of a function, and the condition under which the function fails instead.

    Engines evaluate constant expressions when they plan a query, even in branches that are not taken. Therefore, if an
    argument determines the amount of work, such as the number of repetitions, it is the `checked_argument`: it is
    checked before the function uses it. In the template, `@checked` stands for this argument with its check.
    """

    failure_condition: str
    template: str
    checked_argument: str = ""


class TransformedArgumentTemplate(msgspec.Struct, frozen=True):
    """A template whose first argument is the result of `argument_template`. This result is evaluated only once."""

    argument_template: str
    template: str | CheckedTemplate


class TextAndBytesTemplates(msgspec.Struct, frozen=True):
    """Two templates: one for a first argument that is text, and one for a first argument that is bytes."""

    text_template: str | CheckedTemplate | TransformedArgumentTemplate
    bytes_template: str | CheckedTemplate | TransformedArgumentTemplate


FunctionTemplate = str | CheckedTemplate | TransformedArgumentTemplate | TextAndBytesTemplates


def _argument_reader(key: str, kind: Kind | None = None, default: exp.Expr | None = None) -> ArgumentReader:
    """Return a reader of a node's argument, which converts it to `kind`, if given.

    A missing argument is replaced by `default`; without a default, the call is refused.
    """

    def read_argument(words: CommonSql, node: exp.Expr) -> exp.Expr:
        value = node.args.get(key)
        if not isinstance(value, exp.Expr):
            return (
                raise_unsupported(node, f"{bigquery_function_name(node)} with these arguments")
                if default is None
                else copy_tree(default)
            )
        return value if kind is None else words.convert_implicitly(value, kind)

    return read_argument


def _event_value_argument_reader(inner: ArgumentReader, kind: Kind) -> ArgumentReader:
    """Return a reader of an argument that converts an event's value to `kind`, and leaves other values unchanged."""

    def read_argument(words: CommonSql, node: exp.Expr) -> exp.Expr:
        value = inner(words, node)
        return words.convert_implicitly(value, kind) if kind_of(value) is Kind.VARIANT else value

    return read_argument


def _positional_argument_reader(index: int) -> ArgumentReader:
    """Return a reader of an argument by its index, for nodes that store their arguments as a list."""
    return lambda _, node: node.expressions[index]


def rules_from_templates(
    words: CommonSql,
    functions: Mapping[FunctionKey, FunctionSignature],
    templates: Mapping[FunctionKey, FunctionTemplate],
) -> RuleSet:
    """Return the lowering rules of the functions for which the engine has templates."""
    rules = {key: _function_rule(words, functions[key], template) for key, template in templates.items()}
    return RuleSet(
        by_node_class={key: rule for key, rule in rules.items() if not isinstance(key, str)},
        by_function_name={key: rule for key, rule in rules.items() if isinstance(key, str)},
    )


def _function_rule(words: CommonSql, function: FunctionSignature, template: FunctionTemplate) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        arguments = [read(words, node) for read in function.argument_readers]
        chosen = _choose_template_by_argument_type(template, arguments)
        value = chosen.template if isinstance(chosen, CheckedTemplate) else chosen
        is_invalid = chosen.failure_condition if isinstance(chosen, CheckedTemplate) else function.failure_condition
        if isinstance(chosen, CheckedTemplate) and chosen.checked_argument:
            checked = words.fail_if_sql(node, is_invalid, function.failure_message, chosen.checked_argument)
            value = value.replace("@checked", checked)
        elif is_invalid and not _has_valid_constant_count(function, arguments):
            value = words.fail_if_sql(node, is_invalid, function.failure_message, value)
        if "@" not in value:
            return fragment_node(value, *arguments)
        return (
            words.fill_fallible_template(node, value, *arguments)
            if function.can_engine_fail
            else words.fill_template(value, *arguments)
        )

    return rule


def _choose_template_by_argument_type(template: FunctionTemplate, arguments: list[exp.Expr]) -> str | CheckedTemplate:
    """Return the template for the type of the first argument.

    If it is a `TransformedArgumentTemplate`, replace the first argument in `arguments` by the transformed argument.
    """
    if isinstance(template, TextAndBytesTemplates):
        template = template.bytes_template if kind_of(arguments[0]) is Kind.BYTES else template.text_template
    if isinstance(template, TransformedArgumentTemplate):
        arguments[0], template = fragment_node(template.argument_template, arguments[0]), template.template
    return template


def _has_valid_constant_count(function: FunctionSignature, arguments: list[exp.Expr]) -> bool:
    count = None if function.count_argument_index is None else constant_int(arguments[function.count_argument_index])
    return count is not None and count >= 0


def _text_argument_reader(key: str) -> ArgumentReader:
    return _event_value_argument_reader(_argument_reader(key), Kind.STRING)


_READ_THIS_ARGUMENT: Final = _argument_reader("this")
_READ_TEXT_ARGUMENT: Final = _text_argument_reader("this")
_READ_BYTES_ARGUMENT: Final = _argument_reader("this", Kind.BYTES)
_READ_TIMESTAMP_ARGUMENT: Final = _argument_reader("this", Kind.TIMESTAMP)
_WORD_DELIMITERS: Final = ' \t\n\v\f\r[](){}/|<>!?@"^#$&~_,.:;*%+-'


def _too_long_message(name: str) -> str:
    return f"{name} of a text of more than {MAX_SPLIT_CHARACTERS} characters"


def _out_of_range_message(kind: Kind) -> str:
    return f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31"


STRING_FUNCTIONS: Final[Mapping[FunctionKey, FunctionSignature]] = {
    exp.Length: FunctionSignature((_READ_TEXT_ARGUMENT,)),
    exp.ByteLength: FunctionSignature((_READ_TEXT_ARGUMENT,)),
    exp.Left: FunctionSignature(
        (_READ_TEXT_ARGUMENT, _argument_reader("expression")),
        "Second argument in LEFT() cannot be negative",
        "@b < 0",
        count_argument_index=1,
    ),
    exp.Right: FunctionSignature(
        (_READ_TEXT_ARGUMENT, _argument_reader("expression")),
        "Second argument in RIGHT() cannot be negative",
        "@b < 0",
        count_argument_index=1,
    ),
    exp.Repeat: FunctionSignature(
        (_READ_TEXT_ARGUMENT, _argument_reader("times")),
        f"Second argument in REPEAT() cannot be negative, nor its output longer than {MAX_PADDED_TEXT_BYTES} bytes",
    ),
    exp.Replace: FunctionSignature(
        (_READ_TEXT_ARGUMENT, _argument_reader("expression"), _argument_reader("replacement"))
    ),
    **dict.fromkeys(
        (exp.StartsWith, exp.EndsWith), FunctionSignature((_READ_TEXT_ARGUMENT, _text_argument_reader("expression")))
    ),
    exp.Reverse: FunctionSignature((_READ_TEXT_ARGUMENT,), _too_long_message("REVERSE")),
    **dict.fromkeys((exp.Upper, exp.Lower), FunctionSignature((_READ_TEXT_ARGUMENT,))),
    exp.ToCodePoints: FunctionSignature((_READ_TEXT_ARGUMENT,), _too_long_message("TO_CODE_POINTS")),
    exp.CodePointsToString: FunctionSignature((_READ_THIS_ARGUMENT,), "Invalid codepoint"),
    exp.CodePointsToBytes: FunctionSignature((_READ_THIS_ARGUMENT,), "Invalid extended ASCII code point"),
    **dict.fromkeys((exp.Unicode, exp.Ascii), FunctionSignature((_READ_TEXT_ARGUMENT,))),
    exp.Chr: FunctionSignature((_positional_argument_reader(0),), "Invalid codepoint"),
    exp.Initcap: FunctionSignature(
        (_READ_TEXT_ARGUMENT, _argument_reader("expression", default=string_literal_node(_WORD_DELIMITERS))),
        _too_long_message("INITCAP"),
    ),
    exp.SafeConvertBytesToString: FunctionSignature((_READ_THIS_ARGUMENT,)),
}

HASH_FUNCTIONS: Final[Mapping[FunctionKey, FunctionSignature]] = {
    **dict.fromkeys((exp.MD5, exp.MD5Digest, exp.SHA, exp.SHA1Digest), FunctionSignature((_READ_TEXT_ARGUMENT,))),
    **dict.fromkeys((exp.LowerHex, exp.Hex, exp.ToBase64, exp.ToBase32), FunctionSignature((_READ_BYTES_ARGUMENT,))),
    exp.Unhex: FunctionSignature((_READ_TEXT_ARGUMENT,), "Failed to decode invalid hexadecimal string"),
    exp.FromBase64: FunctionSignature(
        (_READ_TEXT_ARGUMENT,), "Failed to decode invalid base64 string", can_engine_fail=True
    ),
    exp.FromBase32: FunctionSignature((_READ_TEXT_ARGUMENT,), "Failed to decode invalid base32 string"),
    exp.FarmFingerprint: FunctionSignature(
        (_event_value_argument_reader(_positional_argument_reader(0), Kind.STRING),),
        "FARM_FINGERPRINT of more than 256 bytes of a column",
    ),
    exp.Uuid: FunctionSignature(()),
}

NET_FUNCTIONS: Final[Mapping[FunctionKey, FunctionSignature]] = {
    "NET.IP_TO_STRING": FunctionSignature(
        (_positional_argument_reader(0),), "NET.IP_TO_STRING() requires 4 or 16 bytes"
    ),
    "NET.IP_NET_MASK": FunctionSignature(
        (_positional_argument_reader(0), _positional_argument_reader(1)),
        "The arguments of NET.IP_NET_MASK() are out of range",
        "@a NOT IN (4, 16) OR @b < 0 OR @b > @a * 8",
    ),
    "NET.IP_TRUNC": FunctionSignature(
        (_positional_argument_reader(0), _positional_argument_reader(1)),
        "The arguments of NET.IP_TRUNC() are out of range",
    ),
    "NET.IPV4_FROM_INT64": FunctionSignature(
        (_positional_argument_reader(0),),
        "NET.IPV4_FROM_INT64() encountered an integer out of range",
        "@a < -2147483648 OR @a > 4294967295",
    ),
    "NET.IPV4_TO_INT64": FunctionSignature((_positional_argument_reader(0),), "NET.IPV4_TO_INT64() requires 4 bytes"),
    "NET.HOST": FunctionSignature(
        (_event_value_argument_reader(_positional_argument_reader(0), Kind.STRING),), can_engine_fail=True
    ),
}

TIME_FUNCTIONS: Final[Mapping[FunctionKey, FunctionSignature]] = {
    exp.DateFromParts: FunctionSignature(
        tuple(map(_argument_reader, ("year", "month", "day"))), "Input calculates to invalid date", can_engine_fail=True
    ),
    exp.TimestampFromParts: FunctionSignature(
        tuple(map(_argument_reader, ("year", "month", "day", "hour", "min", "sec"))),
        "Input calculates to invalid datetime",
        can_engine_fail=True,
    ),
    exp.TimeFromParts: FunctionSignature(
        tuple(map(_argument_reader, ("hour", "min", "sec"))), "Input calculates to invalid time", can_engine_fail=True
    ),
    **dict.fromkeys((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros), FunctionSignature((_READ_TIMESTAMP_ARGUMENT,))),
    exp.UnixDate: FunctionSignature((_argument_reader("this", Kind.DATE),)),
    exp.DateFromUnixDate: FunctionSignature((_READ_THIS_ARGUMENT,), _out_of_range_message(Kind.DATE)),
}


def _read_json_document(words: CommonSql, node: exp.Expr) -> exp.Expr:
    """Return the first argument of a JSON function as a JSON document.

    sqlglot stores the argument in a list if it has no node class for the function.
    """
    return words.as_json_document(node.this if isinstance(node.this, exp.Expr) else node.expressions[0])


def _json_conversion_signature(name: str) -> FunctionSignature:
    return FunctionSignature((_read_json_document,), f"The provided JSON input is not {name}", can_engine_fail=True)


JSON_FUNCTIONS: Final[Mapping[FunctionKey, FunctionSignature]] = {
    exp.JSONType: FunctionSignature((_read_json_document,)),
    exp.JSONBool: _json_conversion_signature("a boolean"),
    exp.Int64: _json_conversion_signature("an integer"),
    exp.Float64: _json_conversion_signature("a number"),
    exp.String: _json_conversion_signature("a string"),
    **dict.fromkeys(
        (exp.LaxBool, exp.LaxInt64, exp.LaxFloat64, exp.LaxString, "LAX_STRING"),
        FunctionSignature((_read_json_document,)),
    ),
}

ARRAY_FUNCTIONS: Final[Mapping[FunctionKey, FunctionSignature]] = {
    exp.ArrayReverse: FunctionSignature((_READ_THIS_ARGUMENT,)),
    **dict.fromkeys(
        (exp.ArrayFirst, exp.ArrayLast),
        FunctionSignature(
            (_READ_THIS_ARGUMENT,), "ARRAY_FIRST or ARRAY_LAST cannot take the element of an empty array"
        ),
    ),
    # The offsets of ARRAY_SLICE count from zero, and both ends belong to the slice. Negative offsets count from the end
    # of the array.
    exp.ArraySlice: FunctionSignature(tuple(map(_argument_reader, ("this", "start", "end")))),
    "ARRAY_IS_DISTINCT": FunctionSignature((_positional_argument_reader(0),)),
}
