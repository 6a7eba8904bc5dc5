"""Translation of LQL filters and times to SQL conditions."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.lql.columns import RecordUnnests, SubQueryInfo
from cordwood.lql.query import (
    And,
    Field,
    Filter,
    LevelRange,
    Message,
    Moment,
    Not,
    Null,
    Operator,
    Or,
    Path,
    Period,
    Quoted,
    Range,
    Shorthand,
    ShorthandKind,
    TimeCondition,
    Unit,
    Unquoted,
)
from cordwood.lql.values import NUMBER_TEXT, SEVERITY_LEVELS, read_when
from cordwood.model.datatype import NUMBERS, Kind
from cordwood.sql.budget import copied
from cordwood.sql.query_templates import all_of, any_of, fill, literal, number

NUMERIC_KINDS: Final = frozenset(NUMBERS)
TEMPORAL_KINDS: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
ANY_TYPE_KINDS: Final = frozenset({Kind.VARIANT, Kind.JSON})

MESSAGE_COLUMN: Final = "event_message"
TIMESTAMP_COLUMN: Final = "timestamp"

_COMPARISONS: Final = {
    Operator.EQUAL: "@column = @value",
    Operator.GREATER: "@column > @value",
    Operator.GREATER_OR_EQUAL: "@column >= @value",
    Operator.LESS: "@column < @value",
    Operator.LESS_OR_EQUAL: "@column <= @value",
}
_MATCH_TEMPLATE: Final = "REGEXP_CONTAINS(@column, @pattern)"
_BOOLEANS: Final = frozenset({"true", "false"})
_MAX_INT64: Final = 2**63


class Conditions(msgspec.Struct, frozen=True):
    """A translator of filters on one sub-query's columns; `unnests` collects the UNNEST joins that they need."""

    info: SubQueryInfo
    zone: str
    unnests: RecordUnnests

    def all(self, clauses: And) -> exp.Expr | None:
        return all_of(list(map(self.translate, clauses.filters))) if clauses.filters else None

    def translate(self, node: Filter) -> exp.Expr:
        match node:
            case Not(inner):
                return self._negate(inner)
            case And(filters):
                return fill("(@all)", 0, all=all_of(list(map(self.translate, filters))))
            case Or(filters):
                return any_of(list(map(self._translate_branch, filters)))
            case Message():
                return self._translate_message(node)
            case _:
                return self._translate_column(node)

    def _translate_column(self, node: TimeCondition | Field | Range | LevelRange) -> exp.Expr:
        if isinstance(node, TimeCondition):
            timestamp = self.timestamp(Path((TIMESTAMP_COLUMN,), node.offset))
            return _window_condition(timestamp, window_of(node, self.zone), node.offset)
        if isinstance(node, Field):
            return self._translate_field(node)
        return self.unnests.where_any(node.path, lambda column: self._translate_range_or_levels(node, column))

    def _translate_range_or_levels(self, node: Range | LevelRange, column: exp.Expr) -> exp.Expr:
        if isinstance(node, Range):
            return self._translate_range(node, column)
        return _array_membership(
            column, SEVERITY_LEVELS[SEVERITY_LEVELS.index(node.low) : SEVERITY_LEVELS.index(node.high) + 1], node.offset
        )

    def _translate_branch(self, node: Filter) -> exp.Expr:
        return all_of(list(map(self.translate, node.filters))) if isinstance(node, And) else self.translate(node)

    def _negate(self, inner: Filter) -> exp.Expr:
        """Return the negation of a filter.

        The negation also holds for events for which the filter is NULL, for example events without the field.
        """
        if isinstance(inner, Field) and isinstance(inner.value, Null):
            return self.unnests.where_any(inner.path, lambda column: fill("@c IS NOT NULL", inner.offset, c=column))
        negated_condition = self.translate(inner)
        return fill(
            "(@value) IS NOT TRUE",
            0,
            value=negated_condition.unnest() if isinstance(negated_condition, exp.Paren) else negated_condition,
        )

    def timestamp(self, path: Path) -> exp.Expr:
        """Return the column as a TIMESTAMP, whatever time type it has."""
        column = self.unnests.column(path)
        return (
            column if self.info.kind(path) is Kind.TIMESTAMP else fill("TIMESTAMP(@value)", path.offset, value=column)
        )

    def _translate_message(self, node: Message) -> exp.Expr:
        path = Path((MESSAGE_COLUMN,), node.offset)
        self.info.kind(path)
        message = self.unnests.column(path)
        if node.is_regex:
            return fill(_MATCH_TEMPLATE, node.offset, column=message, pattern=node.text)
        if not node.text:
            raise self._syntax_error("A phrase to search for is missing between the quotes.", node.offset)
        return fill("STRPOS(@message, @text) > 0", node.offset, message=message, text=node.text)

    def _translate_field(self, node: Field) -> exp.Expr:
        kind = self.info.kind(node.path)
        if isinstance(node.value, Null):
            return self._translate_null(node)
        if kind in TEMPORAL_KINDS and node.operator in _COMPARISONS:
            return self._translate_time_field(node, node.value.text)
        if node.operator in {Operator.INCLUDES, Operator.INCLUDES_REGEX}:
            return self._translate_membership(node, kind)
        return self.unnests.where_any(node.path, lambda column: self._comparison(node, kind, column))

    def _translate_membership(self, node: Field, kind: Kind) -> exp.Expr:
        """Translate the operators `@>` and `@>~` on lists; a value that is not a list counts as a list of one value."""
        operator = Operator.EQUAL if node.operator is Operator.INCLUDES else Operator.REGEX
        as_element = msgspec.structs.replace(node, operator=operator)
        if self.info.is_single_value(node.path.parts):
            return self._translate_field(as_element)
        if not self.info.may_be_single_value(node.path.parts):
            return self.unnests.where_any(node.path, lambda column: self._translate_includes(node, column))

        def translate(column: exp.Expr) -> exp.Expr:
            # JSON_VALUE is NULL for a list or an object, whose JSON text must not be compared.
            is_single = fill("JSON_VALUE(@column) IS NOT NULL", node.offset, column=copied(column))
            equals = self._comparison(as_element, kind, copied(column))
            return any_of([self._translate_includes(node, column), all_of([is_single, equals])])

        return self.unnests.where_any(node.path, translate)

    def _translate_null(self, node: Field) -> exp.Expr:
        if self.unnests.is_many(node.path):
            present = self.unnests.where_any(node.path, lambda column: fill("@c IS NOT NULL", node.offset, c=column))
            return fill("NOT @present", node.offset, present=present)
        return fill("@column IS NULL", node.offset, column=self.unnests.column(node.path))

    def _translate_time_field(self, node: Field, text: str) -> exp.Expr:
        when = read_when(text, lambda message, hint: self._syntax_error(message, node.offset, hint))
        if node.operator is not Operator.EQUAL and not _is_single_moment(when):
            raise self._syntax_error("A shorthand or a range cannot have an operator.", node.offset)
        time = TimeCondition(node.operator, when, node.offset)
        return _window_condition(self.timestamp(node.path), window_of(time, self.zone), node.offset)

    def _translate_range(self, node: Range, column: exp.Expr) -> exp.Expr:
        kind = self.info.kind(node.path)
        if kind in TEMPORAL_KINDS:
            range_field = Field(node.path, Operator.EQUAL, Unquoted(f"{node.low}..{node.high}"), node.offset)
            return self._translate_time_field(range_field, f"{node.low}..{node.high}")
        template = "@column BETWEEN @low AND @high"
        if not NUMBER_TEXT.fullmatch(node.low):
            return fill(template, node.offset, column=column, low=node.low, high=node.high)
        if kind is Kind.STRING:
            column = fill("SAFE_CAST(@column AS FLOAT64)", node.offset, column=column)
        low, high = (read_number(end, node.offset) for end in (node.low, node.high))
        if low is None or high is None:
            raise self._syntax_error("A number of the range is too large.", node.offset)
        return fill(template, node.offset, column=column, low=low, high=high)

    def _translate_includes(self, node: Field, column: exp.Expr) -> exp.Expr:
        element = fill("item", node.offset)
        if node.operator is Operator.INCLUDES_REGEX:
            element_condition = fill(_MATCH_TEMPLATE, node.offset, column=element, pattern=_text_of_value(node))
        else:
            element_condition = self._comparison(
                Field(node.path, Operator.EQUAL, node.value, node.offset), Kind.VARIANT, element
            )
        return fill(
            "EXISTS(SELECT 1 FROM UNNEST(@column) AS item WHERE @condition)",
            node.offset,
            column=column,
            condition=element_condition,
        )

    def _comparison(self, node: Field, kind: Kind, column: exp.Expr) -> exp.Expr:
        if node.operator is Operator.REGEX:
            subject = column if kind in ANY_TYPE_KINDS | {Kind.STRING} else _as_text(column, node.offset)
            return fill(_MATCH_TEMPLATE, node.offset, column=subject, pattern=_text_of_value(node))
        template = _COMPARISONS[node.operator]
        if isinstance(node.value, Quoted) or kind is Kind.STRING:
            subject = column if kind in ANY_TYPE_KINDS | {Kind.STRING} else _as_text(column, node.offset)
            return fill(template, node.offset, column=subject, value=_text_of_value(node))
        values = self._unquoted_literals(node, kind)
        return any_of([fill(template, node.offset, column=column, value=value) for value in values])

    def _unquoted_literals(self, node: Field, kind: Kind) -> list[exp.Expr]:
        """Return the literals that an unquoted value may mean: `0123` is the text 0123 or the number 123."""
        text, offset = _text_of_value(node), node.offset
        as_number = read_number(text, offset)
        self._check_kind(node, kind, is_number=as_number is not None)
        if as_number is None:
            # A VARIANT is not compared with a BOOL literal, which would also match the number 1.
            return [
                fill(text.upper(), offset) if text in _BOOLEANS and kind is not Kind.VARIANT else literal(text, offset)
            ]
        if kind in NUMERIC_KINDS or node.operator is not Operator.EQUAL or as_number.sql("bigquery") == text:
            return [as_number]
        return [literal(text, offset), as_number]

    def _check_kind(self, node: Field, kind: Kind, *, is_number: bool) -> None:
        text = _text_of_value(node)
        if kind in NUMERIC_KINDS and not is_number:
            raise self._syntax_error(f"{node.path.last} is a number; {text[:40]} is none.", node.offset)
        if kind is Kind.BOOL and text not in _BOOLEANS:
            raise self._syntax_error(f"{node.path.last} is true or false; {text[:40]} is neither.", node.offset)

    def _syntax_error(self, message: str, offset: int, hint: str | None = None) -> QueryValue:
        return QueryValue(message, hint=hint, span=self.info.span(offset))


