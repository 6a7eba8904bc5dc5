"""Literals of times and zones, date parts, and arithmetic with times; additions of times are left to each engine.

Times are checked against BigQuery's canonical form, and spelled in the form that every engine reads. Zones with a
constant offset from UTC are recognised, because they need no time zone database.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax
from cordwood.model.datatype import TIME_KINDS, Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import inherit, kind_of
from cordwood.sql.lowering import Rule, RuleSet, fragment, function_name, span_in_text, unsupported
from cordwood.sql.nodes import CONSTANT_KEY, Interval, constant_text, operation_of
from cordwood.sql.rules.vocabulary import Vocabulary

_DAY: Final = r"(\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)-(0?[1-9]|1[0-2])-(0?[1-9]|[12]\d|3[01])"
_CLOCK: Final = r"([01]?\d|2[0-3]):[0-5]?\d:([0-5]?\d|60)(\.\d{0,9})?"
_OFFSET: Final = r"[Zz]|[+-](0?\d|1[0-4])(:[0-5]?\d)?"

# A DATE may be followed by the rest of a TIMESTAMP, which is ignored.
_WITH_ZONE: Final = rf"{_DAY}([ Tt]{_CLOCK}({_OFFSET}| [A-Za-z][A-Za-z0-9_/+-]*)?)?"

# Used in the engines' regular expressions, whose syntax is RE2's. The number of days of a month is left to the engines.
CANONICAL: Final = {
    Kind.TIMESTAMP: _WITH_ZONE,
    Kind.DATETIME: rf"{_DAY}([ Tt]{_CLOCK})?",
    Kind.DATE: _WITH_ZONE,
    Kind.TIME: _CLOCK,
}

_MAX_SHOWN: Final = 40
_TIME_LITERAL: Final = re.compile(
    rf"(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)(?:(?P<between>[ Tt])(?P<clock>{_CLOCK}))?(?P<zone>{_OFFSET}| \D.*)?",
    re.ASCII,
)
_SHORT_OFFSET: Final = re.compile(r"([+-])(\d)(?!\d)")


def engine_text(text: str, kind: Kind) -> str | None:
    """Return the text in the form that every engine reads; None if it is not a valid time of this type."""
    if kind is Kind.TIME:
        return text if re.fullmatch(_CLOCK, text, re.ASCII) else None
    match = _TIME_LITERAL.fullmatch(text)
    if match is None or not _is_valid_date(match) or (kind is Kind.DATETIME and match["zone"]):
        return None
    return text[: match.end("day")] + _clock(match) + _zone(match)


def _clock(match: re.Match[str]) -> str:
    if match["clock"]:
        return f"{match['between'].upper()}{match['clock']}"
    return " 00:00:00" if match["zone"] else ""


def _zone(match: re.Match[str]) -> str:
    zone = match["zone"] or ""
    return zone if zone.startswith(" ") else _SHORT_OFFSET.sub(r"\g<1>0\2", zone.upper())


def _is_valid_date(match: re.Match[str]) -> bool:
    try:
        return len(match["year"]) == 4 and bool(date(*(int(match[part]) for part in ("year", "month", "day"))))
    except ValueError:
        return False


def needs_check(value: exp.Expr, kind: Kind) -> bool:
    """Return whether the text has to be validated at run time: it varies by row, or is a constant that is invalid."""
    text = constant_text(value)
    return value.find(exp.Column) is not None if text is None else engine_text(text, kind) is None


def invalid_message(value: exp.Expr, kind: Kind) -> str:
    """Return the error message for an invalid time; it quotes a constant text, but not values of events."""
    text = constant_text(value)
    return f"Invalid {kind}" if text is None else f'Invalid {kind}: "{text[:_MAX_SHOWN]}"'


def engine_spelling(value: exp.Expr, kind: Kind) -> str | None:
    """Return a constant time as engines spell it; None if it is spelled so already, invalid or not constant."""
    text = constant_text(value)
    engine_form = engine_text(text, kind) if text is not None else None
    return engine_form if engine_form != text else None


_KINDS_WITH_SECONDS: Final = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_LEAP_SECOND: Final = re.compile(r"(?:(\d{4})-(\d{1,2})-(\d{1,2})([ Tt]))?(\d{1,2}):(\d{1,2}):60(?:\.\d*)?(?!\d)")


def without_leap_second(value: exp.Expr, to: Kind) -> exp.Expr:
    """Return the cast's operand; a constant time with second 60 is respelled as the next minute."""
    text = constant_text(value)
    if text is None or ":60" not in text or to not in _KINDS_WITH_SECONDS or kind_of(value) is not Kind.STRING:
        return value
    respelled = _LEAP_SECOND.sub(_next_minute, text, count=1)
    literal = inherit(exp.Literal.string(respelled), value)
    literal.meta[CONSTANT_KEY] = respelled
    return literal


