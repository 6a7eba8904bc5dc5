"""Literals of times and zones, date parts, and arithmetic with times, except additions, which each engine defines.

Times are checked against BigQuery's canonical form, and spelled in the form that every engine reads. Zones with a
constant offset from UTC are recognised, because they can be applied without a time zone database.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import BadQuerySyntax
from cordwood.model.datatype import DATE_AND_TIME_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import inherit_metadata, is_event_number, kind_of
from cordwood.sql.lowering import (
    LoweringRule,
    RuleSet,
    bigquery_function_name,
    fragment_node,
    raise_unsupported,
    span_of_node_or_descendant,
)
from cordwood.sql.nodes import CONSTANT_VALUE_METADATA_KEY, Interval, constant_text, operation_if_of_class
from cordwood.sql.rules.vocabulary import CommonSql

_DATE_PATTERN: Final = r"(\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)-(0?[1-9]|1[0-2])-(0?[1-9]|[12]\d|3[01])"
_TIME_OF_DAY_PATTERN: Final = r"([01]?\d|2[0-3]):[0-5]?\d:([0-5]?\d|60)(\.\d{0,9})?"
_ZONE_OFFSET_SUFFIX_PATTERN: Final = r"[Zz]|[+-](0?\d|1[0-4])(:[0-5]?\d)?"

# The pattern of a TIMESTAMP. A DATE may be written like a TIMESTAMP, too; everything after the day is then ignored.
_TIMESTAMP_PATTERN: Final = (
    rf"{_DATE_PATTERN}([ Tt]{_TIME_OF_DAY_PATTERN}({_ZONE_OFFSET_SUFFIX_PATTERN}| [A-Za-z][A-Za-z0-9_/+-]*)?)?"
)

# Patterns in RE2's syntax by which engines check the texts of times. The engines themselves check the number of days of
# a month.
CANONICAL_PATTERN_BY_KIND: Final = {
    Kind.TIMESTAMP: _TIMESTAMP_PATTERN,
    Kind.DATETIME: rf"{_DATE_PATTERN}([ Tt]{_TIME_OF_DAY_PATTERN})?",
    Kind.DATE: _TIMESTAMP_PATTERN,
    Kind.TIME: _TIME_OF_DAY_PATTERN,
}

_MAX_SHOWN_TIME_CHARACTERS: Final = 40
_TIME_LITERAL_PATTERN: Final = re.compile(
    rf"(?P<year>\d+)-(?P<month>\d+)-(?P<day>\d+)(?:(?P<between>[ Tt])(?P<clock>{_TIME_OF_DAY_PATTERN}))?(?P<zone>{_ZONE_OFFSET_SUFFIX_PATTERN}| \D.*)?",
    re.ASCII,
)
_SHORT_OFFSET_PATTERN: Final = re.compile(r"([+-])(\d)(?!\d)")


def normalize_time_text(text: str, kind: Kind) -> str | None:
    """Return the text in the form that every engine reads; None if it is not a valid time of this type."""
    if kind is Kind.TIME:
        return text if re.fullmatch(_TIME_OF_DAY_PATTERN, text, re.ASCII) else None
    match = _TIME_LITERAL_PATTERN.fullmatch(text)
    if match is None or not _is_valid_date(match) or (kind is Kind.DATETIME and match["zone"]):
        return None
    return text[: match.end("day")] + _engine_time_of_day_spelling(match) + _zone_in_engine_spelling(match)


def _engine_time_of_day_spelling(match: re.Match[str]) -> str:
    if match["clock"]:
        return f"{match['between'].upper()}{match['clock']}"
    return " 00:00:00" if match["zone"] else ""


def _zone_in_engine_spelling(match: re.Match[str]) -> str:
    zone = match["zone"] or ""
    return zone if zone.startswith(" ") else _SHORT_OFFSET_PATTERN.sub(r"\g<1>0\2", zone.upper())


def _is_valid_date(match: re.Match[str]) -> bool:
    try:
        return len(match["year"]) == 4 and bool(date(*(int(match[part]) for part in ("year", "month", "day"))))
    except ValueError:
        return False


def needs_runtime_time_validation(value: exp.Expr, kind: Kind) -> bool:
    """Return whether the text must be validated when the query runs: it varies by row, or is an invalid constant."""
    text = constant_text(value)
    return value.find(exp.Column) is not None if text is None else normalize_time_text(text, kind) is None


def invalid_time_message(value: exp.Expr, kind: Kind) -> str:
    """Return the error message for an invalid time; it quotes a constant text, but not values of events."""
    text = constant_text(value)
    return f"Invalid {kind}" if text is None else f'Invalid {kind}: "{text[:_MAX_SHOWN_TIME_CHARACTERS]}"'


def engine_spelling_of_time(value: exp.Expr, kind: Kind) -> str | None:
    """Return a constant time in the spelling of the engines; None if the time needs no other spelling.

    Return None also for an invalid time, and for a time that is not constant.
    """
    text = constant_text(value)
    engine_form = normalize_time_text(text, kind) if text is not None else None
    return engine_form if engine_form != text else None


_LEAP_SECOND_KINDS: Final = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_LEAP_SECOND_PATTERN: Final = re.compile(
    r"(?:(\d{4})-(\d{1,2})-(\d{1,2})([ Tt]))?(\d{1,2}):(\d{1,2}):60(?:\.\d*)?(?!\d)"
)


def replace_leap_second(value: exp.Expr, to: Kind) -> exp.Expr:
    """Return the cast's operand; if it is a constant time with second 60, return the beginning of the next minute."""
    text = constant_text(value)
    if text is None or ":60" not in text or to not in _LEAP_SECOND_KINDS or kind_of(value) is not Kind.STRING:
        return value
    respelled = _LEAP_SECOND_PATTERN.sub(_round_up_to_next_minute, text, count=1)
    literal = inherit_metadata(exp.Literal.string(respelled), value)
    literal.meta[CONSTANT_VALUE_METADATA_KEY] = respelled
    return literal