def read_number(text: str, offset: int) -> exp.Expr | None:
    """Return the number in SQL's spelling; None if the text is not a number, or exceeds FLOAT64."""
    if not NUMBER_TEXT.fullmatch(text) or not math.isfinite(float(text)):
        return None
    value = Decimal(text)
    if value == value.to_integral_value() and "." not in text and "e" not in text.lower():
        return number(str(int(value)) + (".0" if abs(int(value)) >= _MAX_INT64 else ""), offset)
    return number(f"{value.normalize():f}" if abs(value.adjusted()) < 20 else f"{value:e}", offset)


def _text_of_value(node: Field) -> str:
    return "" if isinstance(node.value, Null) else node.value.text


def _as_text(column: exp.Expr, offset: int) -> exp.Expr:
    return fill("CAST(@column AS STRING)", offset, column=column)


def _array_membership(column: exp.Expr, texts: tuple[str, ...], offset: int) -> exp.Expr:
    membership = fill("@column IN (@first)", offset, column=column)
    membership.set("expressions", [literal(text, offset) for text in texts])
    return membership


def _is_single_moment(when: Period | Shorthand) -> bool:
    return isinstance(when, Period) and when.low == when.high


SECONDS_PER_UNIT: Final = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.HOUR: 3600,
    Unit.DAY: 86_400,
    Unit.WEEK: 7 * 86_400,
    Unit.MONTH: 30 * 86_400,
    Unit.YEAR: 365 * 86_400,
}
# A start further back than this could be before the calendar begins, so such a window has no start.
_MAX_SECONDS_BACK: Final = 1500 * 365 * 86_400
_CLOCK_UNITS: Final = frozenset({Unit.SECOND, Unit.MINUTE, Unit.HOUR})
_TRUNCATION_PARTS: Final = {Unit.WEEK: "ISOWEEK"}


