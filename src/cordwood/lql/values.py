"""The parsers of parts of LQL clauses: words, quoted texts, paths, times after `t:`, and values after an operator."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from cordwood.errors import BadQuerySyntax
from cordwood.lql.query import (
    EventFieldPath,
    FieldFilter,
    FilterOperator,
    FilterValue,
    LevelRangeFilter,
    Moment,
    NullValue,
    Or,
    Period,
    QuotedText,
    RangeFilter,
    RelativeTime,
    RelativeTimeKind,
    TimeUnit,
    UnquotedText,
)
from cordwood.model.timestamps import datetime_from_micros
from cordwood.sql.diagnostics import span_at

# A single key of a path, quoted or not.
_PATH_KEY_PATTERN: Final = r'(?:@?[\w$-]+|"(?:[^"\\]|\\.)*")'
_PATH_PATTERN: Final = re.compile(rf"{_PATH_KEY_PATTERN}(?:\.{_PATH_KEY_PATTERN})*")
# The maximum number of steps of a path. It is limited because each step that was never seen in events doubles the time
# for resolving the path.
MAX_PATH_STEPS: Final = 32
_ESCAPED_CHARACTER_PATTERN: Final = re.compile(r'\\(["\\])')


_PATH_STEP_PATTERN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.]+)')


class LqlTextScanner:
    """A scanner of an LQL text, with the current position.

    `parenthesis_depth` is the number of open parentheses around this position. If it is not 0, an unmatched `)` ends a
    word.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.parenthesis_depth = 0

    def syntax_error(self, message: str, hint: str | None = None, offset: int | None = None) -> BadQuerySyntax:
        return BadQuerySyntax(message, hint=hint, span=span_at(self.text, self.offset if offset is None else offset))

    @property
    def next_character(self) -> str:
        return self.text[self.offset : self.offset + 1]

    @property
    def is_at_end(self) -> bool:
        return self.offset >= len(self.text)

    @property
    def is_at_clause_boundary(self) -> bool:
        return (
            self.is_at_end
            or self.next_character.isspace()
            or (self.parenthesis_depth > 0 and self.next_character == ")")
        )

    def skip_blanks(self) -> None:
        while self.next_character.isspace():
            self.offset += 1

    def accept_literal(self, literal: str) -> bool:
        matches = self.text.startswith(literal, self.offset)
        if matches:
            self.offset += len(literal)
        return matches

    def peek_path(self) -> str | None:
        """Return the path that begins at the current position, without advancing; None if none begins there."""
        match = _PATH_PATTERN.match(self.text, self.offset)
        if match and match[0].count(".") >= MAX_PATH_STEPS:
            raise self.syntax_error(f"A path has more than {MAX_PATH_STEPS} steps.")
        return match[0] if match else None

    def scan_quoted_text(self) -> str:
        """Scan a text in double quotes, in which a backslash escapes a quote or a backslash."""
        opened = self.offset
        closing = self._find_closing_quote(opened)
        if closing < 0:
            raise self.syntax_error(
                "A quote is opened and never closed.", 'Close it with ", or write \\" for a quote itself.'
            )
        self.offset = closing + 1
        return unescape_quotes_and_backslashes(self.text[opened + 1 : closing])

    def scan_word(self, *, with_quotes: bool = False) -> str:
        """Scan up to the next blank, or up to the parenthesis that closes the enclosing group.

        If `with_quotes` is set, the word may contain quoted keys of paths. Otherwise, quotes inside the word must be
        escaped.
        """
        start, opened = self.offset, 0
        while not self.is_at_end and not self.next_character.isspace():
            if self.next_character == '"':
                self._skip_quoted_key(start, is_allowed=with_quotes)
                continue
            if self.next_character == ")" and opened == 0 and self.parenthesis_depth > 0:
                break
            opened = max(opened + (self.next_character == "(") - (self.next_character == ")"), 0)
            self.offset += 2 if self.text.startswith('\\"', self.offset) else 1
        return self.text[start : self.offset]

    def scan_parenthesised_value(self) -> str | None:
        """Scan a value in parentheses, which may contain blanks, and return the value with its parentheses.

        Return None without advancing if the word continues after the parentheses.
        """
        start = self.offset
        closing = self._find_closing_parenthesis()
        if closing is not None:
            self.offset = closing + 1
            if self.is_at_clause_boundary:
                return self.text[start : self.offset]
            self.offset = start
            if not any(map(str.isspace, self.text[start:closing])):
                return None
        raise self.syntax_error(
            "A parenthesis is opened here, and what it holds does not end with a value.", _QUOTE_HINT
        )

    def _find_closing_parenthesis(self) -> int | None:
        """Return the offset of the parenthesis that closes the one at the current position; None if none does."""
        opened, offset = 0, self.offset
        while offset < len(self.text):
            opened += (self.text[offset] == "(") - (self.text[offset] == ")")
            if opened == 0:
                return offset
            offset += 2 if self.text[offset] == "\\" else 1
        return None

    def _skip_quoted_key(self, start: int, *, is_allowed: bool) -> None:
        if not is_allowed:
            word = self.text[start : self.offset]
            raise self.syntax_error(
                f"There is a quote inside the word {word[:40]}.", 'Put a space before it, or write \\".'
            )
        closing = self._find_closing_quote(self.offset)
        if closing < 0:
            raise self.syntax_error("A quote is opened and never closed.")
        self.offset = closing + 1

    def _find_closing_quote(self, opened: int) -> int:
        offset = opened + 1
        while offset < len(self.text) and self.text[offset] != '"':
            offset += 2 if self.text.startswith(('\\"', "\\\\"), offset) else 1
        return offset if offset < len(self.text) else -1


