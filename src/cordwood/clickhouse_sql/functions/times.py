"""Translators of ClickHouse's functions of times and dates."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import (
    ArgumentTranslator,
    FunctionCall,
    arguments_before_zone,
    checked_arguments,
    require_utc_zone,
)
from cordwood.clickhouse_sql.casts import cast_to
from cordwood.clickhouse_sql.datetimes import (
    add_interval,
    interval_of,
    monday_of_week,
    parse_unit,
    start_of_interval,
    to_datetime,
)
from cordwood.clickhouse_sql.values import DATE, DATETIME, DATETIME64, INT, INTERVAL, STRING, ClickHouseType, TypedValue

_CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]


def _copy_nullability(type_: ClickHouseType, value: TypedValue) -> ClickHouseType:
    return msgspec.structs.replace(type_, is_nullable=value.type.is_nullable)


def _start_of_unit_translator(unit: str, amount: int = 1) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = arguments_before_zone(translator, call, 1)
        return start_of_interval(translator, call.node, translator.value_with_default_for_null(node), unit, amount)

    return translate_call


def _translate_start_of_week(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate toStartOfWeek, which returns the Sunday on which the week begins; with an odd mode, the Monday."""
    node, *rest = checked_arguments(translator, call, 1, 2)
    mode = int(translator.constant_number(rest[0], "The mode of a week")) if rest else 0
    if mode % 2:
        return start_of_interval(translator, call.node, translator.value_with_default_for_null(node), "week")
    moment = to_datetime(translator, call.node, translator.value_with_default_for_null(node))
    sunday = translator.fill_template(
        call.node, "date(timestamp_trunc(@moment, week(sunday)), 'UTC')", moment=moment.node
    )
    return TypedValue(sunday, _copy_nullability(DATE, moment))


