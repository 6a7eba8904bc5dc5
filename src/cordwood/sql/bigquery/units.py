"""Date parts and units of time: their names, their lengths, and the first day of weeks."""

import re
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import QuerySyntax
from cordwood.model.datatype import MOMENTS, Kind
from cordwood.sql.constants import constant_text
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import Rule, function_name, span_in_text, unsupported

# The units of constant length.
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

    Engines would take the hour of a DATE for midnight's.
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
    """Return on which day after Monday a week of this unit begins; None if the unit is not a week."""
    if unit in ("ISOWEEK", "WEEK(MONDAY)"):
        return 0
    if unit == "WEEK":
        return 6
    return _WEEKDAYS.index(unit[5:-1]) if unit.startswith("WEEK(") and unit[5:-1] in _WEEKDAYS else None


def interval_parts(node: exp.Expr, span: exp.Expr) -> list[tuple[str, str]]:
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


def check_unit(rule: Rule) -> Rule:
    """Return the rule, checking that the unit is valid for the value's type, which engines do not."""

    def checked(node: exp.Expr) -> exp.Expr:
        argument_kind = kind_of(node.this)
        kind = (
            kind_of(node)
            if type(node) not in _DIFFERENCE_KIND
            else argument_kind
            if argument_kind in MOMENTS
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


def are_timestamps(difference: exp.Expr) -> bool:
    """Return whether a difference is between two TIMESTAMPs."""
    return kind_of(difference.this) is Kind.TIMESTAMP is kind_of(difference.expression)


_WEEKS: Final = frozenset(unit for unit in _TRUNCATION_UNITS if "(" in unit)
_EXTRACT_PARTS: Final = {Kind.DATE: _TRUNCATION_UNITS | {"DAYOFWEEK", "DAYOFYEAR"}, Kind.TIME: _CLOCK_UNITS}
