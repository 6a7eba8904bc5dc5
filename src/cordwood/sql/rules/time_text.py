"""Times as text: FORMAT_TIMESTAMP and similar functions, CAST(… AS STRING), and times in JSON, element by element."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_text import (
    ISO_TIME,
    EngineFormat,
    fraction_digits,
    letter_case,
    literal_format,
    merge_formats,
    split_cast_format,
    split_time_format,
)
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_text
from cordwood.sql.datatypes import kind_of
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.nodes import internal_function
from cordwood.sql.rules.vocabulary import Vocabulary


class TimeTextSql(Protocol):
    """An engine's SQL for times as text; in templates @a is the wall clock to print, and @b the same time in UTC."""

    # The engine's letters of the elements that its own function prints as BigQuery does, and templates of others.
    letters: Mapping[str, str]
    parts: Mapping[str, str]
    # The offset of a wall clock from UTC in minutes; its sign, and its hours and minutes with two digits each.
    offset: str
    sign: str
    hours: str
    minutes: str
    # Three or six fractional digits with a point, or none.
    subsecond: str
    # The engine's own function of a time and a format, and its formats of a clock, a day with a clock, and ISO 8601.
    formatted: str
    clock: str
    day_and_clock: str
    iso_clock: str
    # A text padded with blanks to nine characters, and the first character of a text.
    padded: str
    first_letter: str

    def written(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        """Return the value to format, and the type as which it is formatted."""
        ...

    def day_of(self, value: exp.Expr) -> exp.Expr:
        """Return a TIME as a wall clock of 1970-01-01."""
        ...

    def wall_clock_in(self, moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr: ...

    def seconds(self, digits: int) -> EngineFormat | str:
        """Return the seconds with so many fractional digits."""
        ...

    def fraction(self, digits: int) -> str:
        """Return so many fractional digits alone."""
        ...


class TimeText(msgspec.Struct, frozen=True):
    """The rules of times as text for one engine."""

    words: Vocabulary
    sql: TimeTextSql

    def _format(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node.args["format"], exp.Null):
            return exp.Null()
        format_text = constant_text(node.args["format"])
        if format_text is None:
            unsupported(node, "A format that is no literal")
        value, kind = self.sql.written(node)
        return self.format_time(value, kind, format_text, node.args.get("zone"))

    def format_time(self, value: exp.Expr, kind: Kind, format_text: str, zone: exp.Expr | None) -> exp.Expr:
        """Format the value as that type of time."""
        words, sql = self.words, self.sql
        if kind is Kind.TIME:
            utc = local = sql.day_of(words.read_as(value, Kind.TIME))
        elif kind is Kind.TIMESTAMP:
            moment = words.read_as(value, Kind.TIMESTAMP)
            utc = words.utc_wall_clock(moment)
            local = sql.wall_clock_in(copied(moment), zone) if zone is not None else utc
        else:
            utc = local = words.wall_clock(words.read_as(value, kind))
        elements = [self._element_text(element, text) for element, text in split_time_format(format_text, kind)]
        empty = words.conditional(words.is_missing("@a"), "NULL", "''")
        template, formats = self._join_elements(elements) if elements else (empty, [])
        return words.once(template, *((local, utc) if "@b" in template else (local,)), texts=formats)

    def _element_text(self, element: str | None, text: str) -> EngineFormat | str:
        if element is None:
            return literal_format(text)
        if element in self.sql.letters:
            return EngineFormat(f"%{self.sql.letters[element]}")
        digits = fraction_digits(element)
        if digits is not None:
            return self.sql.seconds(digits)
        return self.sql.parts[element] if element in self.sql.parts else literal_format(f"%{element}")

    def _join_elements(self, elements: Iterable[EngineFormat | str]) -> tuple[str, list[exp.Expr]]:
        """Return the template over a wall clock @a, and the format texts for its holes."""
        parts, formats = merge_formats(elements, lambda index: self.sql.formatted.format("@a", f"{{{index}}}"))
        return parts[0] if len(parts) == 1 else self.words.concat(*parts), formats

    def cast_text(self, value: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
        """Return a time as CAST prints it; a TIMESTAMP with its offset."""
        words, sql, kind = self.words, self.sql, kind_of(value)
        if kind is Kind.DATE:
            return fragment(words.as_text("{0}"), value)
        if kind is Kind.TIME:
            return self._printed(sql.clock, sql.day_of(value))
        if kind is not Kind.TIMESTAMP:
            return self._printed(sql.day_and_clock, words.wall_clock(value))
        if zone is None:
            return self._printed(sql.day_and_clock, words.utc_wall_clock(value), after=("'+00'",))
        minutes = words.conditional(f"{sql.offset} % 60 = 0", "''", words.concat("':'", sql.minutes))
        zoned = words.concat(sql.sign, sql.hours, minutes)
        local, utc = sql.wall_clock_in(copied(value), zone), words.utc_wall_clock(value)
        return self._printed(sql.day_and_clock, local, utc, after=(zoned,))

    def json_text(self, value: exp.Expr, kind: Kind) -> exp.Expr:
        """Return a time as JSON contains it, in quotes: with a T between date and clock, and Z for UTC."""
        if kind is Kind.TIME:
            return self._printed(self.sql.clock, self.sql.day_of(value), before=("'\"'",), after=("'\"'",))
        is_timestamp = kind is Kind.TIMESTAMP
        wall = self.words.utc_wall_clock(value) if is_timestamp else value
        end = "'Z\"'" if is_timestamp else "'\"'"
        return self._printed(self.sql.iso_clock, wall, before=("'\"'",), after=(end,))

    def _printed(
        self, format_text: str, *parts: exp.Expr, before: Iterable[str] = (), after: Iterable[str] = ()
    ) -> exp.Expr:
        """Return a wall clock by a format, followed by three or six fractional digits, or none."""
        clock = self.sql.formatted.format("@a", f"'{format_text}'")
        return self.words.once(self.words.concat(*before, clock, self.sql.subsecond, *after), *parts)

    def cast_by_format(self, node: exp.Expr, value: exp.Expr, format_text: str) -> exp.Expr:
        """Lower CAST(time AS STRING FORMAT …)."""
        kind = kind_of(value) or Kind.TIMESTAMP
        elements = [self._cast_element(element, text) for element, text in split_cast_format(node, format_text, kind)]
        local = self.sql.day_of(value) if kind is Kind.TIME else self.words.wall_clock(value)
        template, formats = self._join_elements(elements) if elements else ("''", [])
        return self.words.once(template, local, texts=formats)

    def _cast_element(self, element: str | None, text: str) -> EngineFormat | str:
        if element is None:
            return literal_format(text)
        digits = fraction_digits(element)
        if digits is not None:
            return self.sql.fraction(digits)
        case, letter = letter_case(element, text), self.sql.letters[element]
        element_text = self.sql.formatted.format("@a", f"'%{letter}'")
        if "." in text:
            element_text = self.words.concat(self.sql.first_letter.format(element_text), "'.M.'")
        elif element == "A":
            element_text = self.sql.padded.format(element_text)
        elif case is None:
            return EngineFormat(f"%{letter}")
        return f"{case or ''}({element_text})"

    def _iso_time(self, node: exp.Expr) -> exp.Expr:
        return self.format_time(node.expressions[0], Kind.TIMESTAMP, ISO_TIME, None)

    def rules(self) -> RuleSet:
        return RuleSet(
            nodes={exp.TimeToStr: self._format}, by_name={internal_function("iso_time").upper(): self._iso_time}
        )
