"""Parser of the formats that read times: PARSE_TIMESTAMP and related functions, as regular expressions."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_elements import without_modifiers

MONTHS: Final = "january february march april may june july august september october november december".split()
DAYS: Final = "monday tuesday wednesday thursday friday saturday sunday".split()


def _name_pattern(words: list[str]) -> str:
    return "(" + "|".join(f"{word[:3]}(?:{word[3:]})?" if len(word) > 3 else word for word in words) + ")"


_NUMBER: Final = r"(\d{1,2})"
_OFFSET: Final = r"([+-]\d{1,2}:?\d{0,2}|z)"
# RE2's `\s` does not include the vertical tab.
_SPACES: Final = r"[\s\v]*"

# The pattern of each element; the group's index is recorded under the element's letter.
_PATTERNS: Final = {
    "Y": r"([+-]?\d{1,4})",
    "E4Y": r"(\d{4})",
    "G": r"(\d{1,4})",
    "C": r"(0\d{2}|\d{1,2})",
    **dict.fromkeys("ymHIMSUWVg", _NUMBER),
    **dict.fromkeys("dekl", r"\s*(\d{1,2})"),
    "j": r"(\d{1,3})",
    "u": "([1-7])",
    "w": "([0-6])",
    "Q": "([1-4])",
    **dict.fromkeys("bBh", _name_pattern(MONTHS)),
    **dict.fromkeys("aA", _name_pattern(DAYS)),
    "p": "(am|pm)",
    "s": r"([+-]?\d{1,18})",
    **dict.fromkeys(("z", "Ez"), _OFFSET),
    "Z": r"([a-z0-9_/+:-]+)",
    **dict.fromkeys("nt", _SPACES),
    "%": "%",
}

# Elements that are equivalent to another one.
_EQUIVALENT: Final = {"e": "d", "k": "H", "l": "I", "B": "b", "h": "b", "A": "a", "E4Y": "Y", "Ez": "z"}
_ABBREVIATIONS: Final = {
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "R": "%H:%M",
}
_ALL_ABBREVIATIONS: Final = {**_ABBREVIATIONS, "c": "%a %b %e %H:%M:%S %Y", "r": "%I:%M:%S %p"}

_ELEMENT: Final = re.compile(r"%(E[Ccx XyY]|O[a-zA-Z]|E\*S|E\d+S|E4Y|Ez|-?[A-Za-z%])|(\s+)|(.)", re.DOTALL)
_SECONDS: Final = re.compile(r"E(\d+|\*)S")

_UNSUPPORTED_BY_KIND: Final = {
    Kind.DATE: frozenset("HIMSpszZ"),
    Kind.TIME: frozenset("YmdybjCGUVWaszZuwQ"),
    Kind.DATETIME: frozenset("zZ"),
}


class FormatPattern(msgspec.Struct):
    """The regular expression, its number of groups, and the index from 1 of the last group of each element."""

    pattern: str = ""
    groups: int = 0
    last_groups: dict[str, int] = msgspec.field(default_factory=dict)
    unknown: str | None = None

    def unsupported_element(self, kind: Kind) -> str | None:
        """Return the first element that this type does not have."""
        return next((element for element in self.last_groups if element in _UNSUPPORTED_BY_KIND.get(kind, ())), None)

    def add_element(self, element: str, pattern: str) -> None:
        self.pattern += pattern
        if "(" in pattern.replace("(?:", ""):
            self.groups += 1
            self.last_groups[_EQUIVALENT.get(element, element)] = self.groups


def parse_time_format(format_string: str) -> FormatPattern:
    """Return the regular expression of a format, up to its first `unknown` element."""
    format_pattern = FormatPattern()
    for element, literal_pattern in _elements(format_string):
        if element is None:
            format_pattern.pattern += literal_pattern
        elif seconds := _SECONDS.fullmatch(element):
            format_pattern.add_element("S", _seconds_pattern(seconds[1]))
        elif element in _PATTERNS:
            format_pattern.add_element(element, _PATTERNS[element])
        else:
            format_pattern.unknown = element
            break
    return format_pattern


def _elements(format_string: str) -> Iterator[tuple[str | None, str]]:
    """Yield elements, and patterns of the text between them."""
    # Sqlglot converts some elements to Python's.
    format_string = format_string.split("\0", 1)[0].replace("%S.%f", "%E6S").replace("%-d", "%e")
    for match in _ELEMENT.finditer(_expand_abbreviations(format_string)):
        element, space, literal = match.groups()
        yield element, _SPACES if space is not None else re.escape(literal or "")


def _expand_abbreviations(format_string: str) -> str:
    """Expand elements that are abbreviations of several."""
    return re.sub(
        "%([" + "".join(_ALL_ABBREVIATIONS) + "])",
        lambda match: _ALL_ABBREVIATIONS[match[1]],
        without_modifiers(format_string),
    )


def _seconds_pattern(digits: str) -> str:
    """Return the pattern of seconds with at most so many fraction digits."""
    if digits == "0":
        return _NUMBER
    fraction = r"\d*" if digits == "*" else rf"\d{{0,{digits}}}"
    return rf"(\d{{1,2}}(?:\.{fraction})?)"