_QUOTE_HINT: Final = "Put a text with blanks or parentheses in quotes."


def unescape_quotes_and_backslashes(text: str) -> str:
    return _ESCAPED_CHARACTER_PATTERN.sub(r"\1", text)


def parse_field_path(text: str, offset: int) -> EventFieldPath:
    """Convert a text that has the syntax of a path to a path; `m.` at its beginning stands for `metadata.`."""
    steps = [
        unescape_quotes_and_backslashes(quoted) if unquoted is None else unquoted
        for quoted, unquoted in _split_path_into_steps(text)
    ]
    if len(steps) > 1 and text.startswith("m."):
        steps[0] = "metadata"
    return EventFieldPath(tuple(steps), offset)


def _split_path_into_steps(text: str) -> list[tuple[str, str | None]]:
    return [(step[1] or "", step[2]) for step in _PATH_STEP_PATTERN.finditer(text)]


SyntaxErrorFactory = Callable[[str, str | None], Exception]

_ISO_TIME_PATTERN: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[Tt ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,9}))?)?)?"
    r"\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)
# A month, day, hour, minute or second of one digit in a time.
_SINGLE_DIGIT_PATTERN: Final = re.compile(r"(?<=[-Tt :])(\d)(?!\d)", re.ASCII)
_UNIX_TIME_PATTERN: Final = re.compile(r"\d{10}|\d{13}|\d{16}|\d{19}", re.ASCII)
_BRACED_RANGE_PATTERN: Final = re.compile(r"\{(\d+)\.\.(\d+)\}", re.ASCII)
_LAST_UNITS_PATTERN: Final = re.compile(r"last@(\d{0,6})([a-z]+)", re.ASCII)
_NOW_MINUS_RANGE_PATTERN: Final = re.compile(r"now-(\d{1,6})([a-z]+)\.\.now(?:-(\d{1,6})([a-z]+))?", re.ASCII)
_TIME_OF_DAY_PATTERN: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_SECONDS_PER_FIXED_LENGTH_UNIT: Final = {
    TimeUnit.SECOND: 1,
    TimeUnit.MINUTE: 60,
    TimeUnit.HOUR: 3600,
    TimeUnit.DAY: 86_400,
    TimeUnit.WEEK: 7 * 86_400,
}
_THIS_UNIT_PATTERN: Final = re.compile(r"this@([a-z]+)", re.ASCII)

_TIME_UNIT_BY_NAME: Final = {
    spelling: unit
    for unit, spellings in {
        TimeUnit.SECOND: "s sec secs second seconds",
        TimeUnit.MINUTE: "m min mins minute minutes",
        TimeUnit.HOUR: "h hr hrs hour hours",
        TimeUnit.DAY: "d day days",
        TimeUnit.WEEK: "w week weeks",
        TimeUnit.MONTH: "mm month months",
        TimeUnit.YEAR: "y year years",
    }.items()
    for spelling in spellings.split()
}
TIME_UNIT_HINT: Final = "Units are s, m, h, d, w, mm (months) and y, or their names."
_TIME_SYNTAX_HINT: Final = (
    "Write a day, a time, a Unix time, a range A..B, or a shorthand such as today, last@5m, now-2h..now-1h or 14:05."
)


