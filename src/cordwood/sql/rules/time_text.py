"""Times as text: the formats of FORMAT_TIMESTAMP, PARSE_TIMESTAMP and CAST, and the SQL for each element of a format.

To write a time, its format is split into elements, and adjacent elements that an engine can format itself are merged.
To read a time, its format is converted to a regular expression, and SQL of the engine computes a date and a time of day
from the groups of its match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import (
    LoweringRule,
    RuleSet,
    fragment_node,
    mark_null_on_error,
    raise_unsupported,
    returns_null_on_error,
    string_literal_node,
)
from cordwood.sql.nodes import constant_text, internal_function_name
from cordwood.sql.rules.times import is_utc
from cordwood.sql.rules.vocabulary import CommonSql

# Either a format element with its spelling in the format (empty where the spelling is not needed), or None with the
# text between two elements.
FormatElement = tuple[str | None, str]

# The type of the time that is formatted, by the class of the node that sqlglot puts around the time.
KIND_BY_TIME_CAST_CLASS: Final[dict[type[exp.Expr], Kind]] = {
    exp.TsOrDsToDate: Kind.DATE,
    exp.TsOrDsToDatetime: Kind.DATETIME,
    exp.TsOrDsToTimestamp: Kind.TIMESTAMP,
    exp.TsOrDsToTime: Kind.TIME,
}

# The format of times in answers to queries in ClickHouse's dialect: ISO 8601 with microseconds, in UTC, without a zone.
_ISO_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%E6S"

_FORMAT_ELEMENT_PATTERN: Final = re.compile(r"%(E[z*]S?|E\d+S|E4Y|-?[A-Za-z%])|([^%]+)|(%)")

# The format elements (the letters after `%`) for the time of day, the time zone and the date. If a type has no such
# part, the element is printed unchanged as text: for a DATE, `%H` prints "%H".
_TIME_OF_DAY_ELEMENTS: Final = frozenset(("H", "I", "k", "l", "M", "p", "P", "R", "r", "S", "s", "T", "X", "E*S"))
_ZONE_ELEMENTS: Final = frozenset(("Z", "z", "Ez"))
_DATE_ELEMENTS: Final = frozenset("AaBbhCcDdeFGgjmQUuVWwxYyJs") | {"E4Y"}


def _split_time_format(format_string: str, kind: Kind) -> Iterator[FormatElement]:
    """Yield the elements of a format of FORMAT_TIMESTAMP and related functions, and the text between them.

    An element that this type does not have is yielded as text.
    """
    for match in _FORMAT_ELEMENT_PATTERN.finditer(_restore_bigquery_elements(format_string)):
        charge_nodes()
        element = match[1]
        if element is None or element == "%":
            yield None, match[2] or "%"
        elif _is_unsupported_element(element, kind):
            yield None, f"%{element}"
        else:
            yield element, ""


def _restore_bigquery_elements(format_string: str) -> str:
    """Return the format as the author wrote it: sqlglot has replaced some of BigQuery's elements by Python's."""
    return _remove_modifiers(format_string.replace("%S.%f", "%E6S").replace("%-d", "%e"))


def _remove_modifiers(format_string: str) -> str:
    """Remove the modifiers E and O of elements, such as `%Ey` and `%Od`, where they have no effect."""
    return re.sub(r"%E([CcxXyY])", r"%\1", re.sub(r"%O([deHImMSuUVwWy])", r"%\1", format_string))


def _is_unsupported_element(element: str, kind: Kind) -> bool:
    lacks_clock = kind is Kind.DATE and (element in _TIME_OF_DAY_ELEMENTS or element.endswith("S"))
    lacks_zone = kind is not Kind.TIMESTAMP and element in _ZONE_ELEMENTS
    return lacks_clock or lacks_zone or (kind is Kind.TIME and element in _DATE_ELEMENTS)


def _fraction_digit_count(element: str) -> int | None:
    """Return the number of fraction digits of an element such as `E3S`; None for other elements."""
    match = re.fullmatch(r"E(\d{1,3})S", element)
    return int(match[1]) if match else None


_ELEMENT_BY_CAST_ELEMENT: Final = dict(
    word.split("=")
    for word in (
        "YYYY=Y YY=y MM=m MON=b MONTH=B DD=d DDD=j DAY=A DY=a HH24=H HH12=I HH=I MI=M SS=S AM=p PM=p A.M.=p P.M.=p"
        " FF1=E1S FF2=E2S FF3=E3S FF4=E4S FF5=E5S FF6=E6S"
    ).split()
)
# The text that each zone element prints. It is constant, because CAST(… AS STRING FORMAT …) has them only in UTC.
_UTC_TEXT_BY_CAST_ELEMENT: Final = {"TZH": "+00", "TZM": "00"}
_ELEMENT_BY_CAST_ZONE_ELEMENT: Final = dict.fromkeys(_UTC_TEXT_BY_CAST_ELEMENT, "z")
_CAST_ELEMENT_PATTERN: Final = re.compile(
    "|".join(sorted(map(re.escape, (*_ELEMENT_BY_CAST_ELEMENT, *_UTC_TEXT_BY_CAST_ELEMENT)), key=len, reverse=True))
    + r'|"([^"]*)"|.',
    re.IGNORECASE | re.DOTALL,
)
_LETTER_CASE_ELEMENTS: Final = frozenset("bBaAp")


def _split_cast_format(node: exp.Expr, format_string: str, kind: Kind, *, is_in_utc: bool) -> Iterator[FormatElement]:
    """Yield the parts of a CAST's format as elements of FORMAT_TIMESTAMP, each with its spelling in the CAST.

    Here, the element `EnS` is only the fraction of the seconds, unlike in FORMAT_TIMESTAMP itself.
    """
    for match in _CAST_ELEMENT_PATTERN.finditer(format_string):
        charge_nodes()
        source_text = match[0]
        word = source_text.upper()
        if match[1] is not None:
            yield None, match[1]
        elif _is_unsupported_element(
            _ELEMENT_BY_CAST_ELEMENT.get(word, _ELEMENT_BY_CAST_ZONE_ELEMENT.get(word, "")), kind
        ):
            raise_unsupported(node, f"The format element '{source_text}' of a {kind}")
        elif word in _UTC_TEXT_BY_CAST_ELEMENT and not is_in_utc:
            raise_unsupported(node, f"The format element '{source_text}' with AT TIME ZONE")
        elif word in _ELEMENT_BY_CAST_ELEMENT:
            yield _ELEMENT_BY_CAST_ELEMENT[word], source_text
        elif word not in _UTC_TEXT_BY_CAST_ELEMENT and source_text.isalnum():
            raise_unsupported(node, f"The format element '{source_text}'")
        else:
            yield None, _UTC_TEXT_BY_CAST_ELEMENT.get(word, source_text)


def _letter_case(element: str, source_text: str) -> str | None:
    """Return the letter case in which an element prints a name, such as that of a month.

    It is the case of `source_text`, the element's spelling: "upper", "lower", or None for a name in mixed case.
    """
    if element not in _LETTER_CASE_ELEMENTS:
        return None
    if source_text[0].islower():
        return "lower"
    return "upper" if source_text.isupper() else None


class EngineFormat(msgspec.Struct, frozen=True):
    """A part of a time format that the engine's own function can print: text or elements that it supports."""

    format_string: str


