"""Functions of times and dates."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.casts import cast_to
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions.arguments import arguments, arguments_before_zone, check_zone
from cordwood.clickhouse_sql.moments import as_moment, bucketed, interval_of, monday, moved, unit_of
from cordwood.clickhouse_sql.values import DATE, DATETIME, DATETIME64, INT, INTERVAL, STRING, Type, Value

_Function = Callable[[Expressions, Call], Value]


def _like(type_: Type, value: Value) -> Type:
    return msgspec.structs.replace(type_, nullable=value.type.nullable)


def _start_of(unit: str, amount: int = 1) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = arguments_before_zone(t, call, 1)
        return bucketed(t, call.node, t.plain(node), unit, amount)

    return function


def _start_of_week(t: Expressions, call: Call) -> Value:
    """Return the Sunday with which the week begins, or the Monday in odd modes."""
    node, *rest = arguments(t, call, 1, 2)
    mode = int(t.constant_number(rest[0], "The mode of a week")) if rest else 0
    if mode % 2:
        return bucketed(t, call.node, t.plain(node), "week")
    moment = as_moment(t, call.node, t.plain(node))
    made = t.fill(call.node, "date(timestamp_trunc(@moment, week(sunday)), 'UTC')", moment=moment.node)
    return Value(made, _like(DATE, moment))


def _start_of_interval(t: Expressions, call: Call) -> Value:
    node, interval = arguments_before_zone(t, call, 2)
    step = t.value(interval)
    if step.type != INTERVAL or not isinstance(step.constant, int) or step.constant < 1:
        raise t.refused(interval, "A constant interval is wanted here.", "Write INTERVAL 5 MINUTE.")
    return bucketed(t, call.node, t.plain(node), step.unit, step.constant)


def _date_trunc(t: Expressions, call: Call) -> Value:
    unit, node = arguments_before_zone(t, call, 2)
    return bucketed(t, call.node, t.plain(node), unit_of(t, unit, t.constant_text(unit, "A unit of time")))


def _of_moment(template: str) -> _Function:
    """Return a function that fills the template with a time and has a whole number as its result."""

    def function(t: Expressions, call: Call) -> Value:
        (node,) = arguments_before_zone(t, call, 1)
        moment = as_moment(t, call.node, t.plain(node))
        return Value(t.fill(call.node, template, moment=moment.node), _like(INT, moment))

    return function


def _from_unix(template: str, type_: Type) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = arguments_before_zone(t, call, 1)
        number = t.number(node)
        if number.type.name != "Int64":
            raise t.refused(node, "A whole number is wanted here.", "Convert it with toInt64(…).")
        return Value(t.fill(call.node, template, number=number.node), _like(type_, number))

    return function


def _best_effort(suffix: str, *, has_decimals: bool) -> _Function:
    """Return the conversion of a text to a time: constants in several formats, columns in ISO 8601."""

    def function(t: Expressions, call: Call) -> Value:
        node, *rest = arguments(t, call, 1, 3 if has_decimals else 2)
        decimals = _decimals_of(t, rest, has_decimals=has_decimals)
        value = t.string(node)
        type_ = Type("DateTime", scale=decimals)
        if value.is_constant and not suffix:
            return cast_to(t, call.node, value, type_)
        cast = "safe_cast" if suffix else "cast"
        made = t.fill(call.node, f"{cast}(@text as timestamp)", text=value.node)
        unit = {0: "second", 3: "millisecond"}.get(decimals)
        if unit is not None:
            made = t.fill(call.node, f"timestamp_trunc(@moment, {unit})", moment=made)
        return Value(made, type_.or_null() if suffix else _like(type_, value))

    return function


def _decimals_of(t: Expressions, rest: list[exp.Expr], *, has_decimals: bool) -> int:
    """Return the number of decimals of a second: 3 by default, 0 without `has_decimals`.

    A time zone other than UTC is refused.
    """
    decimals = 3 if has_decimals else 0
    if has_decimals and rest:
        decimals = max(0, min(int(t.constant_number(rest.pop(0), "The number of decimals")), 6))
    if rest:
        check_zone(t, rest[0])
    return decimals


def _to_datetime(t: Expressions, call: Call) -> Value:
    (node,) = arguments_before_zone(t, call, 1)
    return _typed(t, call, node, DATETIME)


def _to_datetime64(t: Expressions, call: Call) -> Value:
    node, scale = arguments_before_zone(t, call, 2)
    digits = int(t.constant_number(scale, "The number of decimals"))
    return _typed(t, call, node, Type("DateTime", scale=max(0, min(digits, 6))))


def _to_date(t: Expressions, call: Call) -> Value:
    (node,) = arguments_before_zone(t, call, 1)
    return _typed(t, call, node, DATE)


def _typed(t: Expressions, call: Call, node: exp.Expr, type_: Type) -> Value:
    value = t.plain(node)
    found = cast_to(t, call.node, value, type_)
    return msgspec.structs.replace(found, type=_like(found.type, value))


def _now(template: str, type_: Type) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        rest = arguments(t, call, 0, 2)
        if rest and type_ == DATETIME:
            check_zone(t, rest[0])
        return Value(t.fill(call.node, template), type_)

    return function


def _part(name: str) -> _Function:
    return _of_moment(f"extract({name} from @moment)")


def _iso_week(t: Expressions, call: Call) -> Value:
    moment = as_moment(t, call.node, t.plain(*arguments(t, call, 1)))
    return Value(t.fill(call.node, "extract(isoweek from @moment)", moment=moment.node), _like(INT, moment))


def _digits(pattern: str) -> _Function:
    """Return a function that writes a time's parts as the digits of one number, such as toYYYYMM."""
    return _of_moment(f"cast(format_timestamp('{pattern}', @moment, 'UTC') as int64)")


