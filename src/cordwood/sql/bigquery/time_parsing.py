"""PARSE_TIMESTAMP and related functions: from a match's groups to a date and a time of day, in an engine's terms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_patterns import DAYS, MONTHS, FormatPattern, parse_time_format
from cordwood.sql.constants import constant_text
from cordwood.sql.lowering import Rule, RuleSet, is_safe, mark_safe, unsupported

# The valid range of elements; engines check any others.
BOUNDS: Final = {"m": (1, 12), "d": (1, 31), "j": (1, 366), "H": (0, 23), "I": (1, 12), "M": (0, 59)}
_MICROSECONDS: Final = {"H": 3_600_000_000, "M": 60_000_000}


class ParsingSql(Protocol):
    """An engine's expressions for the steps of parsing; arguments and results are templates."""

    def number(self, text: str) -> str:
        """Convert a text of digits to an integer."""
        ...

    def conditional(self, condition: str, then: str, otherwise: str) -> str: ...

    def date(self, year: str, month: str, day: str) -> str: ...

    def days_after(self, date: str, days: str) -> str: ...

    def weekday(self, date: str) -> str:
        """Return the day of the week, from 1 for Monday."""
        ...

    def monday(self, date: str) -> str:
        """Return the Monday of the date's week."""
        ...

    def name_position(self, names: Sequence[str], text: str) -> str:
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

    templates: Mapping[str, str]
    sql: ParsingSql

    def number(self, element: str) -> str:
        return self.sql.number(self.templates[element])

    def number_or(self, element: str, otherwise: str) -> str:
        return self.number(element) if element in self.templates else otherwise

    def time_of_day(self) -> str:
        parts = [self._hour()] if self.templates.keys() & {"H", "I"} else []
        parts += [self.sql.microseconds(self.number("M"), _MICROSECONDS["M"])] if "M" in self.templates else []
        parts += [self.sql.seconds(self.templates["S"])] if "S" in self.templates else []
        return self.sql.time_of_day(parts)

    def _hour(self) -> str:
        if "H" in self.templates:
            return self.sql.microseconds(self.number("H"), _MICROSECONDS["H"])
        hour = f"{self.number('I')} % 12"
        if "p" in self.templates:
            is_afternoon = f"lower({self.templates['p']}) = 'pm'"
            hour += f" + {self.sql.conditional(is_afternoon, '12', '0')}"
        return self.sql.microseconds(f"({hour})", _MICROSECONDS["H"])

    def date(self) -> str:
        if "G" in self.templates:
            return self._iso_week()
        if self.templates.keys() & {"U", "W"} and self.templates.keys() & {"Y", "y"}:
            return self._week()
        if "j" in self.templates:
            return self.sql.days_after(self.sql.date(self._year(), "1", "1"), f"{self.number('j')} - 1")
        return self.sql.date(self._year(), self._month(), self.number_or("d", "1"))

    def _year(self) -> str:
        short = self.number_or("y", "")
        if "Y" in self.templates:
            return self.number("Y")
        if "C" in self.templates:
            return f"({self.number('C')} * 100{' + ' + short if short else ''})"
        return f"({short} + {self.sql.conditional(f'{short} < 69', '2000', '1900')})" if short else "1970"

    def _month(self) -> str:
        """Return the month by the last of the elements for it; January without any."""
        last = next((element for element in reversed(list(self.templates)) if element in ("m", "b", "Q")), None)
        if last == "b":
            return self.sql.name_position([month[:3] for month in MONTHS], self.templates["b"])
        if last == "Q":
            return f"({self.number('Q')} * 3 - 2)"
        return self.number_or("m", "1")

    def _weekday(self, first: int) -> str:
        """Return the number of days after Monday; `first` if the format has no weekday."""
        if "u" in self.templates:
            return f"({self.number('u')} - 1)"
        if "w" in self.templates:
            return f"(({self.number('w')} + 6) % 7)"
        if "a" in self.templates:
            return f"({self.sql.name_position([day[:3] for day in DAYS], self.templates['a'])} - 1)"
        return str(first)

    def _iso_week(self) -> str:
        monday = self.sql.monday(self.sql.date(self.number("G"), "1", "4"))
        return self.sql.days_after(monday, f"({self.number_or('V', '1')} - 1) * 7 + {self._weekday(0)}")

    def _week(self) -> str:
        """Return the date of a week of %U or %W.

        Week 1 begins with the year's first Sunday (%U) or Monday (%W); the days before it are week 0.
        """
        letter, days_before = ("U", 6) if "U" in self.templates else ("W", 0)
        new_year = self.sql.date(self._year(), "1", "1")
        first = self.sql.days_after(new_year, f"(7 + {days_before} - ({self.sql.weekday(new_year)} - 1)) % 7")
        day = f"(({self._weekday(days_before)} - {days_before} + 7) % 7)"
        return self.sql.days_after(first, f"({self.number(letter)} - 1) * 7 + {day}")


Assemble = Callable[[exp.Expr, FormatPattern, Kind], exp.Expr]


def parsing_rules(assemble: Assemble, unsupported_elements: frozenset[str] = frozenset()) -> RuleSet:
    """Return the lowering rules of functions that parse times, for an engine that lacks `unsupported_elements`."""

    def rule_for(kind: Kind) -> Rule:
        def rule(node: exp.Expr) -> exp.Expr:
            if node.args.get("safe"):
                mark_safe(node)
            if isinstance(node.args.get("format"), exp.Null) or isinstance(node.this, exp.Null):
                return exp.Null()
            reading = parse_time_format(_constant_format(node, kind))
            if reading.unknown is not None:
                return exp.Null() if is_safe(node) else unsupported(node, f"The format element %{reading.unknown}")
            unsupported_element = next(
                (element for element in reading.last_groups if element in unsupported_elements), None
            )
            if unsupported_element is not None:
                unsupported(node, f"The format element %{unsupported_element}")
            foreign_element = reading.unsupported_element(kind)
            if foreign_element is not None:
                unsupported(node, f"The element %{foreign_element} for {kind}")
            return assemble(node, reading, kind)

        return rule

    kinds = {
        exp.StrToDate: Kind.DATE,
        exp.StrToTime: Kind.TIMESTAMP,
        exp.ParseDatetime: Kind.DATETIME,
        exp.ParseTime: Kind.TIME,
    }
    return RuleSet(nodes={node: rule_for(kind) for node, kind in kinds.items()})


def _constant_format(node: exp.Expr, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP and node.meta_get("bigquery_name") is None:
        unsupported(node, "CAST to a time with a format")  # sqlglot does not keep the target type of such a cast
    format_string = constant_text(node.args.get("format"))
    return format_string if format_string is not None else unsupported(node, "A format that is no literal")
