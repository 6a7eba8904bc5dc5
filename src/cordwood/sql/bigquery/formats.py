"""The parser of FORMAT()'s format strings: plain text, and specifiers with flags, widths, precisions and arguments."""

import re
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec
from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.model.datatype import EXACT, NUMBERS, Kind
from cordwood.sql.constants import constant_int, is_null
from cordwood.sql.digits import parse_digits
from cordwood.sql.lowering import span_in_text
from cordwood.sql.typing import kind_of

_SPECIFIER: Final = re.compile(r"%([-+ #0']*)(\d+|\*)?(?:\.(\d+|\*)?)?([a-zA-Z%])|%|([^%]+)", re.ASCII)
_HAS_PRECISION: Final = re.compile(r"%[-+ #0']*(?:\d+|\*)?\.", re.ASCII)

# In characters; a wider field is refused.
WIDEST: Final = 10_000

WHOLE: Final = "diuxXo"
HEXADECIMAL: Final = "xXo"
FRACTIONS: Final = "fFeEgG"
TEXTS: Final = "stTpP"

_TAKEN: Final = {
    **dict.fromkeys(WHOLE, (Kind.INT64,)),
    **dict.fromkeys(FRACTIONS, NUMBERS),
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
        return any(part and part.isdecimal() and parse_digits(part) > WIDEST for part in (self.width, self.precision))

    def text(self, letter: str) -> str:
        """Return the specifier as printf spells it, with this conversion letter."""
        return f"%{self.flags.replace(chr(39), '')}{self.width or ''}{self._cut}{letter}"

    @property
    def unfilled(self) -> "Specifier":
        """The specifier without zero padding."""
        return msgspec.structs.replace(self, flags=self.flags.replace("0", ""))

    @property
    def fraction(self) -> str:
        """The printf specifier of the number alone, without sign or padding."""
        return f"%{'#' if self.has_all else ''}{self._cut}{self.letter}"

    @property
    def padding(self) -> str | None:
        """The printf specifier that pads and cuts an already formatted text; None if nothing is to be done."""
        cut = self._cut if self.letter in TEXTS else ""
        if self.width is None and not cut:
            return None
        return f"%{'-' if self.is_left else ''}{self.width or ''}{cut}s"

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
    def has_all(self) -> bool:
        """Whether the flag `#` is given: always a decimal point, trailing zeros, and 0x before hexadecimal digits."""
        return "#" in self.flags

    @property
    def has_zeros(self) -> bool:
        return "0" in self.flags

    @property
    def _cut(self) -> str:
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


def unwrapped_null(node: exp.Expr) -> exp.Expr:
    """Replace a cast NULL as the format of FORMAT by a plain NULL."""
    if isinstance(node.this, (exp.Cast, exp.TryCast)) and is_null(node.this.this):
        node.set("this", exp.Null())
    return node


def filled(node: exp.Expr, shape: str) -> Iterator[str | Field | None]:
    """Yield the parts of a format: texts, and specifiers with their arguments; None for an invalid specifier."""
    arguments = iter(node.expressions)
    for piece in _pieces(shape):
        if piece is None:
            yield None
            return
        yield piece if isinstance(piece, str) else _field(node, piece, arguments)
    if next(arguments, None) is not None:
        _refuse(node, "FORMAT has more arguments than there are specifiers in its format.")


def _refuse(node: exp.Expr, message: str, hint: str | None = None) -> NoReturn:
    raise QueryValue(message, hint=hint, span=span_in_text(node))


def _field(node: exp.Expr, spec: Specifier, arguments: Iterator[exp.Expr]) -> Field:
    width = _taken(node, "*", arguments) if spec.width == "*" else None
    precision = _taken(node, "*", arguments) if spec.precision == "*" else None
    value = _taken(node, spec.letter, arguments)
    known_width, known_precision = constant_int(width), constant_int(precision)
    if known_width is not None:
        flags = spec.flags + "-" if known_width < 0 else spec.flags
        spec, width = msgspec.structs.replace(spec, flags=flags, width=str(abs(known_width))), None
    if known_precision is not None:
        spec = msgspec.structs.replace(spec, precision=str(known_precision) if known_precision >= 0 else None)
        precision = None
    return Field(_plainer(spec), value, width, precision)


def _taken(node: exp.Expr, letter: str, arguments: Iterator[exp.Expr]) -> exp.Expr:
    """Return the next argument; raise QueryValue if it is missing or of a type that the specifier does not take."""
    argument = next(arguments, None)
    if argument is None:
        _refuse(node, f"FORMAT has too few arguments: there is none for %{letter}.")
    kinds, own = _TAKEN.get(letter), kind_of(argument)
    if kinds and own not in (None, Kind.VARIANT, *kinds):
        hint = "Write %t for a value of any type." if letter == "s" else None
        _refuse(node, f"%{letter} of FORMAT takes {_listed(kinds)}, but its argument is {own}.", hint)
    return argument


def _listed(kinds: tuple[Kind, ...]) -> str:
    return " or ".join((", ".join(kinds[:-1]), kinds[-1])) if len(kinds) > 1 else kinds[0]


def _plainer(spec: Specifier) -> Specifier:
    """Return the specifier without flags that have no effect; the precision of %g is at least 1."""
    idle = _idle(spec)
    flags = "".join(flag for flag in dict.fromkeys(spec.flags) if flag not in idle)
    precision = "1" if spec.letter in "gG" and spec.precision == "0" else spec.precision
    return msgspec.structs.replace(spec, flags=flags, precision=precision)


def _idle(spec: Specifier) -> str:
    idle = " " if "+" in spec.flags else ""
    has_all_digits = spec.letter in WHOLE and spec.precision is not None
    return idle + "0" if spec.is_left or has_all_digits else idle


def _pieces(shape: str) -> Iterator[str | Specifier | None]:
    for match in _SPECIFIER.finditer(shape):
        if match[5] is not None:
            yield match[5]
        elif match[4] == "%":
            yield "%"
        elif match[4] is None:
            yield None
        else:
            precision = match[3] if match[3] is not None else ("0" if _HAS_PRECISION.match(match[0]) else None)
            yield Specifier(match[1], match[2], precision, match[4])