def parse_time_unit(word: str) -> TimeUnit | None:
    return _TIME_UNIT_BY_NAME.get(word)


def parse_time_expression(text: str, fault: SyntaxErrorFactory) -> Period | RelativeTime:
    """Parse a period or a relative time; for any other text, raise the exception that `fault` returns."""
    shorthand = _read_relative_time(text, fault)
    if shorthand is not None:
        return shorthand
    low, high = _split_into_period_ends(text)
    period = Period(_parse_absolute_time_or_raise(low, fault), _parse_absolute_time_or_raise(high, fault))
    if period.first_moment.start_time > period.last_moment.start_time:
        raise fault("The range runs backwards: its end is before its start.", f"Write {high}..{low}.")
    return period


def parse_absolute_time(text: str) -> Moment | None:
    """Parse a day, a time or a Unix time; return None for other texts and for dates that do not exist."""
    if _UNIX_TIME_PATTERN.fullmatch(text):
        digits = text.ljust(16, "0") if len(text) < 16 else text[:16]
        return Moment(datetime_from_micros(int(digits)), None)
    match = _ISO_TIME_PATTERN.fullmatch(text)
    if match is None:
        return None
    try:
        return _iso_moment(match)
    except (ValueError, OverflowError):
        return None


def _iso_moment(match: re.Match[str]) -> Moment:
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    microsecond = int((fraction or "0").ljust(6, "0")[:6])
    clock = (int(hour or 0), int(minute or 0), int(second or 0), microsecond)
    time = datetime(int(year), int(month), int(day), *clock, tzinfo=_parse_utc_offset(zone))
    unit = (
        TimeUnit.DAY
        if hour is None
        else TimeUnit.HOUR
        if minute is None
        else TimeUnit.MINUTE
        if second is None
        else None
    )
    return Moment(time.astimezone(UTC), unit)


# A time in the notation of other query languages, such as `-5m` for the time 5 minutes ago. LQL refuses it, and the
# error suggests LQL's own notation.
_NEGATIVE_DURATION_PATTERN: Final = re.compile(r"-?(\d+(?:s|m|h|d|w))", re.IGNORECASE | re.ASCII)


def _parse_utc_offset(zone: str | None) -> timezone:
    if zone is None or zone in "Zz":
        return UTC
    sign = -1 if zone[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].lstrip(":") or 0)))


def _parse_absolute_time_or_raise(text: str, fault: SyntaxErrorFactory) -> Moment:
    moment = parse_absolute_time(text)
    if moment is None:
        since = _NEGATIVE_DURATION_PATTERN.fullmatch(text)
        hint = f"Write t:last@{since[1].lower()} for the time until now." if since else _TIME_SYNTAX_HINT
        raise fault(f"A time cannot be read here: {text[:60]}", hint)
    return moment


def _split_into_period_ends(text: str) -> tuple[str, str]:
    """Return the texts of both ends of a period such as `A..B`.

    In `2024-01-{01..03}`, the ends are 2024-01-01 and 2024-01-03. A text that is not a period is both ends.
    """
    if _BRACED_RANGE_PATTERN.search(text):
        return _replace_braces_with_range_end(text, 1), _replace_braces_with_range_end(text, 2)
    low, dots, high = text.partition("..")
    return (low, high) if dots else (text, text)


def _replace_braces_with_range_end(text: str, side: int) -> str:
    return _BRACED_RANGE_PATTERN.sub(lambda brace: _braced_range_end(brace, side), text)


def _braced_range_end(brace: re.Match[str], side: int) -> str:
    return brace[side] if brace.string[: brace.start()].endswith(".") else brace[side].zfill(2)


def _read_relative_time(text: str, fault: SyntaxErrorFactory) -> RelativeTime | None:
    if text in {RelativeTimeKind.NOW, RelativeTimeKind.TODAY, RelativeTimeKind.YESTERDAY}:
        return RelativeTime(RelativeTimeKind(text))
    if this := _THIS_UNIT_PATTERN.fullmatch(text):
        return RelativeTime(RelativeTimeKind.THIS_UNIT, _parse_time_unit_or_raise(this[1], fault))
    if last := _LAST_UNITS_PATTERN.fullmatch(text):
        return RelativeTime(RelativeTimeKind.LAST_UNITS, _parse_time_unit_or_raise(last[2], fault), int(last[1] or 1))
    if ago := _NOW_MINUS_RANGE_PATTERN.fullmatch(text):
        return _parse_now_minus_range(ago, fault)
    if clock := _TIME_OF_DAY_PATTERN.fullmatch(text):
        return RelativeTime(RelativeTimeKind.TIME_OF_DAY, TimeUnit.MINUTE, int(clock[1]) * 60 + int(clock[2]))
    if text.startswith(("last@", "this@")):
        raise fault(f"A shorthand cannot be read here: {text[:60]}", "Write it as in last@5m or this@week.")
    return None