def _next_minute(match: re.Match[str]) -> str:
    year, month, day, separator, hour, minute = match.groups()
    try:
        written_minute = datetime(int(year or 2000), int(month or 1), int(day or 1), int(hour), int(minute))  # noqa: DTZ001 - a wall clock
        next_minute = written_minute + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return match[0]
    clock = next_minute.strftime("%H:%M:%S")
    return f"{next_minute.year:04d}-{next_minute:%m-%d}{separator}{clock}" if year else clock


_ZONE_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC: Final = frozenset(("UTC", "Z", "ETC/UTC", "GMT", "+0", "+00", "+00:00", "-00:00"))


def is_utc(zone: exp.Expr | None) -> bool:
    """Return whether the zone is UTC, which is the default."""
    name = constant_text(zone)
    return zone is None or (name is not None and name.upper() in _UTC)


def offset_minutes(zone: exp.Expr | None) -> int | None:
    """Return the offset east of UTC; None for a named zone and for a zone that is not constant."""
    name = constant_text(zone)
    match = _ZONE_OFFSET.fullmatch(name) if name else None
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes


# The zones where half an hour, not a whole one, is repeated when clocks are set back.
_HALF_HOURS: Final = frozenset(("AUSTRALIA/LORD_HOWE", "AUSTRALIA/LHI"))


def repeated_minutes(zone: exp.Expr | None) -> int:
    """Return by how many minutes the zone's clocks are set back, so that this stretch of time occurs twice."""
    return 30 if (constant_text(zone) or "").upper() in _HALF_HOURS else 60


# The units of constant length, in microseconds.
MICROSECONDS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}

_WEEKDAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_INTERVAL_UNITS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def unit_of(node: exp.Expr | None, fallback: str = "DAY") -> str:
    if isinstance(node, exp.WeekStart):
        return f"WEEK({node.this.name.upper()})"
    return (constant_text(node) or node.name).upper() if node is not None else fallback


def part_of(node: exp.Expr) -> str:
    """Return the date part of an EXTRACT."""
    return unit_of(node) if isinstance(node, exp.WeekStart) else node.sql("bigquery").upper().replace(" ", "")


def read_extract_part(node: exp.Expr) -> str:
    """Return the date part of an EXTRACT; raise QuerySyntax for one that the value's type does not have.

    Engines would return 0, the hour of midnight, for the hour of a DATE.
    """
    part, kind = part_of(node.this), kind_of(node.expression)
    parts = _EXTRACT_PARTS.get(kind) if kind else None
    if parts is not None and part not in parts:
        raise QuerySyntax(
            f"EXTRACT from {kind} does not support the {part} date part.",
            hint=f"It has: {', '.join(sorted(parts - _WEEKS))}.",
            span=span_in_text(node),
        )
    return part


def week_start(unit: str) -> int | None:
    """Return how many days after Monday a week of this unit begins; None if the unit is not a week."""
    if unit in ("ISOWEEK", "WEEK(MONDAY)"):
        return 0
    if unit == "WEEK":
        return 6
    return _WEEKDAYS.index(unit[5:-1]) if unit.startswith("WEEK(") and unit[5:-1] in _WEEKDAYS else None