def _merge_adjacent_formats(
    parts: Iterable[EngineFormat | str], call: Callable[[int], str]
) -> tuple[list[str], list[exp.Expr]]:
    """Merge adjacent parts that one call of the engine's function can print.

    Return the templates of all parts, and a list of the formats that the calls use. `call` returns the template of a
    call of the engine's function, given the index of its format in this list.
    """
    templates: list[str] = []
    formats: list[exp.Expr] = []
    for is_engine_format, run in groupby(parts, lambda part: isinstance(part, EngineFormat)):
        if is_engine_format:
            templates.append(call(len(formats)))
            formats.append(
                string_literal_node("".join(part.format_string for part in run if isinstance(part, EngineFormat)))
            )
        else:
            templates += [part for part in run if isinstance(part, str)]
    return templates, formats


def _literal_format(text: str) -> EngineFormat:
    """Return plain text as a format for the engine's function, in which each percent sign is doubled."""
    return EngineFormat(text.replace("%", "%%"))


MONTH_NAMES: Final = "january february march april may june july august september october november december".split()
DAY_NAMES: Final = "monday tuesday wednesday thursday friday saturday sunday".split()


def _name_or_abbreviation_pattern(words: list[str]) -> str:
    return "(" + "|".join(f"{word[:3]}(?:{word[3:]})?" if len(word) > 3 else word for word in words) + ")"


