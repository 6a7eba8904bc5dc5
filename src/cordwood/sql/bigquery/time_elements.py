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
FormatElement = tuple[str | None, str]

# The type of the formatted value, by the class that sqlglot wraps it in.
KIND_BY_CAST: Final[dict[type[exp.Expr], Kind]] = {
    exp.TsOrDsToDate: Kind.DATE,
    exp.TsOrDsToDatetime: Kind.DATETIME,
    exp.TsOrDsToTimestamp: Kind.TIMESTAMP,
    exp.TsOrDsToTime: Kind.TIME,
}

# The format of times in answers of ClickHouse's dialect: ISO 8601 with microseconds, in UTC, without a zone.
ISO_TIME: Final = "%Y-%m-%dT%H:%M:%E6S"

_ELEMENT: Final = re.compile(r"%(E[z*]S?|E\d+S|E4Y|-?[A-Za-z%])|([^%]+)|(%)")

# Elements that a type does not have are written out literally.
_CLOCK_ELEMENTS: Final = frozenset(("H", "I", "k", "l", "M", "p", "P", "R", "r", "S", "s", "T", "X", "E*S"))
_ZONE_ELEMENTS: Final = frozenset(("Z", "z", "Ez"))
_DATE_ELEMENTS: Final = frozenset("AaBbhCcDdeFGgjmQUuVWwxYyJs") | {"E4Y"}


def split_time_format(format_string: str, kind: Kind) -> Iterator[FormatElement]:
    """Yield the elements of a format of FORMAT_TIMESTAMP and related functions, and the text between them.

    Elements that this type does not have are text.
    """
    for match in _ELEMENT.finditer(_unescape_elements(format_string)):
        element = match[1]
        if element is None or element == "%":
            yield None, match[2] or "%"
        elif _is_unsupported(element, kind):
            yield None, f"%{element}"
        else:
            yield element, ""


def _unescape_elements(format_string: str) -> str:
    """Return the format in BigQuery's elements; sqlglot converts some of them to Python's."""
    return without_modifiers(format_string.replace("%S.%f", "%E6S").replace("%-d", "%e"))


def without_modifiers(format_string: str) -> str:
    """Remove the modifiers E and O where they have no effect."""
    return re.sub(r"%E([CcxXyY])", r"%\1", re.sub(r"%O([deHImMSuUVwWy])", r"%\1", format_string))


def _is_unsupported(element: str, kind: Kind) -> bool:
    lacks_clock = kind is Kind.DATE and (element in _CLOCK_ELEMENTS or element.endswith("S"))
    lacks_zone = kind is not Kind.TIMESTAMP and element in _ZONE_ELEMENTS
    return lacks_clock or lacks_zone or (kind is Kind.TIME and element in _DATE_ELEMENTS)


def fraction_digits(element: str) -> int | None:
    """Return the number of fraction digits of an element such as `E3S`; None for other elements."""
    match = re.fullmatch(r"E(\d{1,3})S", element)
    return int(match[1]) if match else None


_CAST_ELEMENTS: Final = dict(
    word.split("=")
    for word in (
        "YYYY=Y YY=y MM=m MON=b MONTH=B DD=d DDD=j DAY=A DY=a HH24=H HH12=I HH=I MI=M SS=S AM=p PM=p A.M.=p P.M.=p"
        " FF1=E1S FF2=E2S FF3=E3S FF4=E4S FF5=E5S FF6=E6S"
    ).split()
)
# CAST(… AS STRING FORMAT …) writes times in UTC.
_CAST_ZONE: Final = {"TZH": "+00", "TZM": "00"}
_CAST_ZONE_ELEMENT: Final = dict.fromkeys(_CAST_ZONE, "z")
_CAST_ELEMENT: Final = re.compile(
    "|".join(sorted(map(re.escape, (*_CAST_ELEMENTS, *_CAST_ZONE)), key=len, reverse=True)) + r'|"([^"]*)"|.',
    re.IGNORECASE | re.DOTALL,
)
_NAME_ELEMENTS: Final = frozenset("bBaAp")


def split_cast_format(node: exp.Expr, format_string: str, kind: Kind) -> Iterator[FormatElement]:
    """Yield a CAST's format as FORMAT_TIMESTAMP's elements, each with its spelling.

    `EnS` is the fraction alone here.
    """
    for match in _CAST_ELEMENT.finditer(format_string):
        source_text = match[0]
        word = source_text.upper()
        if match[1] is not None:
            yield None, match[1]
        elif _is_unsupported(_CAST_ELEMENTS.get(word, _CAST_ZONE_ELEMENT.get(word, "")), kind):
            unsupported(node, f"The format element '{source_text}' of a {kind}")
        elif word in _CAST_ELEMENTS:
            yield _CAST_ELEMENTS[word], source_text
        elif word not in _CAST_ZONE and source_text.isalnum():
            unsupported(node, f"The format element '{source_text}'")
        else:
            yield None, _CAST_ZONE.get(word, source_text)


def letter_case(element: str, source_text: str) -> str | None:
    """Return in which case names of months and days are written: "upper", "lower", or None for mixed case."""
    if element not in _NAME_ELEMENTS:
        return None
    if source_text[0].islower():
        return "lower"
    return "upper" if source_text.isupper() else None


class EngineFormat(msgspec.Struct, frozen=True):
    """A format that the engine's own function writes: elements that it has, and literal text."""

    format_string: str


def merge_formats(parts: Iterable[EngineFormat | str], call: Callable[[int], str]) -> tuple[list[str], list[exp.Expr]]:
    """Merge adjacent pieces that one call of the engine's function can format; return templates and formats.

    `call` returns the template of such a call; its argument is the index of the format.
    """
    templates: list[str] = []
    formats: list[exp.Expr] = []
    for is_engine_format, run in groupby(parts, lambda part: isinstance(part, EngineFormat)):
        if is_engine_format:
            templates.append(call(len(formats)))
            formats.append(text_part("".join(part.format_string for part in run if isinstance(part, EngineFormat))))
        else:
            templates += [part for part in run if isinstance(part, str)]
    return templates, formats


def literal_format(text: str) -> EngineFormat:
    """Return a piece of plain text, for `merge_formats`."""
    return EngineFormat(text.replace("%", "%%"))