def _parse_now_minus_range(match: re.Match[str], fault: SyntaxErrorFactory) -> RelativeTime:
    unit, count = _parse_time_unit_or_raise(match[2], fault), int(match[1])
    until = _parse_time_unit_or_raise(match[4], fault) if match[4] else TimeUnit.SECOND
    if unit not in _SECONDS_PER_FIXED_LENGTH_UNIT or until not in _SECONDS_PER_FIXED_LENGTH_UNIT:
        raise fault("Months and years are not of one length.", "Count in days: now-30d..now.")
    end_seconds = int(match[3] or 0) * _SECONDS_PER_FIXED_LENGTH_UNIT[until]
    if count * _SECONDS_PER_FIXED_LENGTH_UNIT[unit] < end_seconds:
        raise fault("The range runs backwards: its end is before its start.", "Write the earlier time first.")
    return RelativeTime(RelativeTimeKind.UNITS_AGO, unit, count, end_seconds)


def _parse_time_unit_or_raise(word: str, fault: SyntaxErrorFactory) -> TimeUnit:
    unit = parse_time_unit(word)
    if unit is None:
        raise fault(f"There is no unit of time called {word[:40]}.", TIME_UNIT_HINT)
    return unit


SEVERITY_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_NUMBER_PATTERN: Final = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
NUMBER_TEXT_PATTERN: Final = re.compile(_NUMBER_PATTERN, re.ASCII)
_NUMBER_RANGE_PATTERN: Final = re.compile(rf"{_NUMBER_PATTERN}\.\.{_NUMBER_PATTERN}", re.ASCII)
_ONE_SIDED_NUMBER_RANGE_PATTERN: Final = re.compile(rf"{_NUMBER_PATTERN}\.\.|\.\.{_NUMBER_PATTERN}", re.ASCII)
_OPERATOR_PATTERN: Final = re.compile(r">=|<=|@>~|@>|>|<|~")
_VALUE_LIST_PATTERN: Final = re.compile(r"\[[^\[\]]*\]")
_MAX_LIST_FILTER_VALUES: Final = 50
_REGEX_OPERATORS: Final = frozenset({FilterOperator.REGEX, FilterOperator.INCLUDES_REGEX})


def read_operator(scanner: LqlTextScanner) -> FilterOperator:
    match = _OPERATOR_PATTERN.match(scanner.text, scanner.offset)
    scanner.offset += len(match[0]) if match else 0
    return FilterOperator(match[0] if match else "")


def read_field_filter(
    scanner: LqlTextScanner, path: EventFieldPath
) -> FieldFilter | RangeFilter | LevelRangeFilter | Or:
    """Parse the operator and the value that follow `path:`."""
    operator = read_operator(scanner)
    start = scanner.offset
    if scanner.next_character == '"':
        return FieldFilter(path, operator, QuotedText(scanner.scan_quoted_text()), path.text_offset)
    if scanner.next_character == "(" and (parenthesised := scanner.scan_parenthesised_value()):
        text = parenthesised if operator in _REGEX_OPERATORS else parenthesised[1:-1]
        return FieldFilter(path, operator, QuotedText(text), path.text_offset)
    text = unescape_quotes(scanner.scan_word())
    if not text:
        raise scanner.syntax_error("A value is missing.", 'An empty text is written "".', start)
    if operator in _REGEX_OPERATORS:
        return FieldFilter(path, operator, QuotedText(text), path.text_offset)
    if operator is FilterOperator.EQUAL and _VALUE_LIST_PATTERN.fullmatch(text):
        return _read_list_filter(scanner, path, text, start)
    return _read_unquoted_filter(scanner, FieldFilter(path, operator, UnquotedText(text), path.text_offset), start)


def _read_list_filter(scanner: LqlTextScanner, path: EventFieldPath, text: str, start: int) -> Or:
    """Return the filter for `path:[200,404]`: the field equals one of the values in the list."""
    values = text[1:-1].split(",")
    if not all(values) or len(values) > _MAX_LIST_FILTER_VALUES:
        raise scanner.syntax_error(
            f"A list has 1 to {_MAX_LIST_FILTER_VALUES} values, and commas between them.",
            "Write it as in m.status:[200,404].",
            start,
        )
    return Or(tuple(FieldFilter(path, FilterOperator.EQUAL, UnquotedText(value), path.text_offset) for value in values))