_TWO_DIGIT_PATTERN: Final = r"(\d{1,2})"
_ZONE_OFFSET_GROUP_PATTERN: Final = r"([+-]\d{1,2}:?\d{0,2}|z)"
# `\v` is listed because RE2's `\s` does not include the vertical tab.
_SPACES_PATTERN: Final = r"[\s\v]*"

# The regular expression of each element, in which a group captures the element's value.
_PATTERN_BY_ELEMENT: Final = {
    "Y": r"([+-]?\d{1,4})",
    "E4Y": r"(\d{4})",
    "G": r"(\d{1,4})",
    "C": r"(0\d{2}|\d{1,2})",
    **dict.fromkeys("ymHIMSUWVg", _TWO_DIGIT_PATTERN),
    **dict.fromkeys("dekl", r"\s*(\d{1,2})"),
    "j": r"(\d{1,3})",
    "u": "([1-7])",
    "w": "([0-6])",
    "Q": "([1-4])",
    **dict.fromkeys("bBh", _name_or_abbreviation_pattern(MONTH_NAMES)),
    **dict.fromkeys("aA", _name_or_abbreviation_pattern(DAY_NAMES)),
    "p": "(am|pm)",
    "s": r"([+-]?\d{1,18})",
    **dict.fromkeys(("z", "Ez"), _ZONE_OFFSET_GROUP_PATTERN),
    "Z": r"([a-z0-9_/+:-]+)",
    **dict.fromkeys("nt", _SPACES_PATTERN),
    "%": "%",
}

# Elements that are parsed in the same way as another element.
_CANONICAL_ELEMENT_BY_EQUIVALENT: Final = {
    "e": "d",
    "k": "H",
    "l": "I",
    "B": "b",
    "h": "b",
    "A": "a",
    "E4Y": "Y",
    "Ez": "z",
}
_FORMAT_BY_NUMERIC_ABBREVIATION: Final = {
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "R": "%H:%M",
}
_FORMAT_BY_ABBREVIATION: Final = {**_FORMAT_BY_NUMERIC_ABBREVIATION, "c": "%a %b %e %H:%M:%S %Y", "r": "%I:%M:%S %p"}

_PARSED_ELEMENT_PATTERN: Final = re.compile(
    r"%(E[Ccx XyY]|O[a-zA-Z]|E\*S|E\d+S|E4Y|Ez|-?[A-Za-z%])|(\s+)|(.)", re.DOTALL
)
_SECONDS_ELEMENT_PATTERN: Final = re.compile(r"E(\d+|\*)S")

_UNSUPPORTED_ELEMENTS_BY_KIND: Final = {
    Kind.DATE: frozenset("HIMSpszZ"),
    Kind.TIME: frozenset("YmdybjCGUVWaszZuwQ"),
    Kind.DATETIME: frozenset("zZ"),
}


class TimeFormatRegex(msgspec.Struct):
    """The regular expression of a time format, and the groups that capture the elements.

    `pattern_parts` are the parts of the regular expression, one for each element or text. `group_count` is the number
    of groups. `group_index_by_element` has the index, counted from 1, of the last group that captures an element.
    `unknown_element` is the first element that is not known, if any.
    """

    pattern_parts: list[str] = []
    group_count: int = 0
    group_index_by_element: dict[str, int] = msgspec.field(default_factory=dict)
    unknown_element: str | None = None

    @property
    def pattern(self) -> str:
        return "".join(self.pattern_parts)

    def unsupported_element(self, kind: Kind) -> str | None:
        """Return the first element of the format that values of this type do not have, such as an hour of a DATE."""
        return next(
            (
                element
                for element in self.group_index_by_element
                if element in _UNSUPPORTED_ELEMENTS_BY_KIND.get(kind, ())
            ),
            None,
        )

    def add_element(self, element: str, pattern: str) -> None:
        self.pattern_parts.append(pattern)
        if "(" in pattern.replace("(?:", ""):
            self.group_count += 1
            self.group_index_by_element[_CANONICAL_ELEMENT_BY_EQUIVALENT.get(element, element)] = self.group_count