def _round_up_to_next_minute(match: re.Match[str]) -> str:
    year, month, day, separator, hour, minute = match.groups()
    try:
        written_minute = datetime(int(year or 2000), int(month or 1), int(day or 1), int(hour), int(minute))  # noqa: DTZ001 - a wall clock
        next_minute = written_minute + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return match[0]
    clock = next_minute.strftime("%H:%M:%S")
    return f"{next_minute.year:04d}-{next_minute:%m-%d}{separator}{clock}" if year else clock


_ZONE_OFFSET_PATTERN: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC_NAMES: Final = frozenset(("UTC", "Z", "ETC/UTC", "GMT", "+0", "+00", "+00:00", "-00:00"))


def is_utc(zone: exp.Expr | None) -> bool:
    """Return whether the zone is UTC; if no zone is given, it is UTC."""
    name = constant_text(zone)
    return zone is None or (name is not None and name.upper() in _UTC_NAMES)


def zone_offset_minutes(zone: exp.Expr | None) -> int | None:
    """Return the zone's offset from UTC in minutes, positive in the east; None for a zone without a constant offset."""
    name = constant_text(zone)
    match = _ZONE_OFFSET_PATTERN.fullmatch(name) if name else None
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return -minutes if match[1] == "-" else minutes


# The zones whose clocks are set back by half an hour, rather than an hour, when daylight saving time ends.
_HALF_HOUR_DAYLIGHT_SHIFT_ZONES: Final = frozenset(("AUSTRALIA/LORD_HOWE", "AUSTRALIA/LHI"))


def daylight_saving_shift_minutes(zone: exp.Expr | None) -> int:
    """Return the number of minutes by which the zone's clocks are set back when daylight saving time ends."""
    return 30 if (constant_text(zone) or "").upper() in _HALF_HOUR_DAYLIGHT_SHIFT_ZONES else 60


# The units of constant length, in microseconds.
MICROSECONDS_BY_UNIT: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}

_WEEKDAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_INTERVAL_UNITS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def time_unit_name(node: exp.Expr | None, fallback: str = "DAY") -> str:
    if isinstance(node, exp.WeekStart):
        return f"WEEK({node.this.name.upper()})"
    return (constant_text(node) or node.name).upper() if node is not None else fallback


