"""Translation of LQL's filters and times to SQL conditions."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import BadQueryValue
from cordwood.lql.columns import RecordUnnests, SubQueryInfo
from cordwood.lql.query import (
    And,
    EventFieldPath,
    FieldFilter,
    Filter,
    FilterOperator,
    LevelRangeFilter,
    MessageFilter,
    Moment,
    Not,
    NullValue,
    Or,
    Period,
    QuotedText,
    RangeFilter,
    RelativeTime,
    RelativeTimeKind,
    TimeCondition,
    TimeUnit,
    UnquotedText,
)
from cordwood.lql.values import NUMBER_TEXT_PATTERN, SEVERITY_LEVELS, parse_time_expression
from cordwood.model.datatype import NUMBER_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.query_templates import fill_query_template, join_with_and, join_with_or, number_literal, text_literal

NUMERIC_KINDS: Final = frozenset(NUMBER_KINDS)
TEMPORAL_KINDS: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
ANY_TYPE_KINDS: Final = frozenset({Kind.VARIANT, Kind.JSON})

MESSAGE_COLUMN: Final = "event_message"
TIMESTAMP_COLUMN: Final = "timestamp"

_COMPARISON_TEMPLATES: Final = {
    FilterOperator.EQUAL: "@column = @value",
    FilterOperator.GREATER: "@column > @value",
    FilterOperator.GREATER_OR_EQUAL: "@column >= @value",
    FilterOperator.LESS: "@column < @value",
    FilterOperator.LESS_OR_EQUAL: "@column <= @value",
}
_REGEX_MATCH_TEMPLATE: Final = "REGEXP_CONTAINS(@column, @pattern)"
_BOOLEAN_TEXTS: Final = frozenset({"true", "false"})
_INT64_EXCLUSIVE_LIMIT: Final = 2**63


class FilterTranslator(msgspec.Struct, frozen=True):
    """A translator of filters on one sub-query's columns; it collects the UNNEST joins for them in `unnests`."""

    sub_query_info: SubQueryInfo
    time_zone: str
    unnests: RecordUnnests

    def translate_all(self, clauses: And) -> exp.Expr | None:
        return join_with_and(list(map(self.translate, clauses.filters))) if clauses.filters else None

    def translate(self, node: Filter) -> exp.Expr:
        match node:
            case Not(inner):
                return self._translate_negation(inner)
            case And(filters):
                return fill_query_template("(@all)", 0, all=join_with_and(list(map(self.translate, filters))))
            case Or(filters):
                return join_with_or(list(map(self._translate_or_operand, filters)))
            case MessageFilter():
                return self._translate_message(node)
            case _:
                return self._translate_column_filter(node)

    def _translate_column_filter(self, node: TimeCondition | FieldFilter | RangeFilter | LevelRangeFilter) -> exp.Expr:
        if isinstance(node, TimeCondition):
            timestamp = self.timestamp_column(EventFieldPath((TIMESTAMP_COLUMN,), node.text_offset))
            return _window_condition(timestamp, time_window_of(node, self.time_zone), node.text_offset)
        if isinstance(node, FieldFilter):
            return self._translate_field(node)
        return self.unnests.any_value_condition(node.path, lambda column: self._translate_range_or_levels(node, column))

    def _translate_range_or_levels(self, node: RangeFilter | LevelRangeFilter, column: exp.Expr) -> exp.Expr:
        if isinstance(node, RangeFilter):
            return self._translate_range(node, column)
        return _in_list_condition(
            column,
            SEVERITY_LEVELS[SEVERITY_LEVELS.index(node.low) : SEVERITY_LEVELS.index(node.high) + 1],
            node.text_offset,
        )

    def _translate_or_operand(self, node: Filter) -> exp.Expr:
        return join_with_and(list(map(self.translate, node.filters))) if isinstance(node, And) else self.translate(node)

    def _translate_negation(self, inner: Filter) -> exp.Expr:
        """Return the negation of a filter.

        Events for which the filter is NULL, such as events without the field, also meet the negation.
        """
        if isinstance(inner, FieldFilter) and isinstance(inner.value, NullValue):
            return self.unnests.any_value_condition(
                inner.path, lambda column: fill_query_template("@c IS NOT NULL", inner.text_offset, c=column)
            )
        negated_condition = self.translate(inner)
        return fill_query_template(
            "(@value) IS NOT TRUE",
            0,
            value=negated_condition.unnest() if isinstance(negated_condition, exp.Paren) else negated_condition,
        )

    def timestamp_column(self, path: EventFieldPath) -> exp.Expr:
        """Return the column at a path as a TIMESTAMP; convert it if it has another type."""
        column = self.unnests.column_at(path)
        return (
            column
            if self.sub_query_info.kind_of_path(path) is Kind.TIMESTAMP
            else fill_query_template("TIMESTAMP(@value)", path.text_offset, value=column)
        )

    def _translate_message(self, node: MessageFilter) -> exp.Expr:
        path = EventFieldPath((MESSAGE_COLUMN,), node.text_offset)
        self.sub_query_info.kind_of_path(path)
        message = self.unnests.column_at(path)
        if node.is_regex:
            return fill_query_template(_REGEX_MATCH_TEMPLATE, node.text_offset, column=message, pattern=node.text)
        if not node.text:
            raise self._syntax_error("A phrase to search for is missing between the quotes.", node.text_offset)
        return fill_query_template("STRPOS(@message, @text) > 0", node.text_offset, message=message, text=node.text)

    def _translate_field(self, node: FieldFilter) -> exp.Expr:
        kind = self.sub_query_info.kind_of_path(node.path)
        if isinstance(node.value, NullValue):
            return self._translate_null(node)
        if kind in TEMPORAL_KINDS and node.operator in _COMPARISON_TEMPLATES:
            return self._translate_time_field(node, node.value.text)
        if node.operator in {FilterOperator.INCLUDES, FilterOperator.INCLUDES_REGEX}:
            return self._translate_list_inclusion(node, kind)
        return self.unnests.any_value_condition(
            node.path, lambda column: self._translate_comparison(node, kind, column)
        )

    def _translate_list_inclusion(self, node: FieldFilter, kind: Kind) -> exp.Expr:
        """Translate the list operators `@>` and `@>~`; a value that is not a list counts as a list of one value."""
        operator = FilterOperator.EQUAL if node.operator is FilterOperator.INCLUDES else FilterOperator.REGEX
        as_element = msgspec.structs.replace(node, operator=operator)
        if self.sub_query_info.has_only_scalars(node.path.steps):
            return self._translate_field(as_element)
        if not self.sub_query_info.may_have_scalar(node.path.steps):
            return self.unnests.any_value_condition(node.path, lambda column: self._includes_condition(node, column))

        def scalar_or_list_condition(column: exp.Expr) -> exp.Expr:
            # The JSON text of a list or an object must not be compared with the filter's value. For lists and objects,
            # JSON_VALUE is NULL.
            is_single = fill_query_template(
                "JSON_VALUE(@column) IS NOT NULL", node.text_offset, column=copy_tree(column)
            )
            equals = self._translate_comparison(as_element, kind, copy_tree(column))
            return join_with_or([self._includes_condition(node, column), join_with_and([is_single, equals])])

        return self.unnests.any_value_condition(node.path, scalar_or_list_condition)

    def _translate_null(self, node: FieldFilter) -> exp.Expr:
        if self.unnests.may_have_several_values(node.path):
            present = self.unnests.any_value_condition(
                node.path, lambda column: fill_query_template("@c IS NOT NULL", node.text_offset, c=column)
            )
            return fill_query_template("NOT @present", node.text_offset, present=present)
        return fill_query_template("@column IS NULL", node.text_offset, column=self.unnests.column_at(node.path))

    def _translate_time_field(self, node: FieldFilter, text: str) -> exp.Expr:
        when = parse_time_expression(text, lambda message, hint: self._syntax_error(message, node.text_offset, hint))
        if node.operator is not FilterOperator.EQUAL and not _is_single_moment(when):
            raise self._syntax_error("A shorthand or a range cannot have an operator.", node.text_offset)
        time = TimeCondition(node.operator, when, node.text_offset)
        return _window_condition(
            self.timestamp_column(node.path), time_window_of(time, self.time_zone), node.text_offset
        )

    def _translate_range(self, node: RangeFilter, column: exp.Expr) -> exp.Expr:
        kind = self.sub_query_info.kind_of_path(node.path)
        if kind in TEMPORAL_KINDS:
            range_field = FieldFilter(
                node.path, FilterOperator.EQUAL, UnquotedText(f"{node.low}..{node.high}"), node.text_offset
            )
            return self._translate_time_field(range_field, f"{node.low}..{node.high}")
        template = "@column BETWEEN @low AND @high"
        if not NUMBER_TEXT_PATTERN.fullmatch(node.low):
            if node.low > node.high:
                hint = "Write both ends in the same notation and in the same time zone."
                message = f"{node.path.last_step} is compared as text, and as texts, the end is before the start."
                raise self._syntax_error(message, node.text_offset, hint)
            return fill_query_template(template, node.text_offset, column=column, low=node.low, high=node.high)
        if kind is Kind.STRING:
            column = fill_query_template("SAFE_CAST(@column AS FLOAT64)", node.text_offset, column=column)
        low, high = (read_number(end, node.text_offset) for end in (node.low, node.high))
        if low is None or high is None:
            raise self._syntax_error("A number of the range is too large.", node.text_offset)
        return fill_query_template(template, node.text_offset, column=column, low=low, high=high)

    def _includes_condition(self, node: FieldFilter, column: exp.Expr) -> exp.Expr:
        element = fill_query_template("item", node.text_offset)
        if node.operator is FilterOperator.INCLUDES_REGEX:
            element_condition = fill_query_template(
                _REGEX_MATCH_TEMPLATE, node.text_offset, column=element, pattern=_text_of_value(node)
            )
        else:
            element_condition = self._translate_comparison(
                FieldFilter(node.path, FilterOperator.EQUAL, node.value, node.text_offset), Kind.VARIANT, element
            )
        return fill_query_template(
            "EXISTS(SELECT 1 FROM UNNEST(@column) AS item WHERE @condition)",
            node.text_offset,
            column=column,
            condition=element_condition,
        )

    def _translate_comparison(self, node: FieldFilter, kind: Kind, column: exp.Expr) -> exp.Expr:
        if node.operator is FilterOperator.REGEX:
            subject = column if kind in ANY_TYPE_KINDS | {Kind.STRING} else _as_text(column, node.text_offset)
            return fill_query_template(
                _REGEX_MATCH_TEMPLATE, node.text_offset, column=subject, pattern=_text_of_value(node)
            )
        template = _COMPARISON_TEMPLATES[node.operator]
        if isinstance(node.value, QuotedText) or kind is Kind.STRING:
            subject = column if kind in ANY_TYPE_KINDS | {Kind.STRING} else _as_text(column, node.text_offset)
            return fill_query_template(template, node.text_offset, column=subject, value=_text_of_value(node))
        values = self._unquoted_literals(node, kind)
        return join_with_or(
            [fill_query_template(template, node.text_offset, column=column, value=value) for value in values]
        )

    def _unquoted_literals(self, node: FieldFilter, kind: Kind) -> list[exp.Expr]:
        """Return the literals that an unquoted value can mean: `0123` can be the text "0123" or the number 123."""
        text, offset = _text_of_value(node), node.text_offset
        as_number = read_number(text, offset)
        self._check_value_has_kind(node, kind, is_number=as_number is not None)
        if as_number is None:
            # A VARIANT is not compared with a BOOL literal, which would also match the number 1.
            return [
                fill_query_template(text.upper(), offset)
                if text in _BOOLEAN_TEXTS and kind is not Kind.VARIANT
                else text_literal(text, offset)
            ]
        if kind in NUMERIC_KINDS or node.operator is not FilterOperator.EQUAL or as_number.sql("bigquery") == text:
            return [as_number]
        return [text_literal(text, offset), as_number]

    def _check_value_has_kind(self, node: FieldFilter, kind: Kind, *, is_number: bool) -> None:
        text = _text_of_value(node)
        if kind in NUMERIC_KINDS and not is_number:
            raise self._syntax_error(f"{node.path.last_step} is a number; {text[:40]} is none.", node.text_offset)
        if kind is Kind.BOOL and text not in _BOOLEAN_TEXTS:
            raise self._syntax_error(
                f"{node.path.last_step} is true or false; {text[:40]} is neither.", node.text_offset
            )

    def _syntax_error(self, message: str, offset: int, hint: str | None = None) -> BadQueryValue:
        return BadQueryValue(message, hint=hint, span=self.sub_query_info.query_text_span(offset))