class Bound(msgspec.Struct, frozen=True):
    """An end of a window, inclusive or not; `moment` is its time if the end does not depend on the current time."""

    time: exp.Expr
    is_inclusive: bool
    moment: datetime | None = None


class Window(msgspec.Struct, frozen=True):
    """A window of time; `seconds` is its approximate length, if the length does not depend on the current time."""

    low: Bound | None
    high: Bound | None
    seconds: float | None = None


def window_of(time: TimeCondition, zone: str) -> Window:
    if isinstance(time.when, Shorthand):
        return _relative_window(time.when, zone, time.offset)
    return _absolute_window(time.operator, time.when, time.offset)


def _window_condition(column: exp.Expr, time_window: Window, offset: int) -> exp.Expr:
    """Return the condition that the timestamp is in the window."""
    low, high = time_window.low, time_window.high
    if low and high and low.is_inclusive and high.is_inclusive:
        if low.time == high.time:
            return fill("@column = @time", offset, column=column, time=low.time)
        return fill("@column BETWEEN @low AND @high", offset, column=column, low=low.time, high=high.time)
    bounds = [*_end_condition(column, low, ">", offset), *_end_condition(column, high, "<", offset)]
    return all_of(bounds) if bounds else fill("@column IS NOT NULL", offset, column=column)