def _parse_time_format(format_string: str) -> TimeFormatRegex:
    """Return the regular expression of a format, up to the first unknown element if there is one."""
    format_pattern = TimeFormatRegex()
    for element, literal_pattern in _split_parsing_format(format_string):
        if element is None:
            format_pattern.pattern_parts.append(literal_pattern)
        elif seconds := _SECONDS_ELEMENT_PATTERN.fullmatch(element):
            format_pattern.add_element("S", _seconds_pattern(seconds[1]))
        elif element in _PATTERN_BY_ELEMENT:
            format_pattern.add_element(element, _PATTERN_BY_ELEMENT[element])
        else:
            format_pattern.unknown_element = element
            break
    return format_pattern


def _split_parsing_format(format_string: str) -> Iterator[tuple[str | None, str]]:
    """Yield the parts of a format: an element, or None with the regular expression for text between elements."""
    # Undo sqlglot's conversion of some elements to Python's elements.
    format_string = format_string.split("\0", 1)[0].replace("%S.%f", "%E6S").replace("%-d", "%e")
    for match in _PARSED_ELEMENT_PATTERN.finditer(_expand_abbreviations(format_string)):
        charge_nodes()
        element, space, literal = match.groups()
        yield element, _SPACES_PATTERN if space is not None else re.escape(literal or "")


def _expand_abbreviations(format_string: str) -> str:
    """Replace each element that abbreviates several elements, such as `%F` for `%Y-%m-%d`, by these elements."""
    return re.sub(
        "%([" + "".join(_FORMAT_BY_ABBREVIATION) + "])",
        lambda match: _FORMAT_BY_ABBREVIATION[match[1]],
        _remove_modifiers(format_string),
    )


def _seconds_pattern(digits: str) -> str:
    """Return the pattern of seconds with up to `digits` fractional digits; `*` stands for any number of digits."""
    if digits == "0":
        return _TWO_DIGIT_PATTERN
    fraction = r"\d*" if digits == "*" else rf"\d{{0,{digits}}}"
    return rf"(\d{{1,2}}(?:\.{fraction})?)"


# The valid ranges of elements whose values the engines do not check themselves.
VALID_RANGE_BY_ELEMENT: Final = {"m": (1, 12), "d": (1, 31), "j": (1, 366), "H": (0, 23), "I": (1, 12), "M": (0, 59)}
_MICROSECONDS_BY_ELEMENT: Final = {"H": 3_600_000_000, "M": 60_000_000}


class TimeParsingSql(msgspec.Struct, frozen=True):
    """An engine's SQL for the steps of parsing a time. Arguments and results are templates.

    `parse_integer` converts a text of digits to an integer. `make_date` makes a date of year, month and day.
    `iso_weekday_number` is the number of a date's weekday, where Monday is 1, and `monday_of_week` is the Monday of a
    date's week. `name_position` takes a list of names and a text. It finds the name with the same first three letters
    as the text, and is the position of this name in the list, counted from 1. `units_to_duration` is the duration of a
    number of units, each of the given number of microseconds. `seconds_to_duration` is the duration of a text of
    seconds with a fraction. `sum_durations` is the time of day that is the sum of such durations.
    """

    parse_integer: Callable[[str], str]
    case_when: Callable[[str, str, str], str]
    make_date: Callable[[str, str, str], str]
    add_days: Callable[[str, str], str]
    iso_weekday_number: Callable[[str], str]
    monday_of_week: Callable[[str], str]
    name_position: Callable[[str, str], str]
    units_to_duration: Callable[[str, int], str]
    seconds_to_duration: Callable[[str], str]
    sum_durations: Callable[[Sequence[str]], str]