def read_number(text: str, offset: int) -> exp.Expr | None:
    """Convert a number's text to an SQL literal; return None if the text is not a number or too large for FLOAT64."""
    if not NUMBER_TEXT_PATTERN.fullmatch(text) or not math.isfinite(float(text)):
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        # The exponent has more digits than those of Decimal, so the number is too small for FLOAT64.
        value = Decimal(0)
    if value == value.to_integral_value() and "." not in text and "e" not in text.lower():
        return number_literal(str(int(value)) + (".0" if abs(int(value)) >= _INT64_EXCLUSIVE_LIMIT else ""), offset)
    return number_literal(f"{value.normalize():f}" if abs(value.adjusted()) < 20 else f"{value:e}", offset)


def _text_of_value(node: FieldFilter) -> str:
    return "" if isinstance(node.value, NullValue) else node.value.text


def _as_text(column: exp.Expr, offset: int) -> exp.Expr:
    return fill_query_template("CAST(@column AS STRING)", offset, column=column)


def _in_list_condition(column: exp.Expr, texts: tuple[str, ...], offset: int) -> exp.Expr:
    membership = fill_query_template("@column IN (@first)", offset, column=column)
    membership.set("expressions", [text_literal(text, offset) for text in texts])
    return membership


def _is_single_moment(when: Period | RelativeTime) -> bool:
    return isinstance(when, Period) and when.first_moment == when.last_moment