def date_part_name(node: exp.Expr) -> str:
    """Return the name of a date part in BigQuery's spelling."""
    return time_unit_name(node) if isinstance(node, exp.WeekStart) else node.sql("bigquery").upper().replace(" ", "")


def require_supported_date_part(node: exp.Expr) -> str:
    """Return the date part of an EXTRACT; raise BadQuerySyntax for a part that values of this type do not have.

    Without the error, an engine would return 0 for the hour of a DATE.
    """
    part, kind = date_part_name(node.this), kind_of(node.expression)
    parts = _DATE_PARTS_BY_KIND.get(kind) if kind else None
    if parts is not None and part not in parts:
        raise BadQuerySyntax(
            f"EXTRACT from {kind} does not support the {part} date part.",
            hint=f"It has: {', '.join(sorted(parts - _WEEK_UNITS_WITH_START_DAY))}.",
            span=span_of_node_or_descendant(node),
        )
    return part


def week_start_days_after_monday(unit: str) -> int | None:
    """Return on which day weeks of this unit begin, in days after Monday; None if the unit is not a week."""
    if unit in ("ISOWEEK", "WEEK(MONDAY)"):
        return 0
    if unit == "WEEK":
        return 6
    return _WEEKDAYS.index(unit[5:-1]) if unit.startswith("WEEK(") and unit[5:-1] in _WEEKDAYS else None


def _interval_parts(node: exp.Expr, span: exp.Expr) -> list[tuple[str, str]]:
    """Return the numbers of an interval such as `'1-2 3' YEAR TO DAY`, each with its unit."""
    first, last = (_INTERVAL_UNITS.index(time_unit_name(span.args[key])) for key in ("this", "expression"))
    text = constant_text(node.this) or node.this.name
    numbers = _split_interval_numbers(text)
    if len(numbers) != last - first + 1 or not all(map(_INTERVAL_NUMBER_PATTERN.fullmatch, numbers)):
        raise_unsupported(node, f"The interval '{text}'")
    return list(zip(_INTERVAL_UNITS[first : last + 1], numbers, strict=True))


_INTERVAL_NUMBER_PATTERN: Final = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?")


def interval_count_sql(text: str, node: exp.Expr) -> str:
    """Return the number that `text` contains, as SQL: `3` for INTERVAL '3' DAY; raise BadQuerySyntax if it has none."""
    match = _SIGNED_NUMBER_PATTERN.fullmatch(text.strip())
    if match is None:
        raise BadQuerySyntax(
            f"The interval '{text[:40]}' is not a number of units.", span=span_of_node_or_descendant(node)
        )
    return match[1]


_SIGNED_NUMBER_PATTERN: Final = re.compile(r"\+?(-?[0-9]{1,18}(?:\.[0-9]{0,18})?)")


def _split_interval_numbers(text: str) -> list[str]:
    """Split an interval's text into numbers. A sign applies to all numbers of a group.

    The groups are years and months, days, and the clock.
    """
    numbers: list[str] = []
    for group in text.split():
        negative, digits = group.startswith("-"), group.lstrip("+-")
        numbers += [f"-{number}" if negative else number for number in digits.replace("-", ":").split(":")]
    return numbers