def _name_prefixes_sql(names: list[str]) -> str:
    """Return the first three letters of each name, as quoted SQL texts that are separated by commas."""
    return ", ".join(f"'{name[:3]}'" for name in names)


class ParsedElementSql(msgspec.Struct, frozen=True):
    """The SQL that reads the values of a format's elements from a parsed text.

    `template_by_element` has, for each element in the order of the format, the template of the text that its group
    captures.
    """

    template_by_element: Mapping[str, str]
    engine_sql: TimeParsingSql

    def number_sql(self, element: str) -> str:
        return self.engine_sql.parse_integer(self.template_by_element[element])

    def number_sql_or_default(self, element: str, otherwise: str) -> str:
        return self.number_sql(element) if element in self.template_by_element else otherwise

    def time_of_day_duration_sql(self) -> str:
        parts = [self._hour_duration_sql()] if self.template_by_element.keys() & {"H", "I"} else []
        parts += (
            [self.engine_sql.units_to_duration(self.number_sql("M"), _MICROSECONDS_BY_ELEMENT["M"])]
            if "M" in self.template_by_element
            else []
        )
        parts += (
            [self.engine_sql.seconds_to_duration(self.template_by_element["S"])]
            if "S" in self.template_by_element
            else []
        )
        return self.engine_sql.sum_durations(parts)

    def _hour_duration_sql(self) -> str:
        if "H" in self.template_by_element:
            return self.engine_sql.units_to_duration(self.number_sql("H"), _MICROSECONDS_BY_ELEMENT["H"])
        hour = f"{self.number_sql('I')} % 12"
        if "p" in self.template_by_element:
            is_afternoon = f"lower({self.template_by_element['p']}) = 'pm'"
            hour += f" + {self.engine_sql.case_when(is_afternoon, '12', '0')}"
        return self.engine_sql.units_to_duration(f"({hour})", _MICROSECONDS_BY_ELEMENT["H"])

    def date_sql(self) -> str:
        if "G" in self.template_by_element:
            return self._iso_week_date_sql()
        if self.template_by_element.keys() & {"U", "W"} and self.template_by_element.keys() & {"Y", "y"}:
            return self._week_date_sql()
        if "j" in self.template_by_element:
            return self.engine_sql.add_days(
                self.engine_sql.make_date(self._year_sql(), "1", "1"), f"{self.number_sql('j')} - 1"
            )
        return self.engine_sql.make_date(self._year_sql(), self._month_sql(), self.number_sql_or_default("d", "1"))

    def _year_sql(self) -> str:
        short = self.number_sql_or_default("y", "")
        if "Y" in self.template_by_element:
            return self.number_sql("Y")
        if "C" in self.template_by_element:
            return f"({self.number_sql('C')} * 100{' + ' + short if short else ''})"
        return f"({short} + {self.engine_sql.case_when(f'{short} < 69', '2000', '1900')})" if short else "1970"

    def _month_sql(self) -> str:
        """Return SQL for the month, from the format's last element for a month or quarter; January if there is none."""
        last = next(
            (element for element in reversed(list(self.template_by_element)) if element in ("m", "b", "Q")), None
        )
        if last == "b":
            return self.engine_sql.name_position(_name_prefixes_sql(MONTH_NAMES), self.template_by_element["b"])
        if last == "Q":
            return f"({self.number_sql('Q')} * 3 - 2)"
        return self.number_sql_or_default("m", "1")

    def _days_after_monday_sql(self, first: int) -> str:
        """Return SQL for the weekday, as the number of days after Monday; `first` if the format has no weekday."""
        if "u" in self.template_by_element:
            return f"({self.number_sql('u')} - 1)"
        if "w" in self.template_by_element:
            return f"(({self.number_sql('w')} + 6) % 7)"
        if "a" in self.template_by_element:
            return (
                f"({self.engine_sql.name_position(_name_prefixes_sql(DAY_NAMES), self.template_by_element['a'])} - 1)"
            )
        return str(first)

    def _iso_week_date_sql(self) -> str:
        monday = self.engine_sql.monday_of_week(self.engine_sql.make_date(self.number_sql("G"), "1", "4"))
        return self.engine_sql.add_days(
            monday, f"({self.number_sql_or_default('V', '1')} - 1) * 7 + {self._days_after_monday_sql(0)}"
        )

    def _week_date_sql(self) -> str:
        """Return SQL for a day in the week %U or %W: the format's weekday, or else the first day of the week.

        Week 1 begins with the year's first Sunday (%U) or Monday (%W); the days before it are week 0.
        """
        letter, days_before = ("U", 6) if "U" in self.template_by_element else ("W", 0)
        new_year = self.engine_sql.make_date(self._year_sql(), "1", "1")
        first = self.engine_sql.add_days(
            new_year, f"(7 + {days_before} - ({self.engine_sql.iso_weekday_number(new_year)} - 1)) % 7"
        )
        day = f"(({self._days_after_monday_sql(days_before)} - {days_before} + 7) % 7)"
        return self.engine_sql.add_days(first, f"({self.number_sql(letter)} - 1) * 7 + {day}")


