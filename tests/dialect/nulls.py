"""Queries with NULL as an argument: the answer of ClickHouse is NULL for some functions, and a default for others."""

from typing import Final

_ODD: Final = "nullIf(log_attributes['odd'], 'abc')"
_NEVER: Final = "nullIf(log_attributes['never'], '')"

_CONVERSIONS: Final = (
    f"SELECT id, toInt32OrZero({_ODD}) AS a, toFloat64OrZero({_ODD}) AS b, toUInt8OrZero({_ODD}) AS c, toInt32OrNull({_ODD}) AS d FROM logs WHERE source = 'edge_logs' ORDER BY id LIMIT 16",
    f"SELECT avg(toFloat64OrZero({_NEVER})) AS a, sum(toInt32OrZero({_NEVER})) AS b, count(toInt32OrZero({_NEVER})) AS c FROM logs",
    f"SELECT count() AS c FROM logs WHERE toInt32OrZero({_NEVER}) = 0",
    f"SELECT toInt32OrZero({_ODD}) AS k, count() AS c FROM logs GROUP BY k ORDER BY k",
    "SELECT toInt32OrZero(NULL) AS a, toFloat64OrZero(NULL) AS b, toUInt8OrNull(NULL) AS c, toFloat32OrNull(NULL) AS d, toBool(NULL) AS e, CAST(NULL AS Nullable(Bool)) AS f",
    "SELECT toInt64(NULL) AS a, toString(NULL) AS b, toDate(NULL) AS c, toDateTime64(NULL, 3) AS d, parseDateTimeBestEffortOrNull(NULL) AS e, parseDateTimeBestEffort(nullIf('', '')) AS f",
)

NULL_QUERIES: Final = _CONVERSIONS
