"""The parser of FORMAT()'s format strings: plain text, and specifiers with flags, widths, precisions and arguments."""

import re
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec
from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.model.datatype import EXACT, NUMBERS, Kind
from cordwood.sql.constants import constant_int, is_null, parse_digits
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import span_in_text

_SPECIFIER: Final = re.compile(r"%([-+ #0']*)(\d+|\*)?(?:\.(\d+|\*)?)?([a-zA-Z%])|%|([^%]+)", re.ASCII)
_HAS_PRECISION: Final = re.compile(r"%[-+ #0']*(?:\d+|\*)?\.", re.ASCII)

# In characters; a wider field is refused.
MAX_WIDTH: Final = 10_000

INTEGER_LETTERS: Final = "diuxXo"
HEX_LETTERS: Final = "xXo"
FRACTION_LETTERS: Final = "fFeEgG"
TEXT_LETTERS: Final = "stTpP"

_ACCEPTED_KINDS: Final = {
    **dict.fromkeys(INTEGER_LETTERS, (Kind.INT64,)),
    **dict.fromkeys(FRACTION_LETTERS, NUMBERS),
    **dict.fromkeys("pP", (Kind.JSON,)),
    "s": (Kind.STRING,),
    "*": (Kind.INT64,),
}


class Specifier(msgspec.Struct, frozen=True):
    """A format specifier such as `%-8.3f`. A width or precision of `*` is taken from an argument."""

    flags: str
    width: str | None
    precision: str | None
    letter: str

    @property
    def is_too_wide(self) -> bool:
        return any(
            part and part.isdecimal() and parse_digits(part) > MAX_WIDTH for part in (self.width, self.precision)
        )

    def text(self, letter: str) -> str:
        """Return the specifier as printf spells it, with this conversion letter."""
        return f"%{self.flags.replace(chr(39), '')}{self.width or ''}{self._precision_part}{letter}"

    @property
    def without_zero_padding(self) -> "Specifier":
        """The specifier without zero padding."""
        return msgspec.structs.replace(self, flags=self.flags.replace("0", ""))

    @property
    def number_only(self) -> str:
        """The printf specifier of the number alone, without sign or padding."""
        return f"%{'#' if self.is_alternate else ''}{self._precision_part}{self.letter}"

    @property
    def padding(self) -> str | None:
        """The printf specifier that pads and cuts an already formatted text; None if nothing is to be done."""
        precision_part = self._precision_part if self.letter in TEXT_LETTERS else ""
        if self.width is None and not precision_part:
            return None
        return f"%{'-' if self.is_left else ''}{self.width or ''}{precision_part}s"

    @property
    def plus(self) -> str:
        """The prefix of numbers that are not negative."""
        return "+" if "+" in self.flags else " " if " " in self.flags else ""

    @property
    def is_left(self) -> bool:
        return "-" in self.flags

    @property
    def is_grouped(self) -> bool:
        return "'" in self.flags

    @property
    def is_alternate(self) -> bool:
        """Whether the flag `#` is given: always a decimal point, trailing zeros, and 0x before hexadecimal digits."""
        return "#" in self.flags

    @property
    def is_zero_padded(self) -> bool:
        return "0" in self.flags

    @property
    def _precision_part(self) -> str:
        return f".{self.precision}" if self.precision is not None else ""


class Field(msgspec.Struct, frozen=True):
    """A specifier with its argument and the arguments for its stars; literal stars are already replaced."""

    spec: Specifier
    value: exp.Expr
    width: exp.Expr | None
    precision: exp.Expr | None

    @property
    def counts(self) -> list[exp.Expr]:
        return [count for count in (self.width, self.precision) if count is not None]

    @property
    def exact(self) -> Kind | None:
        """The exact numeric type of a value whose digits are all printed; None for other values."""
        kind = kind_of(self.value)
        return kind if kind in EXACT and self.spec.letter in "fF" else None


def unwrap_cast_null(node: exp.Expr) -> exp.Expr:
    """Replace a cast NULL as the format of FORMAT by a plain NULL."""
    if isinstance(node.this, (exp.Cast, exp.TryCast)) and is_null(node.this.this):
        node.set("this", exp.Null())
    return node


def parse_format(node: exp.Expr, format_string: str) -> Iterator[str | Field | None]:
    """Yield the parts of a format: texts, and specifiers with their arguments; None for an invalid specifier."""
    arguments = iter(node.expressions)
    for part in _split_format(format_string):
        if part is None:
            yield None
            return
        yield part if isinstance(part, str) else _make_field(node, part, arguments)
    if next(arguments, None) is not None:
        _refuse(node, "FORMAT has more arguments than there are specifiers in its format.")


def _refuse(node: exp.Expr, message: str, hint: str | None = None) -> NoReturn:
    raise QueryValue(message, hint=hint, span=span_in_text(node))


def _make_field(node: exp.Expr, spec: Specifier, arguments: Iterator[exp.Expr]) -> Field:
    width = _next_argument(node, "*", arguments) if spec.width == "*" else None
    precision = _next_argument(node, "*", arguments) if spec.precision == "*" else None
    value = _next_argument(node, spec.letter, arguments)
    constant_width, constant_precision = constant_int(width), constant_int(precision)
    if constant_width is not None:
        flags = spec.flags + "-" if constant_width < 0 else spec.flags
        spec, width = msgspec.structs.replace(spec, flags=flags, width=str(abs(constant_width))), None
    if constant_precision is not None:
        spec = msgspec.structs.replace(spec, precision=str(constant_precision) if constant_precision >= 0 else None)
        precision = None
    return Field(_normalize(spec), value, width, precision)


def _next_argument(node: exp.Expr, letter: str, arguments: Iterator[exp.Expr]) -> exp.Expr:
    """Return the next argument; raise QueryValue if it is missing or of a type that the specifier does not take."""
    argument = next(arguments, None)
    if argument is None:
        _refuse(node, f"FORMAT has too few arguments: there is none for %{letter}.")
    kinds, kind = _ACCEPTED_KINDS.get(letter), kind_of(argument)
    if kinds and kind not in (None, Kind.VARIANT, *kinds):
        hint = "Write %t for a value of any type." if letter == "s" else None
        _refuse(node, f"%{letter} of FORMAT takes {_kind_list(kinds)}, but its argument is {kind}.", hint)
    return argument


def _kind_list(kinds: tuple[Kind, ...]) -> str:
    return " or ".join((", ".join(kinds[:-1]), kinds[-1])) if len(kinds) > 1 else kinds[0]


def _normalize(spec: Specifier) -> Specifier:
    """Return the specifier without flags that have no effect; the precision of %g is at least 1."""
    ineffective = _ineffective_flags(spec)
    flags = "".join(flag for flag in dict.fromkeys(spec.flags) if flag not in ineffective)
    precision = "1" if spec.letter in "gG" and spec.precision == "0" else spec.precision
    return msgspec.structs.replace(spec, flags=flags, precision=precision)


def _ineffective_flags(spec: Specifier) -> str:
    ineffective = " " if "+" in spec.flags else ""
    has_all_digits = spec.letter in INTEGER_LETTERS and spec.precision is not None
    return ineffective + "0" if spec.is_left or has_all_digits else ineffective


def _split_format(format_string: str) -> Iterator[str | Specifier | None]:
    for match in _SPECIFIER.finditer(format_string):
        if match[5] is not None:
            yield match[5]
        elif match[4] == "%":
            yield "%"
        elif match[4] is None:
            yield None
        else:
            precision = match[3] if match[3] is not None else ("0" if _HAS_PRECISION.match(match[0]) else None)
            yield Specifier(match[1], match[2], precision, match[4])
