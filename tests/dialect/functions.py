"""Queries for the dialect's functions that no other query uses, and for times relative to the query's time."""

from typing import Final

_ODD_ATTRIBUTE: Final = "log_attributes['odd']"
_STATUS: Final = "log_attributes['response.status_code']"
_ORIGIN: Final = "toFloat64OrZero(log_attributes['response.origin_time'])"
_DATE: Final = "toDate('2026-03-31')"
_TIME: Final = "toDateTime('2026-03-31 23:59:30')"

_OPERATORS: Final = (
    "and(1 = 1, 2 = 3)",
    "or(1 = 2, 2 = 2)",
    "not(1 = 1)",
    f"equals({_STATUS}, '200')",
    f"notEquals({_STATUS}, '200')",
    f"greater({_STATUS}, '300')",
    f"greaterOrEquals({_STATUS}, '301')",
    f"less({_STATUS}, '301')",
    f"lessOrEquals({_STATUS}, '301')",
    "like('abc', 'a%')",
    "notLike('abc', 'a%')",
    "ilike('ABC', 'a%')",
    "notILike('ABC', 'a%')",
    "array(1, 2)",
    "isNotNull(nullIf('a', 'a'))",
)
_NUMBERS: Final = (
    f"ceiling({_ORIGIN})",
    f"truncate({_ORIGIN} / 3, 1)",
    "round(exp(2), 6)",
    "power(2, 3)",
    f"isFinite({_ORIGIN} / 0)",
    f"isInfinite({_ORIGIN} / 0)",
    *(f"to{kind}OrNull({_ODD_ATTRIBUTE})" for kind in ("Int8", "Int16", "UInt16", "UInt32")),
    *(f"toFloat32{suffix}({_ODD_ATTRIBUTE})" for suffix in ("OrNull", "OrZero")),
    "toFloat32('1.5')",
    "toUInt64('12')",
    # An unsigned conversion gives 0 for a negative number. Numbers above 2^63 - 1 are omitted, because cordwood's
    # result for them differs from ClickHouse's.
    "toUInt64OrZero(log_attributes['response.status_code'])",
    "toUInt64OrZero('-1')",
    "toUInt64OrZero('9223372036854775807')",
    "toUInt64OrNull('x')",
    "toBool(5)",
    "toBool(0)",
)
_TEXTS: Final = (
    "ltrim('  a ')",
    "rtrim('  a ')",
    "trimBoth('  a ')",
    "substr('abcdef', 2, 3)",
    "toString(toUUID('00000000-0000-4000-8000-000000000001'))",
    "mapContainsKey(log_attributes, 'response.status_code')",
    "mapContainsKey(log_attributes, 'never')",
)
_TIMES: Final = (
    *(f"add{unit}({_TIME}, 2)" for unit in ("Seconds", "Minutes", "Quarters")),
    *(f"subtract{unit}({_TIME}, 1)" for unit in ("Seconds", "Hours")),
    *(f"subtract{unit}({_DATE}, 1)" for unit in ("Weeks", "Months", "Quarters", "Years")),
    *(f"{_TIME} - toInterval{unit}(3)" for unit in ("Minute", "Hour", "Week", "Month", "Quarter", "Year")),
    f"toStartOfQuarter({_TIME})",
    "toStartOfQuarter(timestamp)",
    f"date_diff('hour', {_TIME}, timestamp)",
    "parseDateTimeBestEffortOrNull('2026-06-22T09:34:06Z')",
    "parseDateTimeBestEffortOrNull('no time')",
    "parseDateTime64BestEffortOrNull('2026-06-22T09:34:06.215Z', 6, 'UTC')",
    "parseDateTime64BestEffortOrNull('no time', 6, 'UTC')",
)
_NOW: Final = (
    "now() > toDateTime('2020-01-01 00:00:00')",
    "now64() >= toDateTime64('2020-01-01 00:00:00', 3)",
    "now() - toIntervalHour(1) < now()",
    "dateDiff('hour', now() - INTERVAL 5 HOUR, now())",
    "today() = toDate(now())",
    "dateDiff('day', yesterday(), today())",
    "toStartOfDay(now()) <= now64()",
)
_AGGREGATES: Final = (
    f"round(varPop({_ORIGIN}), 6)",
    f"round(varSamp({_ORIGIN}), 6)",
    f"round(stddevSamp({_ORIGIN}), 6)",
    f"quantileExactInclusive(0.9)({_ORIGIN})",
    f"uniqCombined({_STATUS})",
    f"uniqHLL12({_STATUS})",
)


def _combined_query(expressions: tuple[str, ...], end: str) -> str:
    columns = ", ".join(f"{expression} AS v{number}" for number, expression in enumerate(expressions))
    return f"SELECT {columns} FROM logs WHERE source = 'edge_logs' {end}"


FUNCTION_QUERIES: Final = (
    *(
        _combined_query(expressions, "ORDER BY id LIMIT 16")
        for expressions in (_OPERATORS, _NUMBERS, _TEXTS, _TIMES, _NOW)
    ),
    _combined_query(_AGGREGATES, ""),
)
