"""An engine's SQL for common operations, called its words, from which the rules that all engines share are composed."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind


class TemplateFiller(Protocol):
    def __call__(self, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
        """Fill a template that refers to its parts as `@a`, `@b`…, so that expensive parts are evaluated only once.

        `texts` are constants, which replace the placeholders `{0}`, `{1}`…
        """
        ...


class FallibleTemplateFiller(Protocol):
    def __call__(self, node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
        """Fill a template as `TemplateFiller` does, where the template may fail; inside SAFE a failure is NULL."""
        ...


class ConditionalBuilder(Protocol):
    def __call__(self, condition: str, then: str, otherwise: str = "NULL") -> str: ...


class ArrayTextPrinter(Protocol):
    def __call__(self, array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
        """Return an array as text in brackets, with `separator` between the texts of its elements.

        `element_text` is the SQL of the text of one element, which it refers to as `name`.
        """
        ...


# Functions that return the SQL of an operation for the SQL of its one, two or three operands.
UnarySqlBuilder = Callable[[str], str]
BinarySqlBuilder = Callable[[str, str], str]
TernarySqlBuilder = Callable[[str, str, str], str]
Conversion = Callable[[exp.Expr], exp.Expr]


class CommonSql(msgspec.Struct, frozen=True):
    """An engine's SQL for common operations. Strings are templates with the placeholders of `TemplateFiller`."""

    fill_template: TemplateFiller
    fill_fallible_template: FallibleTemplateFiller
    typed_null: Callable[[Datatype | None], exp.Expr]
    # An implicit conversion to the type that the context requires, and the engine's own cast.
    convert_implicitly: Callable[[exp.Expr, Kind], exp.Expr]
    cast: Callable[[exp.Expr, Kind], exp.Expr]
    # The wall clock in UTC of a value of any type of time, and of a TIMESTAMP.
    time_to_utc_wall_clock: Conversion
    timestamp_to_utc_wall_clock: Conversion
    # A value as a JSON document. A text that is not JSON becomes NULL.
    as_json_document: Conversion

    # A value that fails, or is NULL inside SAFE, if the condition is true. A condition that is NULL does not fail. The
    # message must be a constant.
    fail_if: Callable[[exp.Expr, str, str, str], str]
    conditional: ConditionalBuilder
    is_null: UnarySqlBuilder
    is_not_null: UnarySqlBuilder
    coalesce: BinarySqlBuilder

    # The concatenation of texts, which is NULL if one of them is NULL.
    concat: Callable[..., str]
    # The text of a value as the engine itself prints it; a number or boolean converted to INT64, and to FLOAT64.
    as_text: UnarySqlBuilder
    as_integer: UnarySqlBuilder
    as_float: UnarySqlBuilder
    # Operations on a text and a pattern: whether the whole text matches, the first match, and the text with the first
    # match or all matches replaced.
    full_match: BinarySqlBuilder
    extract_first_match: BinarySqlBuilder
    replace_first: TernarySqlBuilder
    replace_all: TernarySqlBuilder

    # The third argument, an expression in which the name in the second argument stands for the value of the first
    # argument. This value is evaluated once.
    let_binding: TernarySqlBuilder
    bracketed_array_text: ArrayTextPrinter
    struct_field: Callable[[str, int], str]

    nan: str
    is_finite: UnarySqlBuilder
    is_infinite: UnarySqlBuilder
    is_nan: UnarySqlBuilder
    # The quotient of integers, truncated towards zero.
    integer_quotient: BinarySqlBuilder
    # The microseconds since 1970 of a time, and the TIMESTAMP of a number of microseconds since 1970.
    to_unix_micros: UnarySqlBuilder
    from_unix_micros: UnarySqlBuilder


# A function that casts its second argument explicitly. Its first argument is the node that determines whether a failure
# yields NULL.
ExplicitCast = Callable[[exp.Expr, exp.Expr, Datatype], exp.Expr]