def _interval_parts(node: exp.Expr, span: exp.Expr) -> list[tuple[str, str]]:
    """Return the units and numbers of an interval such as `'1-2 3' YEAR TO DAY`."""
    first, last = (_INTERVAL_UNITS.index(unit_of(span.args[key])) for key in ("this", "expression"))
    text = constant_text(node.this) or node.this.name
    numbers = _numbers(text)
    if len(numbers) != last - first + 1 or not all(map(_INTERVAL_NUMBER.fullmatch, numbers)):
        unsupported(node, f"The interval '{text}'")
    return list(zip(_INTERVAL_UNITS[first : last + 1], numbers, strict=True))


_INTERVAL_NUMBER: Final = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?")


def unit_count(text: str, node: exp.Expr) -> str:
    """Return the text of an interval of one unit as an SQL number; raise QuerySyntax if it is not a number."""
    match = _SIGNED_NUMBER.fullmatch(text.strip())
    if match is None:
        raise QuerySyntax(f"The interval '{text[:40]}' is not a number of units.", span=span_in_text(node))
    return match[1]


_SIGNED_NUMBER: Final = re.compile(r"\+?(-?[0-9]{1,18}(?:\.[0-9]{0,18})?)")


def _numbers(text: str) -> list[str]:
    """Split an interval's text into numbers. A sign applies to a whole group: years and months, days, or the clock."""
    numbers: list[str] = []
    for group in text.split():
        negative, digits = group.startswith("-"), group.lstrip("+-")
        numbers += [f"-{number}" if negative else number for number in digits.replace("-", ":").split(":")]
    return numbers


_CLOCK_UNITS: Final = frozenset(MICROSECONDS) - {"DAY"}
_DATE_UNITS: Final = frozenset(("DAY", "WEEK", "MONTH", "QUARTER", "YEAR"))
_TRUNCATION_UNITS: Final = _DATE_UNITS | {"ISOWEEK", "ISOYEAR", *(f"WEEK({day})" for day in _WEEKDAYS)}
# The units by which a type's values can be moved, to which they can be truncated, and in which differences are counted.
# Types that are not listed here take any unit.
_ADDED_UNITS: Final = {Kind.DATE: _DATE_UNITS, Kind.TIMESTAMP: frozenset(MICROSECONDS), Kind.TIME: _CLOCK_UNITS}
_TRUNCATED_UNITS: Final = {Kind.DATE: _TRUNCATION_UNITS, Kind.TIME: _CLOCK_UNITS}
_DIFFERENCE_UNITS: Final = {
    Kind.DATE: _TRUNCATION_UNITS,
    Kind.TIMESTAMP: frozenset(MICROSECONDS),
    Kind.TIME: _CLOCK_UNITS,
}
_UNITS: Final[Mapping[type[exp.Expr], Mapping[Kind, frozenset[str]]]] = {
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub), _ADDED_UNITS),
    **dict.fromkeys((exp.TimestampAdd, exp.TimestampSub, exp.TimeAdd, exp.TimeSub), _ADDED_UNITS),
    **dict.fromkeys((exp.DateTrunc, exp.DatetimeTrunc, exp.TimestampTrunc, exp.TimeTrunc), _TRUNCATED_UNITS),
    **dict.fromkeys((exp.DateDiff, exp.TimestampDiff, exp.TimeDiff), _DIFFERENCE_UNITS),
}
_DIFFERENCE_KIND: Final[Mapping[type[exp.Expr], Kind]] = {
    exp.DateDiff: Kind.DATE,
    exp.TimestampDiff: Kind.TIMESTAMP,
    exp.TimeDiff: Kind.TIME,
}


def _check_unit(rule: Rule) -> Rule:
    """Return the rule with a check that the unit is valid for the value's type, because engines do not check this."""

    def checked(node: exp.Expr) -> exp.Expr:
        argument_kind = kind_of(node.this)
        kind = (
            kind_of(node)
            if type(node) not in _DIFFERENCE_KIND
            else argument_kind
            if argument_kind in TIME_KINDS
            else _DIFFERENCE_KIND[type(node)]
        )
        unit = unit_of(node.args.get("unit"))
        units = _UNITS[type(node)].get(kind) if kind else None
        if units is not None and unit not in units and not isinstance(node.expression, exp.Interval):
            raise QuerySyntax(
                f"{function_name(node)} does not support the {unit} date part when the argument is {kind} type.",
                hint=f"It has: {', '.join(sorted(units - _WEEKS))}.",
                span=span_in_text(node),
            )
        return rule(node)

    return checked