def _day_of_week(t: Expressions, call: Call) -> Value:
    """Return the day of the week, from 1 for Monday to 7 for Sunday."""
    moment = as_moment(t, call.node, t.plain(*arguments(t, call, 1)))
    made = t.fill(call.node, "mod(extract(dayofweek from @moment) + 5, 7) + 1", moment=moment.node)
    return Value(made, _like(INT, moment))


def _interval(unit: str) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        (amount,) = arguments(t, call, 1)
        return interval_of(t, call.node, amount, unit)

    return function


def _shifted(unit: str, *, is_minus: bool) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        node, amount = arguments(t, call, 2)
        return moved(t, call.node, t.plain(node), interval_of(t, call.node, amount, unit), is_minus=is_minus)

    return function


def _moved(*, is_minus: bool) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        node, interval = arguments(t, call, 2)
        return moved(t, call.node, t.plain(node), t.value(interval), is_minus=is_minus)

    return function


def _difference(t: Expressions, call: Call) -> Value:
    """Return the number of boundaries of the unit between two times."""
    unit_node, start, end = arguments(t, call, 3)
    unit = unit_of(t, unit_node, t.constant_text(unit_node, "A unit of time"))
    one, other = (as_moment(t, call.node, t.plain(node)) for node in (start, end))
    if unit == "week":
        parts = {"start": monday(t, call.node, one), "end": monday(t, call.node, other)}
        made = t.fill(call.node, "div(date_diff(@end, @start, day), 7)", **parts)
        return Value(made, msgspec.structs.replace(INT, nullable=one.type.nullable or other.type.nullable))
    if unit in ("second", "minute", "hour", "millisecond", "microsecond"):
        template = f"timestamp_diff(timestamp_trunc(@end, {unit}), timestamp_trunc(@start, {unit}), {unit})"
    else:
        template = f"date_diff(date(@end, 'UTC'), date(@start, 'UTC'), {unit})"
    made = t.fill(call.node, template, start=one.node, end=other.node)
    return Value(made, msgspec.structs.replace(INT, nullable=one.type.nullable or other.type.nullable))