SECONDS_PER_UNIT: Final = {
    TimeUnit.SECOND: 1,
    TimeUnit.MINUTE: 60,
    TimeUnit.HOUR: 3600,
    TimeUnit.DAY: 86_400,
    TimeUnit.WEEK: 7 * 86_400,
    TimeUnit.MONTH: 30 * 86_400,
    TimeUnit.YEAR: 365 * 86_400,
}
# If a window would start further in the past than this, its start is left out, because the subtraction could give a
# time before the year 1.
_MAX_WINDOW_START_SECONDS_AGO: Final = 1500 * 365 * 86_400
_SUB_DAY_UNITS: Final = frozenset({TimeUnit.SECOND, TimeUnit.MINUTE, TimeUnit.HOUR})
_TRUNCATION_PART_BY_UNIT: Final = {TimeUnit.WEEK: "ISOWEEK"}


class TimeBound(msgspec.Struct, frozen=True):
    """The start or the end of a time window. `fixed_time` is its time unless the time depends on the current time."""

    time_expression: exp.Expr
    is_inclusive: bool
    fixed_time: datetime | None = None


class TimeWindow(msgspec.Struct, frozen=True):
    """A time window. `approximate_seconds` is its approximate length, unless the length depends on the current time."""

    start_bound: TimeBound | None
    end_bound: TimeBound | None
    approximate_seconds: float | None = None