def _end_condition(column: exp.Expr, end: Bound | None, side: str, offset: int) -> list[exp.Expr]:
    if end is None:
        return []
    comparison = f"{side}=" if end.is_inclusive else side
    return [fill(f"@column {comparison} @time", offset, column=column, time=end.time)]


def truncation_part(unit: Unit) -> str:
    """Return BigQuery's date part for truncation to the unit; LQL's weeks begin on Monday."""
    return _TRUNCATION_PARTS.get(unit, unit.upper())


def _absolute_window(operator: Operator, period: Period, offset: int) -> Window:
    low = _fixed_bound(period.low.time, offset, is_inclusive=True)
    end = _moment_end(period.high, offset)
    match operator:
        case Operator.GREATER:
            return Window(msgspec.structs.replace(end, is_inclusive=not end.is_inclusive), None)
        case Operator.GREATER_OR_EQUAL:
            return Window(low, None)
        case Operator.LESS:
            return Window(None, msgspec.structs.replace(low, is_inclusive=False))
        case Operator.LESS_OR_EQUAL:
            return Window(None, end)
        case _:
            return Window(low, end, (period.high.time - period.low.time).total_seconds())


def _moment_end(moment: Moment, offset: int) -> Bound:
    """Return the end of a moment: the start of the next day, hour or minute; for an instant, the instant itself.

    The end of the calendar's last day is the latest possible time.
    """
    if moment.unit is None:
        return _fixed_bound(moment.time, offset, is_inclusive=True)
    length = timedelta(seconds=SECONDS_PER_UNIT[moment.unit])
    if moment.time > datetime.max.replace(tzinfo=UTC) - length:
        return _fixed_bound(datetime.max.replace(tzinfo=UTC), offset, is_inclusive=True)
    return _fixed_bound(moment.time + length, offset, is_inclusive=False)


def _fixed_bound(time: datetime, offset: int, *, is_inclusive: bool) -> Bound:
    return Bound(
        fill("CAST(@text AS TIMESTAMP)", offset, text=literal(time.isoformat(" "), offset)), is_inclusive, time
    )