_ELEMENT: Final = re.compile("%(.?)", re.DOTALL)
# ClickHouse's format elements, and BigQuery's for them.
_ELEMENTS: Final = {
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
# Elements that BigQuery does not have: microseconds, and the day without zero padding.
_OWN_ELEMENTS: Final = {
    "f": "lpad(cast(mod(unix_micros(@moment), 1000000) as string), 6, '0')",
    "e": "cast(extract(day from @moment) as string)",
}


_MOST_OWN_ELEMENTS: Final = 4


def _format(t: Expressions, call: Call) -> Value:
    node, pattern = arguments_before_zone(t, call, 2)
    moment = as_moment(t, call.node, t.plain(node))
    pieces: list[str] = [""]
    own: list[str] = []
    text = t.constant_text(pattern, "A format")
    last = 0
    for found in _ELEMENT.finditer(text):
        pieces[-1] += text[last : found.start()]
        last = found.end()
        if found[1] in _OWN_ELEMENTS:
            own.append(_OWN_ELEMENTS[found[1]])
            pieces.append("")
            continue
        if found[1] not in _ELEMENTS:
            raise t.refused(pattern, f"The element %{found[1]} is not supported in a format.")
        pieces[-1] += _ELEMENTS[found[1]]
    pieces[-1] += text[last:]
    return Value(_formatted(t, call, moment, pieces, own), _like(STRING, moment))


def _formatted(t: Expressions, call: Call, moment: Value, pieces: list[str], own: list[str]) -> exp.Expr:
    """Return the pieces of a format, with elements between them that BigQuery does not have."""
    if len(own) > _MOST_OWN_ELEMENTS:
        raise t.refused(call.node, f"%f and %e can stand {_MOST_OWN_ELEMENTS} times in a format.")
    parts: list[exp.Expr] = []
    for at, piece in enumerate(pieces):
        if at:
            parts.append(t.fill(call.node, own[at - 1], moment=moment.node))
        if piece or len(pieces) == 1:
            text = exp.Literal.string(piece)
            parts.append(
                t.fill(call.node, "format_timestamp(@format, @moment, 'UTC')", format=text, moment=moment.node)
            )
    if len(parts) == 1:
        return parts[0]
    made = exp.Concat(expressions=parts)
    made.meta["bigquery_name"] = "CONCAT"
    return made


_UNITS: Final = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")

FUNCTIONS: Final[Mapping[str, _Function]] = {
    **{f"tostartof{unit}": _start_of(unit) for unit in ("second", "minute", "hour", "day", "month", "quarter", "year")},
    "tostartoffiveminute": _start_of("minute", 5),
    "tostartoffiveminutes": _start_of("minute", 5),
    "tostartoftenminutes": _start_of("minute", 10),
    "tostartoffifteenminutes": _start_of("minute", 15),
    "tostartofweek": _start_of_week,
    "tomonday": _start_of("week"),
    "tostartofinterval": _start_of_interval,
    "date_trunc": _date_trunc,
    "tounixtimestamp": _of_moment("unix_seconds(@moment)"),
    "tounixtimestamp64milli": _of_moment("unix_millis(@moment)"),
    "tounixtimestamp64micro": _of_moment("unix_micros(@moment)"),
    "tounixtimestamp64nano": _of_moment("unix_micros(@moment) * 1000"),
    "fromunixtimestamp": _from_unix("timestamp_seconds(@number)", DATETIME),
    "fromunixtimestamp64milli": _from_unix("timestamp_millis(@number)", Type("DateTime", scale=3)),
    "fromunixtimestamp64micro": _from_unix("timestamp_micros(@number)", DATETIME64),
    "fromunixtimestamp64nano": _from_unix("timestamp_micros(div(@number, 1000))", DATETIME64),
    "parsedatetime64besteffort": _best_effort("", has_decimals=True),
    "parsedatetime64besteffortornull": _best_effort("ornull", has_decimals=True),
    "parsedatetimebesteffort": _best_effort("", has_decimals=False),
    "parsedatetimebesteffortornull": _best_effort("ornull", has_decimals=False),
    "todatetime": _to_datetime,
    "todatetime64": _to_datetime64,
    "todate": _to_date,
    "now": _now("timestamp_trunc(current_timestamp(), second)", DATETIME),
    "now64": _now("current_timestamp()", DATETIME64),
    "today": _now("date(current_timestamp(), 'UTC')", DATE),
    "yesterday": _now("date_sub(date(current_timestamp(), 'UTC'), interval 1 day)", DATE),
    "toyear": _part("year"),
    "toquarter": _part("quarter"),
    "toisoweek": _iso_week,
    "toyyyymm": _digits("%Y%m"),
    "toyyyymmdd": _digits("%Y%m%d"),
    "tomonth": _part("month"),
    "todayofmonth": _part("day"),
    "todayofyear": _part("dayofyear"),
    "todayofweek": _day_of_week,
    "tohour": _part("hour"),
    "tominute": _part("minute"),
    "tosecond": _part("second"),
    **{f"tointerval{unit}": _interval(unit) for unit in _UNITS},
    **{f"add{unit}s": _shifted(unit, is_minus=False) for unit in _UNITS},
    **{f"subtract{unit}s": _shifted(unit, is_minus=True) for unit in _UNITS},
    "date_add": _moved(is_minus=False),
    "date_sub": _moved(is_minus=True),
    "datediff": _difference,
    "date_diff": _difference,
    "formatdatetime": _format,
}
