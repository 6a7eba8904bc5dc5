"""Queries with columns of unions and derived tables, and with aggregates that do not change the values of a column."""

from typing import Final

_UNIONS: Final = (
    "SELECT 1 AS x UNION ALL SELECT NULL",
    "SELECT NULL AS x UNION ALL SELECT 1",
    "SELECT NULL AS x UNION ALL SELECT NULL",
    "SELECT 1.5 AS x, 'a' AS y, 1 = 1 AS z UNION ALL SELECT NULL, NULL, NULL",
    "SELECT toDate('2026-01-01') AS x, toDateTime('2026-01-01 00:00:00') AS y, true AS z UNION ALL SELECT NULL, NULL, NULL",
    "SELECT map('a', 'b') AS x, timestamp AS y FROM logs WHERE id < '00000000-0000-4000-8000-000000000001' UNION ALL SELECT NULL, NULL",
    "SELECT toDateTime('2026-01-01 00:00:00') AS x UNION ALL SELECT toDate('2026-01-02')",
    "SELECT toDate('2026-01-02') AS x UNION ALL SELECT toDateTime('2026-01-01 00:00:00') UNION ALL SELECT NULL",
    "(SELECT timestamp AS x FROM logs ORDER BY x LIMIT 1) UNION ALL (SELECT NULL UNION ALL SELECT toDate('2026-01-01'))",
    "(SELECT id AS x, toInt32OrZero(log_attributes['odd']) AS y FROM logs WHERE source = 'edge_logs' ORDER BY id LIMIT 2) UNION ALL (SELECT NULL, 1.5)",
    "SELECT toDate(timestamp) AS d, count() AS c FROM logs GROUP BY d UNION ALL SELECT toDateTime('2026-01-01 00:00:00'), NULL",
    "SELECT DISTINCT source AS s FROM logs WHERE source = 'edge_logs' UNION ALL SELECT NULL",
)

_DERIVED_TABLES: Final = (
    "SELECT x FROM (SELECT 'a' AS x UNION ALL SELECT nullIf('b', 'b')) WHERE x IS NULL",
    "SELECT x FROM (SELECT 1 AS x UNION ALL SELECT 2) WHERE x = 2",
    "SELECT x FROM (SELECT NULL AS x UNION ALL SELECT 2) WHERE x = 2",
    "SELECT x + 1 AS y FROM (SELECT 1 AS x UNION ALL SELECT NULL) ORDER BY y",
    "SELECT x FROM (SELECT NULL AS x UNION ALL SELECT toDateTime('2026-01-01 00:00:00')) WHERE x > '2025-01-01 00:00:00'",
    "SELECT toString(x) AS y FROM (SELECT toDateTime('2026-01-01 00:00:00') AS x UNION ALL SELECT toDate('2026-01-02')) ORDER BY y",
    "SELECT x, x + 1 AS y FROM (SELECT 1 = 1 AS x UNION ALL SELECT 5) ORDER BY x",
    "SELECT x, count() AS c FROM (SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 1) GROUP BY x ORDER BY x",
    "WITH u AS (SELECT 'a' AS k, 1 AS n UNION ALL SELECT 'b', NULL) SELECT k, sum(n) AS s FROM u GROUP BY k ORDER BY k",
    "SELECT count() AS c FROM (SELECT 'Z' AS p, id FROM logs) WHERE match('Z', p)",
    "SELECT m['a'] AS a FROM (SELECT map('a', log_attributes['request.method']) AS m FROM logs WHERE source = 'edge_logs') ORDER BY a LIMIT 3",
    "SELECT m['a'] + 1 AS a, m['b'] AS b, m['c'] AS c FROM (SELECT map('a', 1, 'b', length(id)) AS m FROM logs ORDER BY id LIMIT 3)",
    "SELECT m['a'] + 1 AS a, m['b'] AS b, m FROM (SELECT map('a', 1.5) AS m)",
    "SELECT m['a'] AS a FROM (SELECT map('a', 'x') AS m UNION ALL SELECT map('b', 'y')) ORDER BY a",
    "SELECT m['a'] AS a FROM (SELECT map('a', 1) AS m UNION ALL SELECT map('a', 5)) ORDER BY a",
    "SELECT mapKeys(m) AS a, mapContains(m, 'a') AS b, length(m) AS c FROM (SELECT map('a', 1, 'b', 2) AS m)",
)

_AGGREGATES_WITHOUT_EFFECT: Final = (
    "SELECT count() IS NULL AS a FROM logs",
    "SELECT count() IS NULL AS a FROM logs WHERE source = 'nowhere'",
    "SELECT count() = NULL AS a FROM logs",
    "SELECT map('a', 1, 'b', count())['a'] AS a FROM logs",
    "SELECT min(NULL) AS a, max(NULL) AS b, any(NULL) AS c FROM logs",
    "SELECT argMax(NULL, id) AS a FROM logs",
    "SELECT count() IN (NULL) AS a FROM logs",
    "SELECT 1 AS a FROM logs HAVING count() IS NOT NULL",
    "SELECT 1 AS a FROM logs HAVING count() IS NULL",
    "SELECT count() = NULL AS a FROM logs HAVING count() > 1000",
    "SELECT a FROM (SELECT count() IS NULL AS a FROM logs)",
    "SELECT source, count() IS NULL AS a FROM logs GROUP BY source ORDER BY source",
)

COLUMN_QUERIES: Final = (*_UNIONS, *_DERIVED_TABLES, *_AGGREGATES_WITHOUT_EFFECT)