def _are_timestamps(difference: exp.Expr) -> bool:
    """Return whether a difference is between two TIMESTAMPs."""
    return kind_of(difference.this) is Kind.TIMESTAMP is kind_of(difference.expression)


_WEEKS: Final = frozenset(unit for unit in _TRUNCATION_UNITS if "(" in unit)
_EXTRACT_PARTS: Final = {Kind.DATE: _TRUNCATION_UNITS | {"DAYOFWEEK", "DAYOFYEAR"}, Kind.TIME: _CLOCK_UNITS}


# Units whose length varies.
MONTH_UNITS: Final = frozenset({"MONTH", "QUARTER", "YEAR"})
_KIND_BY_BUCKET: Final = {
    "TIMESTAMP_BUCKET": Kind.TIMESTAMP,
    "DATETIME_BUCKET": Kind.DATETIME,
    "DATE_BUCKET": Kind.DATE,
}


class Times(msgspec.Struct, frozen=True):
    """The rules of times for one engine.

    `zoned` is the wall clock of a TIMESTAMP in a zone, and `unzoned` the reverse. `day_of` converts a TIME to a wall
    clock, and `to_kind` a wall clock to a type of time. `truncation` is the template that truncates the wall clock @a
    to a unit. `since_unit` is the template of the time, in microseconds, since the start of the unit that contains the
    wall clock {1}; its argument is the unit's length. `boundaries` is the template of the number of a unit's boundaries
    between the wall clocks {1} and {0}. `bucket` and `bucket_of_months` round @a down to a multiple of the width @b,
    counted from the origin @c. `span` is an interval of a number of one unit, `of_parts` an interval of several units.
    """

    words: Vocabulary
    zoned: Callable[[exp.Expr, exp.Expr | None], exp.Expr]
    unzoned: Callable[[exp.Expr, exp.Expr | None], exp.Expr]
    day_of: Callable[[exp.Expr], exp.Expr]
    to_kind: Callable[[exp.Expr, Kind], exp.Expr]
    truncation: Callable[[str, exp.Expr], str]
    truncated_time: Callable[[exp.Expr, str, exp.Expr], exp.Expr]
    since_unit: Callable[[int], str]
    boundaries: Callable[[str, exp.Expr], str]
    first_origin: str
    bucket: str
    bucket_of_months: str
    span: Callable[[exp.Expr, str, exp.Expr], exp.Expr]
    of_parts: Callable[[list[tuple[str, str]]], exp.Expr]
    of_text: Rule
    no_interval: str

    def _truncate(self, node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        unit, zone = unit_of(node.args.get("unit")), node.args.get("zone")
        value = self.words.read_as(node.this, kind)
        if kind is Kind.TIME:
            return self.truncated_time(value, unit, node)
        if zone is None or kind is not Kind.TIMESTAMP:
            wall = self.words.wall_clock(value)
            return self.to_kind(self.words.attempt(node, self.truncation(unit, node), wall), kind)
        if unit in MICROSECONDS and unit != "DAY":
            return self._truncate_clock(value, MICROSECONDS[unit], zone)
        return self.unzoned(self.words.attempt(node, self.truncation(unit, node), self.zoned(value, zone)), zone)

    def _truncate_clock(self, value: exp.Expr, size: int, zone: exp.Expr) -> exp.Expr:
        """Truncate a TIMESTAMP: subtract the time since the start of the unit on the zone's wall clock.

        Thus, if an hour occurs twice because clocks are set back, each occurrence is truncated to its own start.
        """
        truncated = self.words.moment_of(f"{self.words.micros('{0}')} - {self.since_unit(size)}")
        return fragment(truncated, value, self.zoned(copied(value), zone))

    def _timestamp_difference(self, node: exp.Expr) -> exp.Expr:
        """Lower TIMESTAMP_DIFF: the number of whole units between two times."""
        words, size = self.words, MICROSECONDS.get(unit_of(node.args.get("unit")))
        if size is None:
            return self._boundaries(node)
        sides = (words.read_as(side, Kind.TIMESTAMP) for side in (node.this, node.expression))
        micros = f"({words.micros('{0}')} - {words.micros('{1}')})"
        return fragment(micros if size == 1 else words.quotient(micros, str(size)), *sides)

    def difference(self, node: exp.Expr) -> exp.Expr:
        """Lower a difference by the types of its arguments, independent of the function's name."""
        return self._timestamp_difference(node) if _are_timestamps(node) else self._boundaries(node)

    def _boundaries(self, node: exp.Expr) -> exp.Expr:
        """Return the number of unit boundaries between two wall clocks."""
        template = self.boundaries(unit_of(node.args.get("unit")), node)
        return fragment(template, *(self._clock_of(side, node) for side in (node.this, node.expression)))

    def _clock_of(self, value: exp.Expr, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.TimeDiff):
            return self.day_of(self.words.read_as(value, Kind.TIME))
        if kind_of(value) is Kind.STRING:
            value = self.words.read_as(value, Kind.DATE if isinstance(node, exp.DateDiff) else Kind.DATETIME)
        return self.words.wall_clock(value)

    def _bucket(self, node: exp.Expr) -> exp.Expr:
        """Lower the BUCKET functions: round down to a grid of any width that is aligned to an origin."""
        words, kind = self.words, _KIND_BY_BUCKET[str(node.this).upper()]
        value, width, *optional = node.expressions
        origin = words.wall_clock(words.read_as(optional[0], kind)) if optional else fragment(self.first_origin)
        interval = operation_of(width, Interval)
        by_months = interval is not None and interval.unit in MONTH_UNITS
        template = self.bucket_of_months if by_months else self.bucket
        wall = words.wall_clock(words.read_as(value, kind))
        return self.to_kind(inherit(words.once(template, wall, width, origin), node), kind)

    def _interval(self, node: exp.Expr) -> exp.Expr:
        unit = node.args.get("unit")
        if isinstance(unit, exp.IntervalSpan):
            return self.of_parts(_interval_parts(node, unit))
        return self.of_text(node) if unit is None else self.span(node.this, unit_of(unit), node)

    def _make_interval(self, node: exp.Expr) -> exp.Expr:
        parts = [(key.upper(), value) for key, value in node.args.items() if isinstance(value, exp.Expr)]
        values = [(unit, value.expression if isinstance(value, exp.Kwarg) else value) for unit, value in parts]
        for _, value in values:
            if kind_of(value) not in (None, Kind.INT64, Kind.VARIANT):
                message = f"No matching signature for MAKE_INTERVAL for argument type {kind_of(value)}."
                raise QuerySyntax(
                    message, hint="Its arguments are INT64.", span=span_in_text(value) or span_in_text(node)
                )
        spans = [self.span(value, unit, node) for unit, value in values]
        total = " + ".join(f"{{{index}}}" for index in range(len(spans)))
        return fragment(f"({total})" if spans else self.no_interval, *spans)

    def rules(self) -> RuleSet:
        truncated = (exp.TimestampTrunc, exp.DatetimeTrunc, exp.DateTrunc, exp.TimeTrunc)
        return RuleSet(
            nodes={
                **dict.fromkeys(truncated, _check_unit(self._truncate)),
                **dict.fromkeys((exp.DateDiff, exp.TimeDiff), _check_unit(self.difference)),
                exp.DatetimeDiff: self.difference,
                exp.TimestampDiff: _check_unit(self._timestamp_difference),
                exp.Interval: self._interval,
                exp.MakeInterval: self._make_interval,
            },
            by_name=dict.fromkeys(_KIND_BY_BUCKET, self._bucket),
        )


def shifting_rules(add: Rule, subtract: Rule, total: Rule) -> RuleSet:
    """Return the rules of an engine's own functions that add to and subtract from times, and of `+` and `-`."""
    return RuleSet(
        nodes={
            **dict.fromkeys((exp.TimestampAdd, exp.DatetimeAdd, exp.DateAdd, exp.TimeAdd), _check_unit(add)),
            **dict.fromkeys((exp.TimestampSub, exp.DatetimeSub, exp.DateSub, exp.TimeSub), _check_unit(subtract)),
            **dict.fromkeys((exp.Add, exp.Sub), total),
        }
    )