def _translate_start_of_interval(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, interval = arguments_before_zone(translator, call, 2)
    step = translator.translate_expression(interval)
    if step.type != INTERVAL or not isinstance(step.constant_value, int) or step.constant_value < 1:
        raise translator.refused_error(interval, "A constant interval is wanted here.", "Write INTERVAL 5 MINUTE.")
    return start_of_interval(
        translator, call.node, translator.value_with_default_for_null(node), step.interval_unit, step.constant_value
    )


def _translate_date_trunc(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    unit, node = arguments_before_zone(translator, call, 2)
    return start_of_interval(
        translator,
        call.node,
        translator.value_with_default_for_null(node),
        parse_unit(translator, unit, translator.constant_text(unit, "A unit of time")),
    )


def _time_to_number_translator(template: str) -> _CallTranslator:
    """Return the translator of a function from a time to an integer; `template` is BigQuery SQL over @moment."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = arguments_before_zone(translator, call, 1)
        moment = to_datetime(translator, call.node, translator.value_with_default_for_null(node))
        return TypedValue(
            translator.fill_template(call.node, template, moment=moment.node), _copy_nullability(INT, moment)
        )

    return translate_call


def _from_unix_time_translator(template: str, type_: ClickHouseType) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = arguments_before_zone(translator, call, 1)
        number = translator.number_value(node)
        if number.type.name != "Int64":
            raise translator.refused_error(node, "A whole number is wanted here.", "Convert it with toInt64(…).")
        return TypedValue(
            translator.fill_template(call.node, template, number=number.node), _copy_nullability(type_, number)
        )

    return translate_call


def _parse_time_translator(suffix: str, *, has_decimals: bool) -> _CallTranslator:
    """Return the translator of a function that parses a text as a time.

    `suffix` is "ornull" for a function with the suffix OrNull, and otherwise empty. Without the suffix, a constant text
    may have any format that `parse_datetime` accepts. Any other text must be in ISO 8601.
    """

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, *rest = checked_arguments(translator, call, 1, 3 if has_decimals else 2)
        decimals = _read_fraction_digit_count(translator, rest, has_decimals=has_decimals)
        value = translator.string_value(node)
        type_ = ClickHouseType("DateTime", fractional_second_digits=decimals)
        if value.is_constant and not suffix:
            return cast_to(translator, call.node, value, type_)
        cast = "safe_cast" if suffix else "cast"
        parsed = translator.fill_template(call.node, f"{cast}(@text as timestamp)", text=value.node)
        unit = {0: "second", 3: "millisecond"}.get(decimals)
        if unit is not None:
            parsed = translator.fill_template(call.node, f"timestamp_trunc(@moment, {unit})", moment=parsed)
        return TypedValue(parsed, type_.as_nullable() if suffix else _copy_nullability(type_, value))

    return translate_call


def _read_fraction_digit_count(translator: ArgumentTranslator, rest: list[exp.Expr], *, has_decimals: bool) -> int:
    """Return how many decimals of a second the result has, from `rest`, the arguments after the text.

    The number is 3 if the call does not state it. It is always 0 for a function without `has_decimals`. `rest` may also
    have a time zone; a zone other than UTC is refused.
    """
    decimals = 3 if has_decimals else 0
    if has_decimals and rest:
        decimals = max(0, min(int(translator.constant_number(rest.pop(0), "The number of decimals")), 6))
    if rest:
        require_utc_zone(translator, rest[0])
    return decimals


def _translate_to_datetime(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = arguments_before_zone(translator, call, 1)
    return _cast_argument(translator, call, node, DATETIME)


def _translate_to_datetime64(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, scale = arguments_before_zone(translator, call, 2)
    digits = int(translator.constant_number(scale, "The number of decimals"))
    return _cast_argument(
        translator, call, node, ClickHouseType("DateTime", fractional_second_digits=max(0, min(digits, 6)))
    )


def _translate_to_date(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = arguments_before_zone(translator, call, 1)
    return _cast_argument(translator, call, node, DATE)


def _cast_argument(
    translator: ArgumentTranslator, call: FunctionCall, node: exp.Expr, type_: ClickHouseType
) -> TypedValue:
    value = translator.value_with_default_for_null(node)
    converted = cast_to(translator, call.node, value, type_)
    return msgspec.structs.replace(converted, type=_copy_nullability(converted.type, value))


def _now_translator(template: str, type_: ClickHouseType) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        rest = checked_arguments(translator, call, 0, 2)
        if rest and type_ == DATETIME:
            require_utc_zone(translator, rest[0])
        return TypedValue(translator.fill_template(call.node, template), type_)

    return translate_call


def _time_part_translator(name: str) -> _CallTranslator:
    return _time_to_number_translator(f"extract({name} from @moment)")


def _translate_iso_week(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    moment = to_datetime(
        translator, call.node, translator.value_with_default_for_null(*checked_arguments(translator, call, 1))
    )
    return TypedValue(
        translator.fill_template(call.node, "extract(isoweek from @moment)", moment=moment.node),
        _copy_nullability(INT, moment),
    )


def _time_digits_translator(pattern: str) -> _CallTranslator:
    """Return the translator of a function, such as toYYYYMM, that returns parts of a time as the digits of a number."""
    return _time_to_number_translator(f"cast(format_timestamp('{pattern}', @moment, 'UTC') as int64)")


def _translate_day_of_week(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Return the day of the week, from 1 for Monday to 7 for Sunday."""
    moment = to_datetime(
        translator, call.node, translator.value_with_default_for_null(*checked_arguments(translator, call, 1))
    )
    day = translator.fill_template(call.node, "mod(extract(dayofweek from @moment) + 5, 7) + 1", moment=moment.node)
    return TypedValue(day, _copy_nullability(INT, moment))


def _interval_translator(unit: str) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (amount,) = checked_arguments(translator, call, 1)
        return interval_of(translator, call.node, amount, unit)

    return translate_call


def _add_time_units_translator(unit: str, *, is_minus: bool) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, amount = checked_arguments(translator, call, 2)
        return add_interval(
            translator,
            call.node,
            translator.value_with_default_for_null(node),
            interval_of(translator, call.node, amount, unit),
            is_minus=is_minus,
        )

    return translate_call


def _add_interval_translator(*, is_minus: bool) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, interval = checked_arguments(translator, call, 2)
        return add_interval(
            translator,
            call.node,
            translator.value_with_default_for_null(node),
            translator.translate_expression(interval),
            is_minus=is_minus,
        )

    return translate_call


def _translate_date_diff(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate dateDiff, which counts the boundaries of a unit, such as full hours, between two times."""
    unit_node, start, end = checked_arguments(translator, call, 3)
    unit = parse_unit(translator, unit_node, translator.constant_text(unit_node, "A unit of time"))
    start_time, end_time = (
        to_datetime(translator, call.node, translator.value_with_default_for_null(node)) for node in (start, end)
    )
    if unit == "week":
        parts = {
            "start": monday_of_week(translator, call.node, start_time),
            "end": monday_of_week(translator, call.node, end_time),
        }
        difference = translator.fill_template(call.node, "div(date_diff(@end, @start, day), 7)", **parts)
        return TypedValue(
            difference,
            msgspec.structs.replace(INT, is_nullable=start_time.type.is_nullable or end_time.type.is_nullable),
        )
    if unit in ("second", "minute", "hour", "millisecond", "microsecond"):
        template = f"timestamp_diff(timestamp_trunc(@end, {unit}), timestamp_trunc(@start, {unit}), {unit})"
    else:
        template = f"date_diff(date(@end, 'UTC'), date(@start, 'UTC'), {unit})"
    difference = translator.fill_template(call.node, template, start=start_time.node, end=end_time.node)
    return TypedValue(
        difference, msgspec.structs.replace(INT, is_nullable=start_time.type.is_nullable or end_time.type.is_nullable)
    )


_FORMAT_ELEMENT_PATTERN: Final = re.compile("%(.?)", re.DOTALL)
# ClickHouse's format elements, with the corresponding elements of BigQuery.
_BIGQUERY_ELEMENT_BY_FORMAT_LETTER: Final = {
    **{letter: f"%{letter}" for letter in "YmdHSTFyjabpRDGuw"},
    "i": "%M",
    "s": "%S",
    "M": "%B",
    "W": "%A",
    "h": "%I",
    "I": "%I",
    "V": "%V",
    "z": "+0000",
    "Q": "%Q",
    "C": "%C",
    "c": "%m",
    "k": "%H",
    "l": "%I",
    "r": "%I:%M %p",
    "%": "%%",
    "n": "\n",
    "t": "\t",
}
# Elements that BigQuery does not have: microseconds, and the day without zero padding. Each has BigQuery SQL that
# computes it.
_TEMPLATE_BY_FORMAT_LETTER: Final = {
    "f": "lpad(cast(mod(unix_micros(@moment), 1000000) as string), 6, '0')",
    "e": "cast(extract(day from @moment) as string)",
}


_MAX_COMPUTED_FORMAT_ELEMENTS: Final = 4


def _translate_format_time(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, pattern = arguments_before_zone(translator, call, 2)
    moment = to_datetime(translator, call.node, translator.value_with_default_for_null(node))
    segments: list[str] = [""]
    computed: list[str] = []
    text = translator.constant_text(pattern, "A format")
    end = 0
    for match in _FORMAT_ELEMENT_PATTERN.finditer(text):
        segments[-1] += text[end : match.start()]
        end = match.end()
        if match[1] in _TEMPLATE_BY_FORMAT_LETTER:
            computed.append(_TEMPLATE_BY_FORMAT_LETTER[match[1]])
            segments.append("")
            continue
        if match[1] not in _BIGQUERY_ELEMENT_BY_FORMAT_LETTER:
            raise translator.refused_error(pattern, f"The element %{match[1]} is not supported in a format.")
        segments[-1] += _BIGQUERY_ELEMENT_BY_FORMAT_LETTER[match[1]]
    segments[-1] += text[end:]
    return TypedValue(
        _concatenate_formatted_parts(translator, call, moment, segments, computed), _copy_nullability(STRING, moment)
    )


def _concatenate_formatted_parts(
    translator: ArgumentTranslator, call: FunctionCall, moment: TypedValue, segments: list[str], computed: list[str]
) -> exp.Expr:
    """Return the text of a time: the segments of its format, with computed elements between them.

    BigQuery formats the segments. `computed` has the SQL for each element that stands between two segments.
    """
    if len(computed) > _MAX_COMPUTED_FORMAT_ELEMENTS:
        raise translator.refused_error(
            call.node, f"%f and %e can stand {_MAX_COMPUTED_FORMAT_ELEMENTS} times in a format."
        )
    parts: list[exp.Expr] = []
    for index, segment in enumerate(segments):
        if index:
            parts.append(translator.fill_template(call.node, computed[index - 1], moment=moment.node))
        if segment or len(segments) == 1:
            text = exp.Literal.string(segment)
            parts.append(
                translator.fill_template(
                    call.node, "format_timestamp(@format, @moment, 'UTC')", format=text, moment=moment.node
                )
            )
    if len(parts) == 1:
        return parts[0]
    concatenated = exp.Concat(expressions=parts)
    concatenated.meta["bigquery_name"] = "CONCAT"
    return concatenated


_INTERVAL_UNITS: Final = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")

TRANSLATOR_BY_FUNCTION: Final[Mapping[str, _CallTranslator]] = {
    **{
        f"tostartof{unit}": _start_of_unit_translator(unit)
        for unit in ("second", "minute", "hour", "day", "month", "quarter", "year")
    },
    "tostartoffiveminute": _start_of_unit_translator("minute", 5),
    "tostartoffiveminutes": _start_of_unit_translator("minute", 5),
    "tostartoftenminutes": _start_of_unit_translator("minute", 10),
    "tostartoffifteenminutes": _start_of_unit_translator("minute", 15),
    "tostartofweek": _translate_start_of_week,
    "tomonday": _start_of_unit_translator("week"),
    "tostartofinterval": _translate_start_of_interval,
    "date_trunc": _translate_date_trunc,
    "tounixtimestamp": _time_to_number_translator("unix_seconds(@moment)"),
    "tounixtimestamp64milli": _time_to_number_translator("unix_millis(@moment)"),
    "tounixtimestamp64micro": _time_to_number_translator("unix_micros(@moment)"),
    "tounixtimestamp64nano": _time_to_number_translator("unix_micros(@moment) * 1000"),
    "fromunixtimestamp": _from_unix_time_translator("timestamp_seconds(@number)", DATETIME),
    "fromunixtimestamp64milli": _from_unix_time_translator(
        "timestamp_millis(@number)", ClickHouseType("DateTime", fractional_second_digits=3)
    ),
    "fromunixtimestamp64micro": _from_unix_time_translator("timestamp_micros(@number)", DATETIME64),
    "fromunixtimestamp64nano": _from_unix_time_translator("timestamp_micros(div(@number, 1000))", DATETIME64),
    "parsedatetime64besteffort": _parse_time_translator("", has_decimals=True),
    "parsedatetime64besteffortornull": _parse_time_translator("ornull", has_decimals=True),
    "parsedatetimebesteffort": _parse_time_translator("", has_decimals=False),
    "parsedatetimebesteffortornull": _parse_time_translator("ornull", has_decimals=False),
    "todatetime": _translate_to_datetime,
    "todatetime64": _translate_to_datetime64,
    "todate": _translate_to_date,
    "now": _now_translator("timestamp_trunc(current_timestamp(), second)", DATETIME),
    "now64": _now_translator("current_timestamp()", DATETIME64),
    "today": _now_translator("date(current_timestamp(), 'UTC')", DATE),
    "yesterday": _now_translator("date_sub(date(current_timestamp(), 'UTC'), interval 1 day)", DATE),
    "toyear": _time_part_translator("year"),
    "toquarter": _time_part_translator("quarter"),
    "toisoweek": _translate_iso_week,
    "toyyyymm": _time_digits_translator("%Y%m"),
    "toyyyymmdd": _time_digits_translator("%Y%m%d"),
    "tomonth": _time_part_translator("month"),
    "todayofmonth": _time_part_translator("day"),
    "todayofyear": _time_part_translator("dayofyear"),
    "todayofweek": _translate_day_of_week,
    "tohour": _time_part_translator("hour"),
    "tominute": _time_part_translator("minute"),
    "tosecond": _time_part_translator("second"),
    **{f"tointerval{unit}": _interval_translator(unit) for unit in _INTERVAL_UNITS},
    **{f"add{unit}s": _add_time_units_translator(unit, is_minus=False) for unit in _INTERVAL_UNITS},
    **{f"subtract{unit}s": _add_time_units_translator(unit, is_minus=True) for unit in _INTERVAL_UNITS},
    "date_add": _add_interval_translator(is_minus=False),
    "date_sub": _add_interval_translator(is_minus=True),
    "datediff": _translate_date_diff,
    "date_diff": _translate_date_diff,
    "formatdatetime": _translate_format_time,
}