def time_window_of(time: TimeCondition, zone: str) -> TimeWindow:
    if isinstance(time.time, RelativeTime):
        return _relative_window(time.time, zone, time.text_offset)
    return _absolute_window(time.operator, time.time, time.text_offset)


def _window_condition(column: exp.Expr, time_window: TimeWindow, offset: int) -> exp.Expr:
    """Return the condition that `column` is in the time window."""
    low, high = time_window.start_bound, time_window.end_bound
    if low and high and low.is_inclusive and high.is_inclusive:
        if low.time_expression == high.time_expression:
            return fill_query_template("@column = @time", offset, column=column, time=low.time_expression)
        return fill_query_template(
            "@column BETWEEN @low AND @high", offset, column=column, low=low.time_expression, high=high.time_expression
        )
    bounds = [*_bound_condition(column, low, ">", offset), *_bound_condition(column, high, "<", offset)]
    return join_with_and(bounds) if bounds else fill_query_template("@column IS NOT NULL", offset, column=column)


def _bound_condition(column: exp.Expr, end: TimeBound | None, side: str, offset: int) -> list[exp.Expr]:
    if end is None:
        return []
    comparison = f"{side}=" if end.is_inclusive else side
    return [fill_query_template(f"@column {comparison} @time", offset, column=column, time=end.time_expression)]


