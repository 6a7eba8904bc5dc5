"""Arithmetic with times: INTERVAL values, truncating, and differences; each engine has its own sums of times."""

from collections.abc import Callable
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.units import MICROSECONDS, are_timestamps, check_unit, interval_parts, unit_of
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import inherit, kind_of
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet
from cordwood.sql.nodes import Interval, operation_of
from cordwood.sql.rules.vocabulary import Vocabulary

# Units whose length varies.
MONTH_UNITS: Final = frozenset({"MONTH", "QUARTER", "YEAR"})
_KIND_BY_BUCKET: Final = {
    "TIMESTAMP_BUCKET": Kind.TIMESTAMP,
    "DATETIME_BUCKET": Kind.DATETIME,
    "DATE_BUCKET": Kind.DATE,
}


class Times(msgspec.Struct, frozen=True):
    """The rules of times for one engine.

    `zoned` is the wall clock of a TIMESTAMP in a zone, and `unzoned` the reverse. `day_of` is a TIME as a wall clock, and
    `to_kind` a wall clock as a type of time. `truncation` is the template that truncates the wall clock @a to a unit,
    `since_unit` that of the microseconds of a wall clock {1} since the start of a unit of so many, and `boundaries` that
    of the number of boundaries of a unit between the wall clocks {1} and {0}. `bucket` and `bucket_of_months` round @a
    down to a multiple of the width @b from the origin @c on. `span` is an interval of a number of units, and
    `of_parts` one of several units.
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
        """Subtract what the zone's wall clock shows beyond the unit.

        So an hour that occurs twice is truncated to itself.
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
        return self._timestamp_difference(node) if are_timestamps(node) else self._boundaries(node)

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
            return self.of_parts(interval_parts(node, unit))
        return self.of_text(node) if unit is None else self.span(node.this, unit_of(unit), node)

    def _make_interval(self, node: exp.Expr) -> exp.Expr:
        parts = [(key.upper(), value) for key, value in node.args.items() if isinstance(value, exp.Expr)]
        values = [(unit, value.expression if isinstance(value, exp.Kwarg) else value) for unit, value in parts]
        spans = [self.span(value, unit, node) for unit, value in values]
        total = " + ".join(f"{{{index}}}" for index in range(len(spans)))
        return fragment(f"({total})" if spans else self.no_interval, *spans)

    def rules(self) -> RuleSet:
        truncated = (exp.TimestampTrunc, exp.DatetimeTrunc, exp.DateTrunc, exp.TimeTrunc)
        return RuleSet(
            nodes={
                **dict.fromkeys(truncated, check_unit(self._truncate)),
                **dict.fromkeys((exp.DateDiff, exp.TimeDiff), check_unit(self.difference)),
                exp.DatetimeDiff: self.difference,
                exp.TimestampDiff: check_unit(self._timestamp_difference),
                exp.Interval: self._interval,
                exp.MakeInterval: self._make_interval,
            },
            by_name=dict.fromkeys(_KIND_BY_BUCKET, self._bucket),
        )


def shifting_rules(add: Rule, subtract: Rule, total: Rule) -> RuleSet:
    """Return the rules of sums, for an engine's own additions of times and for `+` and `-`."""
    return RuleSet(
        nodes={
            **dict.fromkeys((exp.TimestampAdd, exp.DatetimeAdd, exp.DateAdd, exp.TimeAdd), check_unit(add)),
            **dict.fromkeys((exp.TimestampSub, exp.DatetimeSub, exp.DateSub, exp.TimeSub), check_unit(subtract)),
            **dict.fromkeys((exp.Add, exp.Sub), total),
        }
    )
