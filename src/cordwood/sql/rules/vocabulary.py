"""An engine's SQL for common operations, from which the rules that all engines share are composed.

In names of variables, this SQL is called the engine's words.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind


class TemplateFiller(Protocol):
    def __call__(self, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
        """Fill a template that refers to its parts as `@a`, `@b`…; a part that is used several times is evaluated once.

        `texts` are constants, which replace the placeholders `{0}`, `{1}`…
        """
        ...


class FallibleTemplateFiller(Protocol):
    def __call__(self, node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
        """Fill a template that may fail, in the same way as `TemplateFiller`. Inside SAFE, a failure yields NULL."""
        ...


class ConditionalBuilder(Protocol):
    def __call__(self, condition: str, then: str, otherwise: str = "NULL") -> str: ...


class ArrayTextPrinter(Protocol):
    def __call__(self, array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
        """Return an array as text in brackets, with `separator` between the texts of its elements.

        `element_text` is the SQL for the text of one element. In this SQL, `name` stands for the element.
        """
        ...


# Functions that take the SQL of one, two or three operands, and return the SQL of an operation on them.
UnarySqlBuilder = Callable[[str], str]
BinarySqlBuilder = Callable[[str, str], str]
TernarySqlBuilder = Callable[[str, str, str], str]
Conversion = Callable[[exp.Expr], exp.Expr]


class CommonSql(msgspec.Struct, frozen=True):
    """An engine's SQL for common operations. Strings are templates with the placeholders of `TemplateFiller`."""

    fill_template: TemplateFiller
    fill_fallible_template: FallibleTemplateFiller
    typed_null: Callable[[Datatype | None], exp.Expr]
    # The implicit conversion of a value to a type, and the engine's own cast.
    convert_implicitly: Callable[[exp.Expr, Kind], exp.Expr]
    cast: Callable[[exp.Expr, Kind], exp.Expr]
    # The conversion to the date and time in UTC: of a value of any type of time, and of a TIMESTAMP.
    time_to_utc_wall_clock: Conversion
    timestamp_to_utc_wall_clock: Conversion
    # The conversion of a value to a JSON document. A text that is not JSON becomes NULL.
    as_json_document: Conversion

    # Returns SQL that checks a condition. If the condition is true, the SQL fails with a message or, inside SAFE,
    # yields NULL. If the condition is false or NULL, the SQL yields the given value. The message must be a constant.
    fail_if_sql: Callable[[exp.Expr, str, str, str], str]
    case_when: ConditionalBuilder
    is_null: UnarySqlBuilder
    is_not_null: UnarySqlBuilder
    coalesce: BinarySqlBuilder

    # The concatenation of texts, which is NULL if one of them is NULL.
    concat: Callable[..., str]
    # Conversions of a value: to text, as the engine itself prints the value; of a number or boolean to INT64; and to
    # FLOAT64.
    as_text: UnarySqlBuilder
    as_integer: UnarySqlBuilder
    as_float: UnarySqlBuilder
    # Operations on a text and a pattern: whether the whole text matches, the first match, and the text with the first
    # match or all matches replaced.
    full_match: BinarySqlBuilder
    extract_first_match: BinarySqlBuilder
    replace_first: TernarySqlBuilder
    replace_all: TernarySqlBuilder

    # A binding of a name to a value, which is evaluated once: the first argument is the value, the second is the name,
    # and the third is the result, an expression that uses the name.
    let_binding: TernarySqlBuilder
    bracketed_array_text: ArrayTextPrinter
    struct_field: Callable[[str, int], str]

    # Conversions of numbers from events. The first two convert a text and a FLOAT64 to INT64, and give an arbitrary
    # value unless it is an integer. The third one rounds a FLOAT64 to INT64, halves away from zero, and fails if it is
    # out of range. The fourth one removes the fraction, and gives NULL if the FLOAT64 is out of range. The fifth one
    # converts a FLOAT64 to an event's value; its second operand is the result of one of the first two, which the event's
    # value is if both operands are equal. The last one converts a text to FLOAT64, and gives NULL unless it is a number.
    text_as_exact_integer: UnarySqlBuilder
    float_as_exact_integer: UnarySqlBuilder
    round_to_integer: UnarySqlBuilder
    truncate_to_integer: UnarySqlBuilder
    number_as_event_value: BinarySqlBuilder
    event_text_as_float: UnarySqlBuilder
    # A test whether the first operand is between the others.
    is_between: TernarySqlBuilder
    # The conversion of a text to an event's value.
    text_as_event_value: UnarySqlBuilder

    nan: str
    is_finite: UnarySqlBuilder
    is_infinite: UnarySqlBuilder
    is_nan: UnarySqlBuilder
    # The quotient of integers, truncated towards zero.
    integer_quotient: BinarySqlBuilder
    # The conversion of a time to microseconds since 1970, and of microseconds since 1970 to a TIMESTAMP.
    to_unix_micros: UnarySqlBuilder
    from_unix_micros: UnarySqlBuilder


# A function that casts its second argument. Its first argument is the node of the cast, which determines whether a
# failure yields NULL.
ExplicitCast = Callable[[exp.Expr, exp.Expr, Datatype], exp.Expr]