def truncation_part(unit: TimeUnit) -> str:
    """Return BigQuery's date part for truncating a time to the unit.

    For weeks it is ISOWEEK, because LQL's weeks begin on Monday.
    """
    return _TRUNCATION_PART_BY_UNIT.get(unit, unit.upper())


def _absolute_window(operator: FilterOperator, period: Period, offset: int) -> TimeWindow:
    low = _fixed_bound(period.first_moment.start_time, offset, is_inclusive=True)
    end = _end_of_moment(period.last_moment, offset)
    match operator:
        case FilterOperator.GREATER:
            return TimeWindow(msgspec.structs.replace(end, is_inclusive=not end.is_inclusive), None)
        case FilterOperator.GREATER_OR_EQUAL:
            return TimeWindow(low, None)
        case FilterOperator.LESS:
            return TimeWindow(None, msgspec.structs.replace(low, is_inclusive=False))
        case FilterOperator.LESS_OR_EQUAL:
            return TimeWindow(None, end)
        case _:
            return TimeWindow(
                low, end, (period.last_moment.start_time - period.first_moment.start_time).total_seconds()
            )


def _end_of_moment(moment: Moment, offset: int) -> TimeBound:
    """Return the end of a moment: the start of the next day, hour or minute, or the moment itself if it is an instant.

    The last day of the year 9999 ends at the latest possible time.
    """
    if moment.precision_unit is None:
        return _fixed_bound(moment.start_time, offset, is_inclusive=True)
    length = timedelta(seconds=SECONDS_PER_UNIT[moment.precision_unit])
    if moment.start_time > datetime.max.replace(tzinfo=UTC) - length:
        return _fixed_bound(datetime.max.replace(tzinfo=UTC), offset, is_inclusive=True)
    return _fixed_bound(moment.start_time + length, offset, is_inclusive=False)


def _fixed_bound(time: datetime, offset: int, *, is_inclusive: bool) -> TimeBound:
    return TimeBound(
        fill_query_template("CAST(@text AS TIMESTAMP)", offset, text=text_literal(time.isoformat(" "), offset)),
        is_inclusive,
        time,
    )


def _relative_window(shorthand: RelativeTime, zone: str, offset: int) -> TimeWindow:
    now = TimeBound(fill_query_template("CURRENT_TIMESTAMP()", offset), is_inclusive=True)
    match shorthand.kind:
        case RelativeTimeKind.NOW:
            low = fill_query_template("TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), SECOND)", offset)
            return TimeWindow(
                _inclusive_bound(low),
                _exclusive_bound(fill_query_template("TIMESTAMP_ADD(@low, INTERVAL 1 SECOND)", offset, low=low)),
                1,
            )
        case RelativeTimeKind.TODAY:
            return TimeWindow(
                _inclusive_bound(_start_of_day(0, zone, offset)),
                _exclusive_bound(_start_of_day(1, zone, offset)),
                SECONDS_PER_UNIT[TimeUnit.DAY],
            )
        case RelativeTimeKind.YESTERDAY:
            return TimeWindow(
                _inclusive_bound(_start_of_day(-1, zone, offset)),
                _exclusive_bound(_start_of_day(0, zone, offset)),
                SECONDS_PER_UNIT[TimeUnit.DAY],
            )
        case RelativeTimeKind.THIS_UNIT:
            return TimeWindow(
                _inclusive_bound(_start_of_unit(shorthand.unit, zone, offset)), now, SECONDS_PER_UNIT[shorthand.unit]
            )
        case RelativeTimeKind.UNITS_AGO:
            return _units_ago_window(shorthand, offset)
        case RelativeTimeKind.TIME_OF_DAY:
            low = _time_today_at_minute(shorthand.unit_count, zone, offset)
            return TimeWindow(
                _inclusive_bound(low),
                _exclusive_bound(fill_query_template("TIMESTAMP_ADD(@low, INTERVAL 1 MINUTE)", offset, low=low)),
                60,
            )
        case RelativeTimeKind.LAST_UNITS:
            seconds = (shorthand.unit_count + 1) * SECONDS_PER_UNIT[shorthand.unit]
            start = (
                _inclusive_bound(_time_units_ago(shorthand, zone, offset))
                if seconds < _MAX_WINDOW_START_SECONDS_AGO
                else None
            )
            return TimeWindow(start, now, seconds)