TimeParserBuilder = Callable[[exp.Expr, TimeFormatRegex, Kind], exp.Expr]


def time_parsing_rules(assemble: TimeParserBuilder, unsupported_elements: frozenset[str] = frozenset()) -> RuleSet:
    """Return the lowering rules of functions that parse times; the engine cannot parse `unsupported_elements`."""

    def rule_for(kind: Kind) -> LoweringRule:
        def rule(node: exp.Expr) -> exp.Expr:
            if node.args.get("safe"):
                mark_null_on_error(node)
            if isinstance(node.args.get("format"), exp.Null) or isinstance(node.this, exp.Null):
                return exp.Null()
            format_pattern = _parse_time_format(_constant_format(node, kind))
            if format_pattern.unknown_element is not None:
                return (
                    exp.Null()
                    if returns_null_on_error(node)
                    else raise_unsupported(node, f"The format element %{format_pattern.unknown_element}")
                )
            unsupported_element = next(
                (element for element in format_pattern.group_index_by_element if element in unsupported_elements), None
            )
            if unsupported_element is not None:
                raise_unsupported(node, f"The format element %{unsupported_element}")
            foreign_element = format_pattern.unsupported_element(kind)
            if foreign_element is not None:
                raise_unsupported(node, f"The element %{foreign_element} for {kind}")
            return assemble(node, format_pattern, kind)

        return rule

    kinds = {
        exp.StrToDate: Kind.DATE,
        exp.StrToTime: Kind.TIMESTAMP,
        exp.ParseDatetime: Kind.DATETIME,
        exp.ParseTime: Kind.TIME,
    }
    return RuleSet(by_node_class={node: rule_for(kind) for node, kind in kinds.items()})


