"""Parser of the formats that write times: FORMAT_TIMESTAMP and related functions, and CAST(… AS STRING FORMAT …)."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.fragment import text_part
from cordwood.sql.lowering import unsupported

# A format element with its spelling, or None with a literal text.
Piece = tuple[str | None, str]

# The type of the formatted value, by the class that sqlglot wraps it in.
WRITTEN_AS: Final[dict[type[exp.Expr], Kind]] = {
    exp.TsOrDsToDate: Kind.DATE,
    exp.TsOrDsToDatetime: Kind.DATETIME,
    exp.TsOrDsToTimestamp: Kind.TIMESTAMP,
    exp.TsOrDsToTime: Kind.TIME,
}

_ELEMENT: Final = re.compile(r"%(E[z*]S?|E\d+S|E4Y|-?[A-Za-z%])|([^%]+)|(%)")

# Elements that a type does not have are written out literally.
_CLOCK: Final = frozenset(("H", "I", "k", "l", "M", "p", "P", "R", "r", "S", "s", "T", "X", "E*S"))
_ZONE: Final = frozenset(("Z", "z", "Ez"))
_DAY: Final = frozenset("AaBbhCcDdeFGgjmQUuVWwxYyJs") | {"E4Y"}


def elements(shape: str, kind: Kind) -> Iterator[Piece]:
    """Yield the elements of a format of FORMAT_TIMESTAMP and related functions, and the text between them.

    Elements that this type does not have are text.
    """
    for match in _ELEMENT.finditer(_as_bigquery(shape)):
        element = match[1]
        if element is None or element == "%":
            yield None, match[2] or "%"
        elif _is_foreign(element, kind):
            yield None, f"%{element}"
        else:
            yield element, ""


def _as_bigquery(shape: str) -> str:
    """Return the format in BigQuery's elements; sqlglot converts some of them to Python's."""
    return without_modifiers(shape.replace("%S.%f", "%E6S").replace("%-d", "%e"))


def without_modifiers(shape: str) -> str:
    """Remove the modifiers E and O where they have no effect."""
    return re.sub(r"%E([CcxXyY])", r"%\1", re.sub(r"%O([deHImMSuUVwWy])", r"%\1", shape))


def _is_foreign(element: str, kind: Kind) -> bool:
    clockless = kind is Kind.DATE and (element in _CLOCK or element.endswith("S"))
    zoneless = kind is not Kind.TIMESTAMP and element in _ZONE
    return clockless or zoneless or (kind is Kind.TIME and element in _DAY)


def fraction_digits(element: str) -> int | None:
    """Return the number of fraction digits of an element such as `E3S`; None for other elements."""
    match = re.fullmatch(r"E(\d{1,3})S", element)
    return int(match[1]) if match else None


_CAST_WORDS: Final = dict(
    word.split("=")
    for word in (
        "YYYY=Y YY=y MM=m MON=b MONTH=B DD=d DDD=j DAY=A DY=a HH24=H HH12=I HH=I MI=M SS=S AM=p PM=p A.M.=p P.M.=p"
        " FF1=E1S FF2=E2S FF3=E3S FF4=E4S FF5=E5S FF6=E6S"
    ).split()
)
# CAST(… AS STRING FORMAT …) writes times in UTC.
_CAST_ZONE: Final = {"TZH": "+00", "TZM": "00"}
_CAST_FOREIGN: Final = dict.fromkeys(_CAST_ZONE, "z")
_CAST_ELEMENT: Final = re.compile(
    "|".join(sorted(map(re.escape, (*_CAST_WORDS, *_CAST_ZONE)), key=len, reverse=True)) + r'|"([^"]*)"|.',
    re.IGNORECASE | re.DOTALL,
)
_NAMES: Final = frozenset("bBaAp")


def cast_elements(node: exp.Expr, shape: str, kind: Kind) -> Iterator[Piece]:
    """Yield a CAST's format as FORMAT_TIMESTAMP's elements, each with its spelling.

    `EnS` is the fraction alone here.
    """
    for match in _CAST_ELEMENT.finditer(shape):
        spelled = match[0]
        word = spelled.upper()
        if match[1] is not None:
            yield None, match[1]
        elif _is_foreign(_CAST_WORDS.get(word, _CAST_FOREIGN.get(word, "")), kind):
            unsupported(node, f"The format element '{spelled}' of a {kind}")
        elif word in _CAST_WORDS:
            yield _CAST_WORDS[word], spelled
        elif word not in _CAST_ZONE and spelled.isalnum():
            unsupported(node, f"The format element '{spelled}'")
        else:
            yield None, _CAST_ZONE.get(word, spelled)


def case_of(element: str, spelled: str) -> str | None:
    """Return in which case names of months and days are written: "upper", "lower", or None for mixed case."""
    if element not in _NAMES:
        return None
    if spelled[0].islower():
        return "lower"
    return "upper" if spelled.isupper() else None


class Said(msgspec.Struct, frozen=True):
    """A format that the engine's own function writes: elements that it has, and literal text."""

    shape: str


def merged(pieces: Iterable[Said | str], call: Callable[[int], str]) -> tuple[list[str], list[exp.Expr]]:
    """Merge adjacent pieces that one call of the engine's function can format; return templates and formats.

    `call` returns the template of such a call; its argument is the index of the format.
    """
    whole: list[str] = []
    shapes: list[exp.Expr] = []
    for is_said, run in groupby(pieces, lambda piece: isinstance(piece, Said)):
        if is_said:
            whole.append(call(len(shapes)))
            shapes.append(text_part("".join(piece.shape for piece in run if isinstance(piece, Said))))
        else:
            whole += [piece for piece in run if isinstance(piece, str)]
    return whole, shapes


def as_it_is(text: str) -> Said:
    """Return a piece of plain text, for `merged`."""
    return Said(text.replace("%", "%%"))