def _units_ago_window(shorthand: RelativeTime, offset: int) -> TimeWindow:
    """Return the window that begins `shorthand.count` units ago and ends `shorthand.end_seconds_ago` seconds ago."""
    seconds = shorthand.unit_count * SECONDS_PER_UNIT[shorthand.unit]
    low = fill_query_template(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {seconds} SECOND)", offset)
    end = (
        f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {shorthand.end_seconds_ago} SECOND)"
        if shorthand.end_seconds_ago
        else "CURRENT_TIMESTAMP()"
    )
    high = TimeBound(fill_query_template(end, offset), is_inclusive=True)
    return TimeWindow(
        _inclusive_bound(low) if seconds < _MAX_WINDOW_START_SECONDS_AGO else None,
        high,
        seconds - shorthand.end_seconds_ago,
    )


def _time_today_at_minute(minute: int, zone: str, offset: int) -> exp.Expr:
    """Return the time today that is `minute` minutes after midnight by the local clock."""
    return _local_to_utc(
        fill_query_template(
            f"DATETIME_ADD(@today, INTERVAL {minute} MINUTE)", offset, today=_start_of_today(zone, offset)
        ),
        zone,
        offset,
    )


def _inclusive_bound(time: exp.Expr) -> TimeBound:
    return TimeBound(time, is_inclusive=True)


def _exclusive_bound(time: exp.Expr) -> TimeBound:
    return TimeBound(time, is_inclusive=False)


def _time_units_ago(shorthand: RelativeTime, zone: str, offset: int) -> exp.Expr:
    """Return the time `shorthand.count` units ago; if the unit is a day or longer, return the start of that day."""
    unit, count = shorthand.unit.upper(), shorthand.unit_count
    if shorthand.unit in _SUB_DAY_UNITS:
        return fill_query_template(f"TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL {count} {unit})", offset)
    today = _start_of_today(zone, offset)
    return _local_to_utc(
        fill_query_template(f"DATETIME_SUB(@today, INTERVAL {count} {unit})", offset, today=today), zone, offset
    )


def _start_of_unit(unit: TimeUnit, zone: str, offset: int) -> exp.Expr:
    if zone == "UTC" or unit in {TimeUnit.SECOND, TimeUnit.MINUTE}:
        return fill_query_template(f"TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), {truncation_part(unit)})", offset)
    template = f"TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), {truncation_part(unit)}, @zone)"
    return fill_query_template(template, offset, zone=zone)


def _start_of_day(days: int, zone: str, offset: int) -> exp.Expr:
    """Return the start of the day that is `days` calendar days after today.

    It is computed in local time, because days have 23 or 25 hours when the clocks change.
    """
    today = _start_of_today(zone, offset)
    if days:
        function = "DATETIME_ADD" if days > 0 else "DATETIME_SUB"
        today = fill_query_template(f"{function}(@today, INTERVAL {abs(days)} DAY)", offset, today=today)
    return _local_to_utc(today, zone, offset)


def _start_of_today(zone: str, offset: int) -> exp.Expr:
    if zone == "UTC":
        return fill_query_template("DATETIME_TRUNC(CURRENT_DATETIME(), DAY)", offset)
    return fill_query_template("DATETIME_TRUNC(CURRENT_DATETIME(@zone), DAY)", offset, zone=zone)


def _local_to_utc(local: exp.Expr, zone: str, offset: int) -> exp.Expr:
    if zone == "UTC":
        return fill_query_template("TIMESTAMP(@local)", offset, local=local)
    return fill_query_template("TIMESTAMP(@local, @zone)", offset, local=local, zone=zone)
