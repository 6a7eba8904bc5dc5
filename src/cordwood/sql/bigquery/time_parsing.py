"""PARSE_TIMESTAMP and related functions: from a match's groups to a date and a time of day, in an engine's terms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_patterns import DAYS, MONTHS, Reading, read_by
from cordwood.sql.constants import constant_text
from cordwood.sql.lowering import Rule, RuleSet, is_safe, mark_safe, unsupported

# The valid range of elements; engines check any others.
BOUNDS: Final = {"m": (1, 12), "d": (1, 31), "j": (1, 366), "H": (0, 23), "I": (1, 12), "M": (0, 59)}
_MICROSECONDS: Final = {"H": 3_600_000_000, "M": 60_000_000}


class Vocabulary(Protocol):
    """An engine's expressions for the steps of parsing; arguments and results are templates."""

    def number(self, text: str) -> str:
        """Convert a text of digits to an integer."""
        ...

    def either(self, condition: str, then: str, otherwise: str) -> str: ...

    def date(self, year: str, month: str, day: str) -> str: ...

    def days_after(self, date: str, days: str) -> str: ...

    def weekday(self, date: str) -> str:
        """Return the day of the week, from 1 for Monday."""
        ...

    def monday(self, date: str) -> str:
        """Return the Monday of the date's week."""
        ...

    def place(self, names: Sequence[str], text: str) -> str:
        """Return the position, from 1, of the name that begins with the first three letters of the text."""
        ...

    def microseconds(self, count: str, each: int) -> str:
        """Return so many units of `each` microseconds, as a part of the time of day."""
        ...

    def seconds(self, text: str) -> str:
        """Return seconds with a fraction, as a part of the time of day."""
        ...

    def time_of_day(self, parts: Sequence[str]) -> str: ...


class Groups(msgspec.Struct, frozen=True):
    """The template of each element's group, in the order in which the elements were read."""

    found: Mapping[str, str]
    words: Vocabulary

    def number(self, element: str) -> str:
        return self.words.number(self.found[element])

    def number_or(self, element: str, otherwise: str) -> str:
        return self.number(element) if element in self.found else otherwise

    def time_of_day(self) -> str:
        parts = [self._hour()] if self.found.keys() & {"H", "I"} else []
        parts += [self.words.microseconds(self.number("M"), _MICROSECONDS["M"])] if "M" in self.found else []
        parts += [self.words.seconds(self.found["S"])] if "S" in self.found else []
        return self.words.time_of_day(parts)

    def _hour(self) -> str:
        if "H" in self.found:
            return self.words.microseconds(self.number("H"), _MICROSECONDS["H"])
        hour = f"{self.number('I')} % 12"
        if "p" in self.found:
            is_afternoon = f"lower({self.found['p']}) = 'pm'"
            hour += f" + {self.words.either(is_afternoon, '12', '0')}"
        return self.words.microseconds(f"({hour})", _MICROSECONDS["H"])

    def date(self) -> str:
        if "G" in self.found:
            return self._iso_week()
        if self.found.keys() & {"U", "W"} and self.found.keys() & {"Y", "y"}:
            return self._week()
        if "j" in self.found:
            return self.words.days_after(self.words.date(self._year(), "1", "1"), f"{self.number('j')} - 1")
        return self.words.date(self._year(), self._month(), self.number_or("d", "1"))

    def _year(self) -> str:
        short = self.number_or("y", "")
        if "Y" in self.found:
            return self.number("Y")
        if "C" in self.found:
            return f"({self.number('C')} * 100{' + ' + short if short else ''})"
        return f"({short} + {self.words.either(f'{short} < 69', '2000', '1900')})" if short else "1970"

    def _month(self) -> str:
        """Return the month by the last of the elements for it; January without any."""
        last = next((element for element in reversed(list(self.found)) if element in ("m", "b", "Q")), None)
        if last == "b":
            return self.words.place([month[:3] for month in MONTHS], self.found["b"])
        if last == "Q":
            return f"({self.number('Q')} * 3 - 2)"
        return self.number_or("m", "1")

    def _weekday(self, first: int) -> str:
        """Return the number of days after Monday; `first` if the format has no weekday."""
        if "u" in self.found:
            return f"({self.number('u')} - 1)"
        if "w" in self.found:
            return f"(({self.number('w')} + 6) % 7)"
        if "a" in self.found:
            return f"({self.words.place([day[:3] for day in DAYS], self.found['a'])} - 1)"
        return str(first)

    def _iso_week(self) -> str:
        monday = self.words.monday(self.words.date(self.number("G"), "1", "4"))
        return self.words.days_after(monday, f"({self.number_or('V', '1')} - 1) * 7 + {self._weekday(0)}")

    def _week(self) -> str:
        """Return the date of a week of %U or %W.

        Week 1 begins with the year's first Sunday (%U) or Monday (%W); the days before it are week 0.
        """
        letter, before = ("U", 6) if "U" in self.found else ("W", 0)
        new_year = self.words.date(self._year(), "1", "1")
        first = self.words.days_after(new_year, f"(7 + {before} - ({self.words.weekday(new_year)} - 1)) % 7")
        day = f"(({self._weekday(before)} - {before} + 7) % 7)"
        return self.words.days_after(first, f"({self.number(letter)} - 1) * 7 + {day}")


Assemble = Callable[[exp.Expr, Reading, Kind], exp.Expr]


def parsing(assemble: Assemble, without: frozenset[str] = frozenset()) -> RuleSet:
    """Return the lowering rules of functions that parse times; `without` are elements that the engine cannot read."""

    def rule_for(kind: Kind) -> Rule:
        def rule(node: exp.Expr) -> exp.Expr:
            if node.args.get("safe"):
                mark_safe(node)
            if isinstance(node.args.get("format"), exp.Null) or isinstance(node.this, exp.Null):
                return exp.Null()
            reading = read_by(_format_of(node, kind))
            if reading.unknown is not None:
                return exp.Null() if is_safe(node) else unsupported(node, f"The format element %{reading.unknown}")
            beyond = next((element for element in reading.last if element in without), None)
            if beyond is not None:
                unsupported(node, f"The format element %{beyond}")
            foreign = reading.foreign(kind)
            if foreign is not None:
                unsupported(node, f"The element %{foreign} for {kind}")
            return assemble(node, reading, kind)

        return rule

    kinds = {
        exp.StrToDate: Kind.DATE,
        exp.StrToTime: Kind.TIMESTAMP,
        exp.ParseDatetime: Kind.DATETIME,
        exp.ParseTime: Kind.TIME,
    }
    return RuleSet(nodes={node: rule_for(kind) for node, kind in kinds.items()})


def _format_of(node: exp.Expr, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP and node.meta_get("bigquery_name") is None:
        unsupported(node, "CAST to a time with a format")  # sqlglot does not keep the target type of such a cast
    shape = constant_text(node.args.get("format"))
    return shape if shape is not None else unsupported(node, "A format that is no literal")