def read_value_text(scanner: LqlTextScanner) -> str:
    """Read a literal text, quoted or unquoted."""
    return scanner.scan_quoted_text() if scanner.next_character == '"' else unescape_quotes(scanner.scan_word())


def unescape_quotes(word: str) -> str:
    r"""Return an unquoted word in which `\"` is replaced by a quote; other backslashes stay as they are."""
    return word.replace('\\"', '"')


def _read_unquoted_filter(
    scanner: LqlTextScanner, field: FieldFilter, start: int
) -> FieldFilter | RangeFilter | LevelRangeFilter:
    text = field.value.text if isinstance(field.value, UnquotedText) else ""
    ranged = _read_range_filter(scanner, field.path, text, start)
    if ranged is None:
        return FieldFilter(
            field.path, field.operator, _read_unquoted_value(scanner, field.operator, text, start), field.text_offset
        )
    if field.operator is FilterOperator.INCLUDES:
        return field
    if field.operator is not FilterOperator.EQUAL:
        raise scanner.syntax_error("A range cannot have an operator.", f"Write the path, a colon and {text}.", start)
    return ranged


def _read_unquoted_value(scanner: LqlTextScanner, operator: FilterOperator, text: str, start: int) -> FilterValue:
    if text != "NULL":
        return UnquotedText(text)
    if operator is not FilterOperator.EQUAL:
        raise scanner.syntax_error("NULL cannot have an operator.", 'The text NULL is written "NULL".', start)
    return NullValue()


def _read_range_filter(
    scanner: LqlTextScanner, path: EventFieldPath, text: str, start: int
) -> RangeFilter | LevelRangeFilter | None:
    if _ONE_SIDED_NUMBER_RANGE_PATTERN.fullmatch(text):
        raise scanner.syntax_error("A range has two ends.", "For one end use an operator, as in :>=200.", start)
    low, dots, high = text.partition("..")
    if dots and path.last_step == "level" and (low in SEVERITY_LEVELS or high in SEVERITY_LEVELS):
        return _read_level_range_filter(scanner, path, (low, high), start)
    is_forwards = _is_ascending_range(low, high, text)
    if is_forwards is None:
        return None
    _require_ascending_range(scanner, is_forwards, f"{high}..{low}", start)
    return RangeFilter(path, _pad_time(low), _pad_time(high), path.text_offset)


def _is_ascending_range(low: str, high: str, text: str) -> bool | None:
    """Return whether a range ends no earlier than it begins; None unless its ends are two numbers or two dates.

    Ends that look like dates but do not exist are compared as texts.
    """
    if _NUMBER_RANGE_PATTERN.fullmatch(text):
        return float(low) <= float(high)
    if not (_ISO_TIME_PATTERN.fullmatch(low) and _ISO_TIME_PATTERN.fullmatch(high)):
        return None
    first, last = parse_absolute_time(low), parse_absolute_time(high)
    return low <= high if first is None or last is None else first.start_time <= last.start_time


def _pad_time(text: str) -> str:
    """Return a time with two digits in each part, as in `2024-01-05` for `2024-1-5`; return other texts unchanged.

    A range over a field whose type is unknown compares texts, which are in the order of the times only if padded.
    """
    return _SINGLE_DIGIT_PATTERN.sub(r"0\1", text) if _ISO_TIME_PATTERN.fullmatch(text) else text


def _read_level_range_filter(
    scanner: LqlTextScanner, path: EventFieldPath, bounds: tuple[str, str], start: int
) -> LevelRangeFilter:
    for bound in bounds:
        if bound not in SEVERITY_LEVELS:
            raise scanner.syntax_error(
                f"There is no level called {bound[:40]}.", f"Levels are {', '.join(SEVERITY_LEVELS)}.", start
            )
    low, high = bounds
    _require_ascending_range(
        scanner, SEVERITY_LEVELS.index(low) <= SEVERITY_LEVELS.index(high), f"{high}..{low}", start
    )
    return LevelRangeFilter(path, low, high, path.text_offset)


def _require_ascending_range(scanner: LqlTextScanner, is_forwards: bool, reversed_range: str, start: int) -> None:  # noqa: FBT001 # the fact itself
    if not is_forwards:
        raise scanner.syntax_error("The range runs backwards.", f"Write {reversed_range}.", start)