_TIME_OF_DAY_UNITS: Final = frozenset(MICROSECONDS_BY_UNIT) - {"DAY"}
_DATE_UNITS: Final = frozenset(("DAY", "WEEK", "MONTH", "QUARTER", "YEAR"))
_TRUNCATION_UNITS: Final = _DATE_UNITS | {"ISOWEEK", "ISOYEAR", *(f"WEEK({day})" for day in _WEEKDAYS)}
# The units that are valid for values of a type: units that can be added to the values, units to which they can be
# truncated, and units in which differences are counted. For types that are not listed, all units are valid.
_ADDABLE_UNITS_BY_KIND: Final = {
    Kind.DATE: _DATE_UNITS,
    Kind.TIMESTAMP: frozenset(MICROSECONDS_BY_UNIT),
    Kind.TIME: _TIME_OF_DAY_UNITS,
}
_TRUNCATION_UNITS_BY_KIND: Final = {Kind.DATE: _TRUNCATION_UNITS, Kind.TIME: _TIME_OF_DAY_UNITS}
_DIFFERENCE_UNITS_BY_KIND: Final = {
    Kind.DATE: _TRUNCATION_UNITS,
    Kind.TIMESTAMP: frozenset(MICROSECONDS_BY_UNIT),
    Kind.TIME: _TIME_OF_DAY_UNITS,
}
_PERMITTED_UNITS_BY_FUNCTION: Final[Mapping[type[exp.Expr], Mapping[Kind, frozenset[str]]]] = {
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub), _ADDABLE_UNITS_BY_KIND),
    **dict.fromkeys((exp.TimestampAdd, exp.TimestampSub, exp.TimeAdd, exp.TimeSub), _ADDABLE_UNITS_BY_KIND),
    **dict.fromkeys((exp.DateTrunc, exp.DatetimeTrunc, exp.TimestampTrunc, exp.TimeTrunc), _TRUNCATION_UNITS_BY_KIND),
    **dict.fromkeys((exp.DateDiff, exp.TimestampDiff, exp.TimeDiff), _DIFFERENCE_UNITS_BY_KIND),
}
_KIND_BY_DIFFERENCE_FUNCTION: Final[Mapping[type[exp.Expr], Kind]] = {
    exp.DateDiff: Kind.DATE,
    exp.TimestampDiff: Kind.TIMESTAMP,
    exp.TimeDiff: Kind.TIME,
}


def _with_unit_check(rule: LoweringRule) -> LoweringRule:
    """Return the rule with a check that the unit is valid for the value's type, because engines do not check this."""

    def apply_checked_rule(node: exp.Expr) -> exp.Expr:
        argument_kind = kind_of(node.this)
        kind = (
            kind_of(node)
            if type(node) not in _KIND_BY_DIFFERENCE_FUNCTION
            else argument_kind
            if argument_kind in DATE_AND_TIME_KINDS
            else _KIND_BY_DIFFERENCE_FUNCTION[type(node)]
        )
        unit = time_unit_name(node.args.get("unit"))
        units = _PERMITTED_UNITS_BY_FUNCTION[type(node)].get(kind) if kind else None
        if units is not None and unit not in units and not isinstance(node.expression, exp.Interval):
            raise BadQuerySyntax(
                f"{bigquery_function_name(node)} does not support the {unit} date part when the argument is {kind} type.",
                hint=f"It has: {', '.join(sorted(units - _WEEK_UNITS_WITH_START_DAY))}.",
                span=span_of_node_or_descendant(node),
            )
        return rule(node)

    return apply_checked_rule


def _has_timestamp_operands(difference: exp.Expr) -> bool:
    """Return whether both operands of a difference are TIMESTAMPs."""
    return kind_of(difference.this) is Kind.TIMESTAMP is kind_of(difference.expression)


_WEEK_UNITS_WITH_START_DAY: Final = frozenset(unit for unit in _TRUNCATION_UNITS if "(" in unit)
_DATE_PARTS_BY_KIND: Final = {Kind.DATE: _TRUNCATION_UNITS | {"DAYOFWEEK", "DAYOFYEAR"}, Kind.TIME: _TIME_OF_DAY_UNITS}


# Units that do not always have the same length.
VARIABLE_LENGTH_UNITS: Final = frozenset({"MONTH", "QUARTER", "YEAR"})
_KIND_BY_BUCKET_FUNCTION: Final = {
    "TIMESTAMP_BUCKET": Kind.TIMESTAMP,
    "DATETIME_BUCKET": Kind.DATETIME,
    "DATE_BUCKET": Kind.DATE,
}


