"""An engine's SQL for common operations, called its words, from which the rules that all engines share are composed."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind


class Once(Protocol):
    def __call__(self, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
        """Fill a template that refers to its parts as `@a`, `@b`…, such that expensive parts are evaluated only once.

        `texts` are constants, inserted as `{0}`, `{1}`…
        """
        ...


class Attempt(Protocol):
    def __call__(self, node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
        """Fill a template as `Once` does, where the template may fail; inside SAFE a failure is NULL."""
        ...


class Conditional(Protocol):
    def __call__(self, condition: str, then: str, otherwise: str = "NULL") -> str: ...


class Join(Protocol):
    def __call__(self, array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
        """Return an array as text in brackets, with `separator` between the texts of its elements.

        `element_text` is the SQL of the text of one element, which it refers to as `name`.
        """
        ...


# Functions that return the SQL of an operation for the SQL of its one, two or three operands.
Word = Callable[[str], str]
Word2 = Callable[[str, str], str]
Word3 = Callable[[str, str, str], str]
Conversion = Callable[[exp.Expr], exp.Expr]


class Vocabulary(msgspec.Struct, frozen=True):
    """How an engine writes common SQL operations. Strings are templates, whose placeholders are explained at `Once`."""

    once: Once
    attempt: Attempt
    null_of: Callable[[Datatype | None], exp.Expr]
    # An implicit conversion to the type that the context requires, and the engine's own cast.
    read_as: Callable[[exp.Expr, Kind], exp.Expr]
    cast: Callable[[exp.Expr, Kind], exp.Expr]
    # The wall clock in UTC of any type of time, and the same for a TIMESTAMP only.
    wall_clock: Conversion
    utc_wall_clock: Conversion
    # A value as a JSON document; a text that is not JSON is NULL.
    json_document: Conversion

    # A value that fails if the condition is true, or is NULL inside SAFE; an unknown condition does not fail. The
    # message must be a constant.
    fail_if: Callable[[exp.Expr, str, str, str], str]
    conditional: Conditional
    is_missing: Word
    is_present: Word
    or_else: Word2

    # The concatenation of texts, which is NULL if one of them is NULL.
    concat: Callable[..., str]
    # The engine's own text of a value; a number or boolean as INT64, and as FLOAT64.
    as_text: Word
    as_integer: Word
    as_float: Word
    # A text and a pattern: whether the whole text matches, the first match, and the matches replaced.
    matches: Word2
    extract: Word2
    replace_first: Word3
    replace_all: Word3

    # The third argument, which uses the name in the second argument for the value of the first, evaluated once.
    with_value: Word3
    bracketed: Join
    field: Callable[[str, int], str]

    nan: str
    is_finite: Word
    is_infinite: Word
    is_nan: Word
    # The quotient of integers, truncated towards zero.
    quotient: Word2
    # The microseconds since 1970 of a time, and the TIMESTAMP of a number of microseconds since 1970.
    micros: Word
    moment_of: Word


# The explicit cast of a value, the second argument; the first is the node that determines whether a failure is NULL.
CastTo = Callable[[exp.Expr, exp.Expr, Datatype], exp.Expr]