def _relative_window(shorthand: Shorthand, zone: str, offset: int) -> Window:
    now = Bound(fill("CURRENT_TIMESTAMP()", offset), is_inclusive=True)
    match shorthand.kind:
        case ShorthandKind.NOW:
            low = fill("TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), SECOND)", offset)
            return Window(
                _inclusive_bound(low),
                _exclusive_bound(fill("TIMESTAMP_ADD(@low, INTERVAL 1 SECOND)", offset, low=low)),
                1,
            )
        case ShorthandKind.TODAY:
            return Window(
                _inclusive_bound(_start_of_day(0, zone, offset)),
                _exclusive_bound(_start_of_day(1, zone, offset)),
                SECONDS_PER_UNIT[Unit.DAY],
            )
        case ShorthandKind.YESTERDAY:
            return Window(
                _inclusive_bound(_start_of_day(-1, zone, offset)),
                _exclusive_bound(_start_of_day(0, zone, offset)),
                SECONDS_PER_UNIT[Unit.DAY],
            )
        case ShorthandKind.THIS:
            return Window(
                _inclusive_bound(_start_of_unit(shorthand.unit, zone, offset)), now, SECONDS_PER_UNIT[shorthand.unit]
            )
        case ShorthandKind.AGO:
            return _ago_window(shorthand, offset)
        case ShorthandKind.CLOCK:
            low = _minute_of_day(shorthand.count, zone, offset)
            return Window(
                _inclusive_bound(low),
                _exclusive_bound(fill("TIMESTAMP_ADD(@low, INTERVAL 1 MINUTE)", offset, low=low)),
                60,
            )
        case ShorthandKind.LAST:
            seconds = (shorthand.count + 1) * SECONDS_PER_UNIT[shorthand.unit]
            start = _inclusive_bound(_units_ago(shorthand, zone, offset)) if seconds < _MAX_SECONDS_BACK else None
            return Window(start, now, seconds)


def _ago_window(shorthand: Shorthand, offset: int) -> Window:
    """Return the window from `count` units ago to `until` seconds ago."""
    seconds = shorthand.count * SECONDS_PER_UNIT[shorthand.unit]
    low = fill(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {seconds} SECOND)", offset)
    end = (
        f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {shorthand.until} SECOND)"
        if shorthand.until
        else "CURRENT_TIMESTAMP()"
    )
    high = Bound(fill(end, offset), is_inclusive=True)
    return Window(_inclusive_bound(low) if seconds < _MAX_SECONDS_BACK else None, high, seconds - shorthand.until)


def _minute_of_day(minute: int, zone: str, offset: int) -> exp.Expr:
    """Return the time today at the given minute of the day."""
    return _to_utc(
        fill(f"DATETIME_ADD(@today, INTERVAL {minute} MINUTE)", offset, today=_current_date(zone, offset)), zone, offset
    )


def _inclusive_bound(time: exp.Expr) -> Bound:
    return Bound(time, is_inclusive=True)


def _exclusive_bound(time: exp.Expr) -> Bound:
    return Bound(time, is_inclusive=False)


def _units_ago(shorthand: Shorthand, zone: str, offset: int) -> exp.Expr:
    """Return the time `count` units ago; for days and longer units, the start of that day."""
    unit, count = shorthand.unit.upper(), shorthand.count
    if shorthand.unit in _CLOCK_UNITS:
        return fill(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {count} {unit})", offset)
    today = _current_date(zone, offset)
    return _to_utc(fill(f"DATETIME_SUB(@today, INTERVAL {count} {unit})", offset, today=today), zone, offset)


def _start_of_unit(unit: Unit, zone: str, offset: int) -> exp.Expr:
    if zone == "UTC" or unit in {Unit.SECOND, Unit.MINUTE}:
        return fill(f"TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), {truncation_part(unit)})", offset)
    local = fill("CURRENT_DATETIME(@zone)", offset, zone=zone)
    return _to_utc(fill(f"DATETIME_TRUNC(@local, {truncation_part(unit)})", offset, local=local), zone, offset)


def _start_of_day(days: int, zone: str, offset: int) -> exp.Expr:
    """Return the start of a day relative to today, by calendar: a zone's days may have 23 or 25 hours."""
    today = _current_date(zone, offset)
    if days:
        function = "DATETIME_ADD" if days > 0 else "DATETIME_SUB"
        today = fill(f"{function}(@today, INTERVAL {abs(days)} DAY)", offset, today=today)
    return _to_utc(today, zone, offset)


def _current_date(zone: str, offset: int) -> exp.Expr:
    if zone == "UTC":
        return fill("DATETIME_TRUNC(CURRENT_DATETIME(), DAY)", offset)
    return fill("DATETIME_TRUNC(CURRENT_DATETIME(@zone), DAY)", offset, zone=zone)


def _to_utc(local: exp.Expr, zone: str, offset: int) -> exp.Expr:
    if zone == "UTC":
        return fill("TIMESTAMP(@local)", offset, local=local)
    return fill("TIMESTAMP(@local, @zone)", offset, local=local, zone=zone)
