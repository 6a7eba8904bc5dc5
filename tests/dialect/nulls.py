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
    f"SELECT id, extract({_ODD}, '[0-9]+') AS a, extract({_ODD}, 'x') IS NULL AS b FROM logs WHERE source = 'edge_logs' ORDER BY id LIMIT 16",
    "SELECT toInt64(NULL) AS a, toString(NULL) AS b, toDate(NULL) AS c, toDateTime64(NULL, 3) AS d, parseDateTimeBestEffortOrNull(NULL) AS e, parseDateTimeBestEffort(nullIf('', '')) AS f",
)

_AGGREGATES: Final = (
    f"SELECT argMax(id, {_NEVER}) AS a, argMin(timestamp, {_NEVER}) AS b, argMax(1 = 1, {_NEVER}) AS c, argMaxIf(id, timestamp, 1 = 0) AS d, argMax(id, NULL) AS e FROM logs",
    "SELECT source, argMax(id, nullIf(log_attributes['level'], '')) AS a FROM logs GROUP BY source ORDER BY source",
    "SELECT log_attributes['request.method'] AS k, argMin(nullIf(log_attributes['odd'], '007'), timestamp) AS a, argMax(nullIf(log_attributes['response.status_code'], '200'), timestamp) AS b, argMaxIf(nullIf(id, 'x'), timestamp, log_attributes['odd'] = '') AS c FROM logs WHERE source = 'edge_logs' GROUP BY k ORDER BY k",
    f"SELECT argMax(id, {_NEVER}) AS a, argMin(id, timestamp) AS b FROM logs WHERE source = 'nowhere'",
)

_MAPS_AND_ARRAYS: Final = (
    "SELECT has(['a'], NULL) AS a, has(['a'], nullIf('a', 'a')) AS b, has([1], nullIf(1, 2)) AS c, has([], NULL) AS d, NOT has([1], NULL) AS e",
    "SELECT count() AS c FROM logs WHERE NOT has(['GET'], nullIf(log_attributes['request.method'], ''))",
    f"SELECT log_attributes[NULL] AS a, log_attributes[{_NEVER}] AS b, map('a', 'b')[NULL] AS c, arrayElement(log_attributes, NULL) AS d FROM logs LIMIT 2",
    f"SELECT count() AS c FROM logs WHERE log_attributes[{_NEVER}] = ''",
    f"SELECT a[NULL] AS x, a[{_NEVER.replace('log_attributes', 'a')}] AS y FROM (SELECT log_attributes AS a FROM logs ORDER BY id LIMIT 1)",
    "SELECT [1, 2][NULL] AS a, arrayElement(['a'], nullIf(1, 1)) AS b, arrayElement(['a'], nullIf(1, 2)) AS c",
    "SELECT map('a', NULL, 'b', 'x') AS a, map('a', nullIf('x', 'x')) AS b, map('a', NULL)['a'] AS c",
    "SELECT [toDateTime('2026-01-01 00:00:00')][5] AS a, [toDate('2026-01-01')][5] AS b",
)

NULL_QUERIES: Final = (*_CONVERSIONS, *_AGGREGATES, *_MAPS_AND_ARRAYS)