class TimeRules(msgspec.Struct, frozen=True):
    """The rules of times for one engine.

    A *wall clock* is a date and time without a zone. `to_zone_wall_clock` converts a TIMESTAMP to the wall clock in a
    zone, and `from_zone_wall_clock` does the reverse. `time_to_wall_clock` converts a TIME to a wall clock, and
    `wall_clock_to_kind` converts a wall clock to a type of time. `truncation_template` returns the template that
    truncates the wall clock @a to a unit. `micros_since_unit_start_template` takes a unit's length, and returns the
    template for the microseconds between the start of the unit and the wall clock {1}. `unit_boundary_count_template`
    returns the template for the number of starts of units between the wall clocks {1} and {0}. `bucket_template` and
    `month_bucket_template` round @a down to the origin @c plus a multiple of the width @b. `interval_of_units` makes an
    interval of one unit, and `interval_from_parts` makes an interval of several units.
    """

    common_sql: CommonSql
    to_zone_wall_clock: Callable[[exp.Expr, exp.Expr | None], exp.Expr]
    from_zone_wall_clock: Callable[[exp.Expr, exp.Expr | None], exp.Expr]
    time_to_wall_clock: Callable[[exp.Expr], exp.Expr]
    wall_clock_to_kind: Callable[[exp.Expr, Kind], exp.Expr]
    truncation_template: Callable[[str, exp.Expr], str]
    truncate_time_of_day: Callable[[exp.Expr, str, exp.Expr], exp.Expr]
    micros_since_unit_start_template: Callable[[int], str]
    unit_boundary_count_template: Callable[[str, exp.Expr], str]
    default_bucket_origin: str
    bucket_template: str
    month_bucket_template: str
    interval_of_units: Callable[[exp.Expr, str, exp.Expr], exp.Expr]
    interval_from_parts: Callable[[list[tuple[str, str]]], exp.Expr]
    interval_from_text_rule: LoweringRule
    zero_interval_sql: str

    def _translate_truncation(self, node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        unit, zone = time_unit_name(node.args.get("unit")), node.args.get("zone")
        value = self.common_sql.convert_implicitly(node.this, kind)
        if kind is Kind.TIME:
            return self.truncate_time_of_day(value, unit, node)
        if zone is None or kind is not Kind.TIMESTAMP:
            wall = self.common_sql.time_to_utc_wall_clock(value)
            return self.wall_clock_to_kind(
                self.common_sql.fill_fallible_template(node, self.truncation_template(unit, node), wall), kind
            )
        if unit in MICROSECONDS_BY_UNIT and unit != "DAY":
            return self._truncate_timestamp_in_zone(value, MICROSECONDS_BY_UNIT[unit], zone)
        return self.from_zone_wall_clock(
            self.common_sql.fill_fallible_template(
                node, self.truncation_template(unit, node), self.to_zone_wall_clock(value, zone)
            ),
            zone,
        )

    def _truncate_timestamp_in_zone(self, value: exp.Expr, size: int, zone: exp.Expr) -> exp.Expr:
        """Truncate a TIMESTAMP: subtract the time that has passed since the start of the unit in the zone.

        If an hour occurs twice because clocks are set back, each occurrence is truncated to its own start.
        """
        truncated = self.common_sql.from_unix_micros(
            f"{self.common_sql.to_unix_micros('{0}')} - {self.micros_since_unit_start_template(size)}"
        )
        return fragment_node(truncated, value, self.to_zone_wall_clock(copy_tree(value), zone))

    def _translate_timestamp_difference(self, node: exp.Expr) -> exp.Expr:
        """Translate TIMESTAMP_DIFF, which counts whole units between two times."""
        words, size = self.common_sql, MICROSECONDS_BY_UNIT.get(time_unit_name(node.args.get("unit")))
        if size is None:
            return self._count_unit_boundaries(node)
        sides = (words.convert_implicitly(side, Kind.TIMESTAMP) for side in (node.this, node.expression))
        micros = f"({words.to_unix_micros('{0}')} - {words.to_unix_micros('{1}')})"
        return fragment_node(micros if size == 1 else words.integer_quotient(micros, str(size)), *sides)

    def translate_difference(self, node: exp.Expr) -> exp.Expr:
        """Translate a difference of two times by the types of its operands; the name of the function has no effect."""
        return (
            self._translate_timestamp_difference(node)
            if _has_timestamp_operands(node)
            else self._count_unit_boundaries(node)
        )

    def _count_unit_boundaries(self, node: exp.Expr) -> exp.Expr:
        """Return the number of units, such as days, that begin between two times: the result of the DIFF functions."""
        template = self.unit_boundary_count_template(time_unit_name(node.args.get("unit")), node)
        return fragment_node(template, *(self._to_wall_clock(side, node) for side in (node.this, node.expression)))

    def _to_wall_clock(self, value: exp.Expr, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.TimeDiff):
            return self.time_to_wall_clock(self.common_sql.convert_implicitly(value, Kind.TIME))
        if kind_of(value) is Kind.STRING:
            value = self.common_sql.convert_implicitly(
                value, Kind.DATE if isinstance(node, exp.DateDiff) else Kind.DATETIME
            )
        return self.common_sql.time_to_utc_wall_clock(value)

    def _translate_bucket(self, node: exp.Expr) -> exp.Expr:
        """Translate TIMESTAMP_BUCKET and related functions, which round a time down to the start of its bucket.

        Buckets have a constant width, and one of them starts at the origin.
        """
        words, kind = self.common_sql, _KIND_BY_BUCKET_FUNCTION[str(node.this).upper()]
        value, width, *optional = node.expressions
        origin = (
            words.time_to_utc_wall_clock(words.convert_implicitly(optional[0], kind))
            if optional
            else fragment_node(self.default_bucket_origin)
        )
        interval = operation_if_of_class(width, Interval)
        by_months = interval is not None and interval.unit in VARIABLE_LENGTH_UNITS
        template = self.month_bucket_template if by_months else self.bucket_template
        wall = words.time_to_utc_wall_clock(words.convert_implicitly(value, kind))
        return self.wall_clock_to_kind(inherit_metadata(words.fill_template(template, wall, width, origin), node), kind)

    def _translate_interval(self, node: exp.Expr) -> exp.Expr:
        unit = node.args.get("unit")
        if isinstance(unit, exp.IntervalSpan):
            return self.interval_from_parts(_interval_parts(node, unit))
        return (
            self.interval_from_text_rule(node)
            if unit is None
            else self.interval_of_units(node.this, time_unit_name(unit), node)
        )

    def _translate_make_interval(self, node: exp.Expr) -> exp.Expr:
        parts = [(key.upper(), value) for key, value in node.args.items() if isinstance(value, exp.Expr)]
        values = [(unit, value.expression if isinstance(value, exp.Kwarg) else value) for unit, value in parts]
        for _, value in values:
            if kind_of(value) not in (None, Kind.INT64) and not is_event_number(value):
                message = f"No matching signature for MAKE_INTERVAL for argument type {kind_of(value)}."
                raise BadQuerySyntax(
                    message,
                    hint="Its arguments are INT64.",
                    span=span_of_node_or_descendant(value) or span_of_node_or_descendant(node),
                )
        spans = [self.interval_of_units(value, unit, node) for unit, value in values]
        total = " + ".join(f"{{{index}}}" for index in range(len(spans)))
        return fragment_node(f"({total})" if spans else self.zero_interval_sql, *spans)

    def rules(self) -> RuleSet:
        truncated = (exp.TimestampTrunc, exp.DatetimeTrunc, exp.DateTrunc, exp.TimeTrunc)
        return RuleSet(
            by_node_class={
                **dict.fromkeys(truncated, _with_unit_check(self._translate_truncation)),
                **dict.fromkeys((exp.DateDiff, exp.TimeDiff), _with_unit_check(self.translate_difference)),
                exp.DatetimeDiff: self.translate_difference,
                exp.TimestampDiff: _with_unit_check(self._translate_timestamp_difference),
                exp.Interval: self._translate_interval,
                exp.MakeInterval: self._translate_make_interval,
            },
            by_function_name=dict.fromkeys(_KIND_BY_BUCKET_FUNCTION, self._translate_bucket),
        )


def time_addition_rules(add: LoweringRule, subtract: LoweringRule, total: LoweringRule) -> RuleSet:
    """Return the rules of functions that add to a time or subtract from it; `total` is the rule of `+` and `-`."""
    return RuleSet(
        by_node_class={
            **dict.fromkeys((exp.TimestampAdd, exp.DatetimeAdd, exp.DateAdd, exp.TimeAdd), _with_unit_check(add)),
            **dict.fromkeys((exp.TimestampSub, exp.DatetimeSub, exp.DateSub, exp.TimeSub), _with_unit_check(subtract)),
            **dict.fromkeys((exp.Add, exp.Sub), total),
        }
    )
