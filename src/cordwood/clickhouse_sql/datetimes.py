"""Translation of times, dates and intervals: parsing of constants, arithmetic, and conversion for comparisons."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, call_of
from cordwood.clickhouse_sql.values import (
    DATE,
    DATETIME64,
    FLOAT,
    INT,
    INTERVAL,
    TIME_TYPE_NAMES,
    ClickHouseType,
    TypedValue,
    literal_node,
)

_DATETIME_PATTERN: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?\s*(Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
_UNIX_SECONDS_PATTERN: Final = re.compile(r"(\d{9,10})(?:\.(\d{1,9}))?|(\d{13})", re.ASCII)

TIME_UNITS: Final = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)
_HOURS_PER_DAY: Final = 24
_SECONDS_PER_UNIT: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


def parse_datetime(text: str) -> datetime | None:
    """Return the time that a constant text means; return None if the text is not a time.

    The text may be in ISO 8601. It may also be the number of seconds or milliseconds since 1970. A time without a zone
    is in UTC.
    """
    text = text.strip()
    unix_match = _UNIX_SECONDS_PATTERN.fullmatch(text)
    if unix_match:
        micros = (
            int(unix_match[3]) * 1000
            if unix_match[3]
            else int(unix_match[1]) * 10**6 + int((unix_match[2] or "0").ljust(9, "0")[:6])
        )
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    match = _DATETIME_PATTERN.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group] or 0) for group in range(1, 7))
    micros = int((match[7] or "").ljust(6, "0")[:6])
    try:
        naive = datetime(year, month, day, hour, minute, second, micros, tzinfo=_parse_zone(match[8]))
        return naive.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _parse_zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def datetime_literal(translator: ArgumentTranslator, node: exp.Expr, moment: datetime) -> exp.Expr:
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f+00").rjust(29, "0")
    return translator.fill_template(node, "cast(@text as timestamp)", text=exp.Literal.string(text))


def to_datetime(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue) -> TypedValue:
    """Return a Date, a DateTime or a constant text as a DateTime."""
    value = value.with_default_for_null()
    if value.type.name == "DateTime":
        return value
    type_ = msgspec.structs.replace(DATETIME64, is_nullable=value.type.is_nullable)
    if value.type.name == "Date":
        return TypedValue(translator.fill_template(node, "timestamp(@day, 'UTC')", day=value.node), type_)
    if value.type.name == "Nothing":
        return TypedValue(exp.Null(), type_.as_nullable())
    if isinstance(value.constant_value, str):
        moment = parse_datetime(value.constant_value)
        if moment is None:
            raise translator.refused_error(
                node,
                f"{value.constant_value[:40]!r} is not a time.",
                "Write '2026-06-22 09:30:00' or parseDateTime64BestEffort(…).",
            )
        return TypedValue(datetime_literal(translator, node, moment), type_)
    call = call_of(node)
    message = (
        f"A time is wanted here, and this is {value.type.with_article}."
        if call is None
        else f"{call.written_name[:60]} needs a time, not {value.type.with_article}."
    )
    raise translator.refused_error(node, message, time_conversion_hint(value))


def can_be_datetime(value: TypedValue) -> bool:
    """Return whether the value can be converted to a DateTime without a function that the author calls."""
    return value.type.name in (*TIME_TYPE_NAMES, "Nothing") or isinstance(value.constant_value, str)


def time_conversion_hint(value: TypedValue) -> str | None:
    """Return a hint how to convert the value to a time; None if there is no function for its type."""
    return _TIME_CONVERSION_HINT_BY_TYPE.get(value.type.name)


_TIME_CONVERSION_HINT_BY_TYPE: Final = {
    "String": "Convert it with parseDateTime64BestEffort(…).",
    "Int64": "Convert seconds since 1970 with fromUnixTimestamp(…).",
}


def parse_unit(translator: ArgumentTranslator, node: exp.Expr, text: str) -> str:
    unit = text.lower().removesuffix("s") if text.lower() not in TIME_UNITS else text.lower()
    if unit not in TIME_UNITS:
        raise translator.refused_error(
            node, f"{text[:40]} is not a unit of time.", f"There are: {', '.join(TIME_UNITS[2:])}."
        )
    return unit


def interval_of(translator: ArgumentTranslator, node: exp.Expr, amount: exp.Expr, unit: str) -> TypedValue:
    """Return an interval of `amount` units; if `unit` is empty, `amount` is a text with a number and a unit."""
    if isinstance(amount, exp.Literal) and amount.is_string:
        words = str(amount.this).split()
        if len(words) == 2 and not unit:
            unit = words[1]
        amount = exp.Literal.number(words[0]) if words and words[0].lstrip("-").isdigit() else amount
        if str(amount.this).startswith("-"):
            amount = exp.Neg(this=exp.Literal.number(str(amount.this)[1:]))
    number = translator.number_value(amount)
    if number.type.name == "Float64":
        raise translator.refused_error(node, "An interval has a whole number of units.")
    return TypedValue(
        number.node, INTERVAL, constant_value=number.constant_value, interval_unit=parse_unit(translator, node, unit)
    )


def add_interval(
    translator: ArgumentTranslator, node: exp.Expr, left: TypedValue, right: TypedValue, *, is_minus: bool
) -> TypedValue:
    """Return a time plus an interval, in either order; if `is_minus`, return the time minus the interval."""
    if left.type == INTERVAL and not is_minus:
        left, right = right, left
    if right.type != INTERVAL or left.type == INTERVAL:
        raise translator.refused_error(node, "An interval can be added to a time and taken from one.")
    if left.type.name == "Date" and right.interval_unit in ("day", "week", "month", "quarter", "year"):
        return _add_interval_to_date(translator, node, left, right, is_minus=is_minus)
    moment = to_datetime(translator, node, left)
    sign = "sub" if is_minus else "add"
    parts = {"moment": moment.node, "amount": right.node}
    if right.interval_unit in ("month", "quarter", "year"):
        template = (
            f"timestamp(datetime_{sign}(datetime(@moment, 'UTC'), interval @amount {right.interval_unit}), 'UTC')"
        )
        return TypedValue(translator.fill_template(node, template, **parts), moment.type)
    unit, factor = ("day", 7) if right.interval_unit == "week" else (right.interval_unit, 1)
    if factor > 1:
        parts["amount"] = translator.fill_template(node, "@amount * 7", amount=right.node)
    scale = 6 if unit in ("microsecond", "millisecond") else moment.type.fractional_second_digits
    result = translator.fill_template(node, f"timestamp_{sign}(@moment, interval @amount {unit})", **parts)
    return TypedValue(
        result, ClickHouseType("DateTime", is_nullable=moment.type.is_nullable, fractional_second_digits=scale)
    )


def add_number_to_time(
    translator: ArgumentTranslator, node: exp.Expr, left: TypedValue, right: TypedValue, *, is_minus: bool
) -> TypedValue:
    """Return a time plus or minus a number of seconds, or a date plus or minus a number of days.

    In a sum, the number may also be the left operand.
    """
    if left.type.name not in TIME_TYPE_NAMES and not is_minus:
        left, right = right, left
    number = translator.require_number(node, right)
    if left.type.name not in TIME_TYPE_NAMES or number.type.name != "Int64":
        hint = "Write timestamp - INTERVAL 1 HOUR, or dateDiff('second', a, b)."
        raise translator.refused_error(
            node, f"{left.type.with_capital_article} and {right.type.with_article} cannot be added up.", hint
        )
    unit = "day" if left.type.name == "Date" else "second"
    interval = TypedValue(number.node, INTERVAL, constant_value=number.constant_value, interval_unit=unit)
    return add_interval(translator, node, left, interval, is_minus=is_minus)


def subtract_times(translator: ArgumentTranslator, node: exp.Expr, left: TypedValue, right: TypedValue) -> TypedValue:
    """Return `left` minus `right`: in seconds for times, or in days for two dates."""
    nullable = left.type.is_nullable or right.type.is_nullable
    parts = {"left": left.node, "right": right.node}
    if left.type.name == right.type.name == "Date":
        difference = translator.fill_template(node, "date_diff(@left, @right, day)", **parts)
        return TypedValue(difference, msgspec.structs.replace(INT, is_nullable=nullable))
    left_time, right_time = to_datetime(translator, node, left), to_datetime(translator, node, right)
    parts = {"left": left_time.node, "right": right_time.node}
    if left.type.fractional_second_digits == right.type.fractional_second_digits == 0:
        difference = translator.fill_template(node, "timestamp_diff(@left, @right, second)", **parts)
        return TypedValue(difference, msgspec.structs.replace(INT, is_nullable=nullable))
    difference = translator.fill_template(
        node, "ieee_divide(cast(timestamp_diff(@left, @right, microsecond) as float64), 1000000.0)", **parts
    )
    return TypedValue(difference, msgspec.structs.replace(FLOAT, is_nullable=nullable))


def _add_interval_to_date(
    translator: ArgumentTranslator, node: exp.Expr, day: TypedValue, interval: TypedValue, *, is_minus: bool
) -> TypedValue:
    template = f"date_{'sub' if is_minus else 'add'}(@day, interval @amount {interval.interval_unit})"
    return TypedValue(
        translator.fill_template(node, template, day=day.node, amount=interval.node),
        msgspec.structs.replace(DATE, is_nullable=day.type.is_nullable),
    )


def start_of_interval(
    translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, unit: str, amount: int = 1
) -> TypedValue:
    """Return the start of the interval that contains a time, if time is divided into intervals of `amount` units.

    Intervals of a day or longer begin at midnight in UTC.
    """
    moment = to_datetime(translator, node, value)
    is_calendar_unit = unit in ("week", "month", "quarter", "year")
    if unit == "hour" and amount > 1:
        if amount >= _HOURS_PER_DAY:
            unit, amount = "day", 1
        elif _HOURS_PER_DAY % amount:
            # Refuse intervals of hours that do not divide a day, because ClickHouse counts them from the start of each
            # day.
            raise translator.refused_error(
                node, f"Intervals of {amount} hours are not supported.", "Write 1, 2, 3, 4, 6, 8 or 12 hours."
            )
    if amount == 1 and unit == "week":
        return TypedValue(
            monday_of_week(translator, node, moment), msgspec.structs.replace(DATE, is_nullable=moment.type.is_nullable)
        )
    if amount == 1:
        start = translator.fill_template(node, f"timestamp_trunc(@moment, {unit})", moment=moment.node)
    elif unit in _SECONDS_PER_UNIT and not is_calendar_unit:
        start = translator.fill_template(
            node,
            "timestamp_seconds(div(unix_seconds(@moment), @step) * @step)",
            moment=moment.node,
            step=literal_node(amount * _SECONDS_PER_UNIT[unit]),
        )
    else:
        raise translator.refused_error(
            node, f"Intervals of {amount} {unit}s are not supported.", f"Write an interval of 1 {unit}, or of days."
        )
    if is_calendar_unit:
        return TypedValue(
            translator.fill_template(node, "date(@moment, 'UTC')", moment=start),
            msgspec.structs.replace(DATE, is_nullable=moment.type.is_nullable),
        )
    return TypedValue(start, ClickHouseType("DateTime", is_nullable=moment.type.is_nullable))


def monday_of_week(translator: ArgumentTranslator, node: exp.Expr, moment: TypedValue) -> exp.Expr:
    """Return the Monday of the week that contains a time."""
    template = "date_sub(date(@moment, 'UTC'), interval mod(extract(dayofweek from @moment) + 5, 7) day)"
    return translator.fill_template(node, template, moment=moment.node)