def _constant_format(node: exp.Expr, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP and node.meta_get("bigquery_name") is None:
        raise_unsupported(node, "CAST to a time with a format")  # sqlglot does not keep the target type of such a cast
    format_string = constant_text(node.args.get("format"))
    return format_string if format_string is not None else raise_unsupported(node, "A format that is not a literal")


class TimePrinterSql(Protocol):
    """An engine's SQL for times as text.

    In templates, @a is the date and time to print, without a zone (a wall-clock time). @b is the same time in UTC.
    """

    # The engine's letters for the elements that its own function prints as BigQuery does, and templates for the other
    # elements.
    engine_letter_by_element: Mapping[str, str]
    element_templates: Mapping[str, str]
    # Templates of the offset of @a from UTC: the offset in minutes; then its sign, its hours and its minutes as text.
    # The hours and the minutes have two digits each.
    offset_in_minutes_template: str
    offset_sign_template: str
    offset_hours_template: str
    offset_minutes_part_template: str
    # A point and three or six fractional digits of the second, or nothing if the fraction is zero.
    fraction_template_if_not_zero: str
    # The template that calls the engine's own function with a time and a format, and three formats for this function:
    # for a time of day, for a date with a time of day, and for ISO 8601.
    format_call_template: str
    time_of_day_format: str
    date_and_time_format: str
    iso_format: str
    # Templates that pad a text with blanks to nine characters, and that return the first character of a text.
    pad_template: str
    first_letter_template: str

    def formatted_value_and_kind(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        """Return the time that a function such as FORMAT_TIMESTAMP formats, and the type as which it is formatted."""
        ...

    def time_to_wall_clock(self, value: exp.Expr) -> exp.Expr:
        """Convert a TIME to a date and time without a zone, on the day 1970-01-01."""
        ...

    def to_zone_wall_clock(self, moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr: ...

    def seconds_format(self, digits: int) -> EngineFormat | str:
        """Return the engine's format, or a template, that prints seconds with this number of fractional digits."""
        ...

    def fraction_template(self, digits: int) -> str:
        """Return the template that prints only the fraction of the seconds, with this number of digits."""
        ...


class TimePrinter(msgspec.Struct, frozen=True):
    """The rules of one engine for printing times as text."""

    common_sql: CommonSql
    engine_sql: TimePrinterSql

    def _translate_format(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node.args["format"], exp.Null):
            return exp.Null()
        format_text = constant_text(node.args["format"])
        if format_text is None:
            raise_unsupported(node, "A format that is not a literal")
        value, kind = self.engine_sql.formatted_value_and_kind(node)
        return self.format_time(value, kind, format_text, node.args.get("zone"))

    def format_time(self, value: exp.Expr, kind: Kind, format_text: str, zone: exp.Expr | None) -> exp.Expr:
        """Print a value of the type `kind` by the format; for a TIMESTAMP, in the zone."""
        words, sql = self.common_sql, self.engine_sql
        if kind is Kind.TIME:
            utc = local = sql.time_to_wall_clock(words.convert_implicitly(value, Kind.TIME))
        elif kind is Kind.TIMESTAMP:
            moment = words.convert_implicitly(value, Kind.TIMESTAMP)
            utc = words.timestamp_to_utc_wall_clock(moment)
            local = sql.to_zone_wall_clock(copy_tree(moment), zone) if zone is not None else utc
        else:
            utc = local = words.time_to_utc_wall_clock(words.convert_implicitly(value, kind))
        elements = [self._print_element(element, text) for element, text in _split_time_format(format_text, kind)]
        empty = words.case_when(words.is_null("@a"), "NULL", "''")
        template, formats = self._join_elements(elements) if elements else (empty, [])
        return words.fill_template(template, *((local, utc) if "@b" in template else (local,)), texts=formats)

    def _print_element(self, element: str | None, text: str) -> EngineFormat | str:
        if element is None:
            return _literal_format(text)
        if element in self.engine_sql.engine_letter_by_element:
            return EngineFormat(f"%{self.engine_sql.engine_letter_by_element[element]}")
        digits = _fraction_digit_count(element)
        if digits is not None:
            return self.engine_sql.seconds_format(digits)
        return (
            self.engine_sql.element_templates[element]
            if element in self.engine_sql.element_templates
            else _literal_format(f"%{element}")
        )

    def _join_elements(self, elements: Iterable[EngineFormat | str]) -> tuple[str, list[exp.Expr]]:
        """Return a template that prints the format elements of the time @a, and the formats for its placeholders."""
        parts, formats = _merge_adjacent_formats(
            elements, lambda index: self.engine_sql.format_call_template.format("@a", f"{{{index}}}")
        )
        return parts[0] if len(parts) == 1 else self.common_sql.concat(*parts), formats

    def print_as_cast(self, value: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
        """Return a time as CAST prints it; a TIMESTAMP is printed with its offset from UTC."""
        words, sql, kind = self.common_sql, self.engine_sql, kind_of(value)
        if kind is Kind.DATE:
            return fragment_node(words.as_text("{0}"), value)
        if kind is Kind.TIME:
            return self._print_wall_clock(sql.time_of_day_format, sql.time_to_wall_clock(value))
        if kind is not Kind.TIMESTAMP:
            return self._print_wall_clock(sql.date_and_time_format, words.time_to_utc_wall_clock(value))
        if zone is None:
            return self._print_wall_clock(
                sql.date_and_time_format, words.timestamp_to_utc_wall_clock(value), after=("'+00'",)
            )
        minutes = words.case_when(
            f"{sql.offset_in_minutes_template} % 60 = 0", "''", words.concat("':'", sql.offset_minutes_part_template)
        )
        zoned = words.concat(sql.offset_sign_template, sql.offset_hours_template, minutes)
        local, utc = sql.to_zone_wall_clock(copy_tree(value), zone), words.timestamp_to_utc_wall_clock(value)
        return self._print_wall_clock(sql.date_and_time_format, local, utc, after=(zoned,))

    def print_as_json(self, value: exp.Expr, kind: Kind) -> exp.Expr:
        """Return a time as a quoted JSON text, such as "2026-01-02T03:04:05Z"; only a TIMESTAMP has the Z (UTC)."""
        if kind is Kind.TIME:
            return self._print_wall_clock(
                self.engine_sql.time_of_day_format,
                self.engine_sql.time_to_wall_clock(value),
                before=("'\"'",),
                after=("'\"'",),
            )
        is_timestamp = kind is Kind.TIMESTAMP
        wall = self.common_sql.timestamp_to_utc_wall_clock(value) if is_timestamp else value
        end = "'Z\"'" if is_timestamp else "'\"'"
        return self._print_wall_clock(self.engine_sql.iso_format, wall, before=("'\"'",), after=(end,))

    def _print_wall_clock(
        self, format_text: str, *parts: exp.Expr, before: Iterable[str] = (), after: Iterable[str] = ()
    ) -> exp.Expr:
        """Return SQL that prints `@a`, a date and time without a zone, by the format.

        Three or six fractional digits of the second are appended, unless the fraction is zero. `before` and `after` are
        SQL texts that are added at the ends.
        """
        clock = self.engine_sql.format_call_template.format("@a", f"'{format_text}'")
        return self.common_sql.fill_template(
            self.common_sql.concat(*before, clock, self.engine_sql.fraction_template_if_not_zero, *after), *parts
        )

    def print_by_cast_format(
        self, node: exp.Expr, value: exp.Expr, format_text: str, zone: exp.Expr | None = None
    ) -> exp.Expr:
        """Translate CAST(time AS STRING FORMAT …); a TIMESTAMP is printed in the zone, or else in UTC."""
        kind = kind_of(value) or Kind.TIMESTAMP
        is_in_utc = zone is None or is_utc(zone)
        elements = [
            self._print_cast_element(element, text)
            for element, text in _split_cast_format(node, format_text, kind, is_in_utc=is_in_utc)
        ]
        if zone is not None:
            local = self.engine_sql.to_zone_wall_clock(value, zone)
        elif kind is Kind.TIME:
            local = self.engine_sql.time_to_wall_clock(value)
        else:
            local = self.common_sql.time_to_utc_wall_clock(value)
        template, formats = self._join_elements(elements) if elements else ("''", [])
        return self.common_sql.fill_template(template, local, texts=formats)

    def _print_cast_element(self, element: str | None, text: str) -> EngineFormat | str:
        if element is None:
            return _literal_format(text)
        digits = _fraction_digit_count(element)
        if digits is not None:
            return self.engine_sql.fraction_template(digits)
        case, letter = _letter_case(element, text), self.engine_sql.engine_letter_by_element[element]
        element_text = self.engine_sql.format_call_template.format("@a", f"'%{letter}'")
        if "." in text:
            element_text = self.common_sql.concat(self.engine_sql.first_letter_template.format(element_text), "'.M.'")
        elif element == "A":
            element_text = self.engine_sql.pad_template.format(element_text)
        elif case is None:
            return EngineFormat(f"%{letter}")
        return f"{case or ''}({element_text})"

    def _translate_iso_time(self, node: exp.Expr) -> exp.Expr:
        return self.format_time(node.expressions[0], Kind.TIMESTAMP, _ISO_TIME_FORMAT, None)

    def rules(self) -> RuleSet:
        return RuleSet(
            by_node_class={exp.TimeToStr: self._translate_format},
            by_function_name={internal_function_name("iso_time").upper(): self._translate_iso_time},
        )
