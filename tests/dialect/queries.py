"""Queries whose answers are compared with ClickHouse's: functions with various arguments, and queries of clients."""

from collections.abc import Iterator, Sequence

from tests.dialect.columns import COLUMN_QUERIES
from tests.dialect.details import DETAILS
from tests.dialect.functions import FUNCTION_QUERIES
from tests.dialect.nulls import NULL_QUERIES

_EDGE_SOURCE = "source = 'edge_logs'"
_ODD_ATTRIBUTE = "log_attributes['odd']"
_STATUS = "log_attributes['response.status_code']"
_METHOD = "log_attributes['request.method']"
_IS_JSON = "event_message LIKE '{%'"

# Expressions that are computed for each event of edge_logs.
_TEXTS = (
    _METHOD,
    _STATUS,
    "log_attributes['response.origin_time']",
    "log_attributes['response.cached']",
    "log_attributes['response.tags']",
    "log_attributes['empty']",
    "log_attributes['nothing']",
    "log_attributes['never.seen']",
    "log_attributes['request']",
    "log_attributes['project']",
    "log_attributes['id']",
    f"lower({_METHOD})",
    f"upper({_METHOD})",
    f"lowerUTF8({_METHOD})",
    f"upperUTF8({_METHOD})",
    f"concat({_METHOD}, ' ', {_STATUS})",
    f"{_METHOD} || '-' || 'x'",
    f"concat({_METHOD}, 1, true)",
    f"length({_METHOD})",
    f"lengthUTF8({_METHOD})",
    f"empty({_METHOD})",
    "notEmpty(log_attributes['never'])",
    f"position({_METHOD}, 'ber')",
    f"position({_METHOD}, 'h')",
    "position(event_message, 'line two')",
    f"substringUTF8({_METHOD}, 2, 3)",
    f"substring({_STATUS}, 2)",
    f"substring({_STATUS}, -2)",
    f"left({_STATUS}, 2)",
    f"right({_METHOD}, 2)",
    f"startsWith({_METHOD}, 'G')",
    f"endsWith({_METHOD}, 'T')",
    f"replaceAll({_METHOD}, 'E', 'e')",
    f"replaceRegexpAll({_METHOD}, '[A-Z]', '.')",
    f"reverse({_STATUS})",
    f"trim(concat('  ', {_METHOD}, ' '))",
    f"match({_METHOD}, '^G.T$')",
    "match(event_message, 'it.*two')",
    "extract(event_message, 'line (t)(wo)')",
    "extract(event_message, 'Är.er')",
    "extract(event_message, 'nothing of it')",
    f"{_METHOD} LIKE 'G%'",
    f"{_METHOD} NOT LIKE '%E%'",
    f"{_METHOD} ILIKE 'g_t'",
    "event_message LIKE '%100\\\\%%'",
    "event_message LIKE '%of\\\\_it%'",
    "event_message LIKE '%Ärger%'",
    f"{_METHOD} = 'GET'",
    f"{_METHOD} != 'GET'",
    f"{_METHOD} > 'P'",
    f"{_METHOD} >= 'a'",
    "log_attributes['never'] = ''",
    "log_attributes['never'] < 'a'",
    "NOT (log_attributes['never'] = 'x')",
    f"{_METHOD} IN ('GET', 'POST')",
    f"{_METHOD} NOT IN ('GET', 'POST')",
    f"{_METHOD} BETWEEN 'A' AND 'M'",
    "splitByChar('/', log_attributes['request.path'])",
    "splitByChar('/', log_attributes['request.path'])[2]",
    "splitByChar('/', log_attributes['request.path'])[-1]",
    "splitByChar('/', log_attributes['request.path'])[9]",
    "splitByChar(',', '')",
    "splitByString('/v1', log_attributes['request.path'])",
    "arrayElement(splitByChar('/', log_attributes['request.path']), 3)",
    "length(splitByChar('/', log_attributes['request.path']))",
    "arrayStringConcat(splitByChar('/', log_attributes['request.path']), '+')",
    "has(splitByChar('/', log_attributes['request.path']), 'v1')",
    "has(['GET', 'PUT'], log_attributes['request.method'])",
    "arrayReverse(splitByChar('/', log_attributes['request.path']))",
    "mapContains(log_attributes, 'request.method')",
    "mapContains(log_attributes, 'empty')",
    "mapContains(log_attributes, 'nothing')",
    "mapContains(log_attributes, 'request')",
    "has(mapKeys(log_attributes), 'response.tags')",
    "length(mapKeys(log_attributes))",
    "map('a', 'b')['a']",
    "map('a', 'b')['c']",
    "mapKeys(map('a', 1, 'b', 2))",
    "mapValues(map('a', 'x', 'b', 'y'))",
    "map('method', log_attributes['request.method'])",
    "toString(id)",
    "toString(timestamp)",
    "toString(toStartOfHour(timestamp))",
    "toString(1 = 1)",
    "toString(true)",
    "toString(5)",
    "toString(5.5)",
    "nullIf(log_attributes['request.method'], 'GET')",
    "nullIf(log_attributes['never'], '')",
    "coalesce(nullIf(log_attributes['request.method'], 'GET'), 'none')",
    "ifNull(nullIf(log_attributes['request.method'], 'GET'), 'none')",
    "isNull(nullIf(log_attributes['request.method'], 'GET'))",
    "nullIf(log_attributes['request.method'], 'GET') IS NOT NULL",
    f"if({_METHOD} = 'GET', 'read', 'write')",
    f"multiIf({_METHOD} = 'GET', 1, {_METHOD} = 'POST', 2, 3)",
    f"CASE WHEN {_METHOD} = 'GET' THEN 'a' WHEN {_METHOD} = 'PUT' THEN 'b' ELSE 'c' END",
    f"CASE {_METHOD} WHEN 'GET' THEN 1 WHEN 'PUT' THEN 2 END",
    f"{_METHOD} = 'GET' AND {_STATUS} = '200'",
    f"{_METHOD} = 'GET' OR {_STATUS} = '404'",
    f"xor({_METHOD} = 'GET', {_STATUS} = '200')",
    "severity_text",
    "project",
    "source",
    "source = 'edge_logs'",
)

_NUMBERS = (
    *(
        f"to{kind}OrZero({_ODD_ATTRIBUTE})"
        for kind in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "Float64")
    ),
    *(f"to{kind}OrNull({_ODD_ATTRIBUTE})" for kind in ("Int32", "Int64", "UInt8", "Float64")),
    f"toInt32OrZero({_STATUS})",
    f"toInt32OrZero({_STATUS}) >= 500",
    f"toInt32OrZero({_STATUS}) + 1",
    f"toInt32OrZero({_STATUS}) * 2 - 7",
    f"-toInt32OrZero({_STATUS})",
    f"toInt32OrZero({_STATUS}) / 3",
    f"toInt32OrZero({_STATUS}) / 0",
    "0 / toInt32OrZero(log_attributes['never'])",
    f"toInt32OrZero({_STATUS}) % 7",
    f"intDiv(toInt32OrZero({_STATUS}), 100)",
    "intDiv(-7, 2)",
    "-7 % 3",
    "toFloat64OrZero(log_attributes['response.origin_time'])",
    "round(toFloat64OrZero(log_attributes['response.origin_time']))",
    "round(toFloat64OrZero(log_attributes['response.origin_time']) / 3, 2)",
    "floor(toFloat64OrZero(log_attributes['response.origin_time']))",
    "ceil(toFloat64OrZero(log_attributes['response.origin_time']))",
    "round(2.5)",
    "round(-3.5)",
    "round(7)",
    f"abs(-toInt32OrZero({_STATUS}))",
    "sqrt(16)",
    "pow(2, 10)",
    "greatest(1, 2, 3)",
    f"least(toInt32OrZero({_STATUS}), 300)",
    "toInt64(toFloat64OrZero(log_attributes['response.origin_time']))",
    "toInt64(-2.7)",
    "toFloat64(3)",
    "toFloat64('3.25')",
    "toInt64('42')",
    "'42'::Int64",
    "CAST('1.5' AS Float64)",
    "CAST(7, 'String')",
    f"isNaN(toFloat64OrZero({_ODD_ATTRIBUTE}))",
    "toUInt8OrZero(log_attributes['response.cached'])",
    f"({_STATUS} = '200') + ({_METHOD} = 'GET')",
    "1 = 1.0",
    "1 + 1.5",
    "NULL",
    "[1, 2, 3][2]",
    "[1, 2][5]",
    "has([1, 2], 2)",
)

_TIMES = (
    "timestamp",
    *(
        f"toStartOf{unit}(timestamp)"
        for unit in ("Minute", "Hour", "Day", "Month", "Year", "FiveMinutes", "FifteenMinutes")
    ),
    "toStartOfWeek(timestamp)",
    "toMonday(timestamp)",
    "toStartOfInterval(timestamp, INTERVAL 5 MINUTE)",
    "toStartOfInterval(timestamp, INTERVAL 6 HOUR)",
    "toStartOfInterval(timestamp, INTERVAL 1 DAY)",
    "toStartOfInterval(timestamp, toIntervalSecond(30))",
    "date_trunc('hour', timestamp)",
    "toUnixTimestamp(timestamp)",
    "toUnixTimestamp64Micro(timestamp)",
    "toUnixTimestamp64Milli(timestamp)",
    "fromUnixTimestamp64Micro(toUnixTimestamp64Micro(timestamp))",
    "fromUnixTimestamp64Milli(toInt64(1795556378000))",
    "toDateTime64('2026-06-22 09:34:06.215', 6)",
    "toDateTime('2026-06-22 09:34:06')",
    "toDateTime(1795556378)",
    "toDateTime64(timestamp, 3)",
    "toDateTime(timestamp)",
    "toDate(timestamp)",
    "parseDateTime64BestEffort('2026-06-22T09:34:06.215Z', 6, 'UTC')",
    "parseDateTime64BestEffort('2026-06-22 09:34:06+02:00', 6, 'UTC')",
    "parseDateTimeBestEffort('2026-06-22T09:34:06Z')",
    "timestamp - INTERVAL 1 HOUR",
    "timestamp + INTERVAL 90 SECOND",
    "timestamp - toIntervalDay(2)",
    "timestamp + INTERVAL 1 MONTH",
    "addHours(timestamp, 3)",
    "subtractMinutes(timestamp, 3)",
    "toStartOfHour(timestamp) + INTERVAL 1 DAY",
    "timestamp > '2026-06-22 11:00:00'",
    "timestamp BETWEEN '2026-06-22 10:00:00' AND '2026-06-22 11:00:00'",
    "timestamp >= toDateTime64('2026-06-22 11:00:00', 3)",
    "toDate(timestamp) = '2026-06-22'",
    "dateDiff('hour', timestamp, toDateTime64('2026-06-22 12:00:00', 6))",
    "dateDiff('minute', toDateTime64('2026-06-22 00:00:00', 6), timestamp)",
    "dateDiff('day', toDateTime64('2026-06-20 23:59:59', 6), timestamp)",
    *(
        f"to{part}(timestamp)"
        for part in ("Year", "Month", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hour", "Minute", "Second")
    ),
    "formatDateTime(timestamp, '%Y-%m-%dT%H:%i:%SZ', 'UTC')",
    "formatDateTime(timestamp, '%d/%m/%y %H %% %j %F %T')",
    "formatDateTime(timestamp, '%a %b %M %W %p %I')",
    "formatDateTime(toDateTime64(timestamp, 6), '%S.%f')",
)

_JSON = (
    "JSONExtractString(event_message, 'a', 'b')",
    "JSONExtractString(event_message, 'n')",
    "JSONExtractString(event_message, 'a', 'n')",
    "JSONExtractString(event_message, 'ü')",
    "JSONExtractString(event_message, 'never')",
    "JSONExtractString(event_message, 'a', 'list', 2)",
    "JSONExtractString(event_message, 'a', 'list')",
    "JSONExtractString(event_message, 'a', 't')",
    "JSONExtractString(event_message, 'a', 'nil')",
    "JSONExtractString(event_message, 'a.b')",
    "JSONExtractInt(event_message, 'n')",
    "JSONExtractFloat(event_message, 'n')",
    "JSONExtractFloat(event_message, 'a', 'b')",
    "JSONExtractBool(event_message, 'a', 'n')",
    "JSONExtractInt(event_message, 'a', 'f')",
    "JSONExtractInt(event_message, 'a', 'n')",
    "JSONExtractInt(event_message, 'a', 'list', 1)",
    "JSONExtractUInt(event_message, 'a', 'n')",
    "JSONExtractFloat(event_message, 'a', 'f')",
    "JSONExtractBool(event_message, 'a', 't')",
    "JSONExtractRaw(event_message, 'a', 'list')",
    "JSONExtractRaw(event_message, 'a', 'b')",
    "JSONHas(event_message, 'a', 'nil')",
    "JSONHas(event_message, 'b')",
    "JSONLength(event_message, 'a', 'list')",
    "JSONLength(event_message)",
    "JSONType(event_message, 'a')",
    "JSONType(event_message, 'a', 'b')",
    "JSONType(event_message, 'a', 'list')",
    "isValidJSON(event_message)",
    "JSONExtractKeys(event_message, 'a')",
    "JSONExtractArrayRaw(event_message, 'a', 'list')",
)

_NUMBER = "toFloat64OrZero(log_attributes['response.origin_time'])"
_AGGREGATES = (
    "count()",
    "count(*)",
    "count(nullIf(log_attributes['request.method'], 'GET'))",
    f"count(DISTINCT {_METHOD})",
    f"uniq({_METHOD})",
    f"uniqExact({_STATUS})",
    f"countIf({_METHOD} = 'GET')",
    "countIf(log_attributes['never'] = 'x')",
    f"sum(toInt64OrZero({_STATUS}))",
    f"sum({_METHOD} = 'GET')",
    f"sumIf({_NUMBER}, {_METHOD} = 'GET')",
    f"sumIf({_NUMBER}, {_METHOD} = 'none')",
    f"avg({_NUMBER})",
    f"avgIf({_NUMBER}, {_METHOD} = 'none')",
    f"round(avg({_NUMBER}), 2)",
    f"min({_METHOD})",
    f"max({_METHOD})",
    f"min({_NUMBER})",
    f"max({_NUMBER})",
    "min(timestamp)",
    "max(timestamp)",
    f"minIf({_METHOD}, {_METHOD} = 'none')",
    f"quantile(0.5)({_NUMBER})",
    f"quantile(0.95)({_NUMBER})",
    f"quantile(0.99)({_NUMBER})",
    f"quantileIf(0.5)({_NUMBER}, {_METHOD} = 'GET')",
    f"quantileTDigest(0.5)({_NUMBER})",
    f"quantileTDigest(0.95)({_NUMBER})",
    f"median({_NUMBER})",
    f"argMin({_METHOD}, timestamp)",
    f"argMax({_METHOD}, timestamp)",
    "argMax(id, timestamp)",
    f"length(groupArray({_METHOD}))",
    f"length(groupUniqArray({_METHOD}))",
    "any(source)",
    f"countIf(toInt32OrZero({_STATUS}) >= 500) / count()",
    f"stddevPop({_NUMBER})",
    "toStartOfHour(max(timestamp))",
    "if(count() > 0, 'some', 'none')",
)


def _row_queries() -> Iterator[str]:
    for columns in _combined_columns((*_TEXTS, *_NUMBERS)):
        yield f"SELECT id, {columns} FROM logs WHERE {_EDGE_SOURCE} ORDER BY id LIMIT 16"
    for columns in _combined_columns(_TIMES):
        yield f"SELECT id, {columns} FROM logs WHERE source = 'postgres_logs' ORDER BY timestamp DESC LIMIT 12"
    for columns in _combined_columns(_JSON):
        yield f"SELECT id, {columns} FROM logs WHERE {_EDGE_SOURCE} ORDER BY id LIMIT 10"


def _combined_columns(expressions: Sequence[str]) -> Iterator[str]:
    """Yield select lists of three expressions each, because each additional query costs more than an expression."""
    for at in range(0, len(expressions), 3):
        yield ", ".join(f"{expression} AS v{number}" for number, expression in enumerate(expressions[at : at + 3]))


def _group_queries() -> Iterator[str]:
    for expression in _AGGREGATES:
        yield f"SELECT {expression} AS v FROM logs WHERE {_EDGE_SOURCE}"
        yield f"SELECT {expression} AS v FROM logs WHERE source = 'nowhere'"
    for expression in _AGGREGATES[:16:3]:
        yield f"SELECT {_STATUS} AS k, {expression} AS v FROM logs WHERE {_EDGE_SOURCE} GROUP BY k ORDER BY k"


_STATEMENTS = (
    (
        "SELECT id, timestamp, event_message, log_attributes['request.method'] AS method,"
        " toInt32OrZero(log_attributes['response.status_code']) AS status FROM logs"
        " WHERE source = 'edge_logs' AND status >= 500 ORDER BY timestamp DESC LIMIT 100"
    ),
    (
        "SELECT toStartOfHour(timestamp) AS timestamp, countIf(log_attributes['parsed.error_severity'] IN ('ERROR','FATAL','PANIC'))"
        " AS error_count, count() AS total FROM logs WHERE source = 'postgres_logs' GROUP BY timestamp ORDER BY timestamp"
    ),
    "SELECT arrayJoin(mapKeys(log_attributes)) AS k, count() AS c FROM logs GROUP BY k ORDER BY c DESC, k LIMIT 500",
    (
        "(SELECT 'method' AS dimension, log_attributes['request.method'] AS value, count() AS c FROM logs GROUP BY value"
        " ORDER BY c DESC, value LIMIT 20) UNION ALL (SELECT 'level', severity_text, count() FROM logs GROUP BY severity_text"
        " ORDER BY count() DESC, severity_text LIMIT 20)"
    ),
    (
        "SELECT id, timestamp, source, severity_text, event_message, log_attributes FROM logs WHERE"
        " (timestamp < fromUnixTimestamp64Micro(1782126000000000) OR (timestamp = fromUnixTimestamp64Micro(1782126000000000)"
        " AND toString(id) < 'f')) ORDER BY timestamp DESC, id DESC LIMIT 50"
    ),
    "SELECT source, count() AS c FROM logs GROUP BY source ORDER BY source",
    "SELECT source, severity_text, count() AS c FROM logs GROUP BY source, severity_text ORDER BY 1, 2",
    "SELECT DISTINCT source FROM logs ORDER BY source",
    "SELECT DISTINCT log_attributes['level'] AS level FROM logs ORDER BY level",
    "SELECT count() AS c FROM logs WHERE source != 'edge_logs'",
    "SELECT count() AS c FROM logs WHERE source IN ('edge_logs', 'postgres_logs') AND severity_text = 'INFO'",
    "SELECT count() AS c FROM logs WHERE source = 'edge_logs' AND source = 'postgres_logs'",
    "SELECT id FROM logs WHERE source = 'nowhere' ORDER BY id",
    "SELECT id FROM logs WHERE NOT (source = 'edge_logs' OR source = 'my.app') ORDER BY id LIMIT 7",
    "SELECT id, source FROM logs ORDER BY timestamp DESC, id LIMIT 5 OFFSET 3",
    "SELECT id, source FROM logs ORDER BY timestamp, id LIMIT 3, 4",
    "SELECT id, severity_text FROM logs WHERE severity_text IN ('ERROR', 'DEBUG') ORDER BY id LIMIT 20",
    "SELECT id, log_attributes['flag'] AS f, log_attributes['level'] AS l FROM logs WHERE source = 'my.app' ORDER BY id LIMIT 9",
    "SELECT id, log_attributes['service.name'] AS s FROM logs WHERE s != '' ORDER BY id LIMIT 9",
    "SELECT id, log_attributes['parsed.session.id'] AS s FROM logs WHERE s = 's1' ORDER BY id",
    "SELECT log_attributes['parsed.session.id'] AS s, count() AS c FROM logs WHERE source = 'postgres_logs' GROUP BY s ORDER BY s",
    "SELECT id, log_attributes['deep.a.b.c'] AS c FROM logs WHERE source = 'realtime_logs' AND c IN ('1', '2') ORDER BY id",
    "SELECT id, log_attributes FROM logs WHERE source = 'my.app' ORDER BY id LIMIT 5",
    "SELECT id, log_attributes FROM logs WHERE source = 'edge_logs' ORDER BY id LIMIT 5",
    "SELECT id, log_attributes FROM logs WHERE source = 'function_logs' ORDER BY id LIMIT 5",
    "SELECT toStartOfInterval(timestamp, INTERVAL 30 MINUTE) AS t, source, count() AS c FROM logs GROUP BY t, source ORDER BY t, source",
    (
        "SELECT toStartOfHour(timestamp) AS timestamp, count() AS c FROM logs WHERE logs.timestamp > '2026-06-22 10:30:00'"
        " GROUP BY timestamp ORDER BY timestamp"
    ),
    (
        "SELECT toStartOfHour(timestamp) AS timestamp, count() AS c FROM logs WHERE timestamp > '2026-06-22 10:30:00'"
        " GROUP BY timestamp ORDER BY timestamp"
    ),
    (
        "SELECT lower(log_attributes['request.method']) AS m, count() AS c, c * 2 AS d, d + 1 AS e FROM logs GROUP BY m"
        " HAVING c > 1 ORDER BY c DESC, m"
    ),
    (
        "SELECT toInt32OrZero(log_attributes['response.status_code']) AS s, s >= 500 AS bad, count() AS c FROM logs"
        " WHERE source = 'edge_logs' GROUP BY s, bad ORDER BY s"
    ),
    (
        "SELECT multiIf(s >= 500, '5xx', s >= 400, '4xx', 'ok') AS class, count() AS c,"
        " toInt32OrZero(log_attributes['response.status_code']) AS s FROM logs WHERE source = 'edge_logs' GROUP BY class, s ORDER BY s"
    ),
    "SELECT nullIf(log_attributes['level'], '') AS l, count() AS c FROM logs GROUP BY l ORDER BY l, c",
    "SELECT id, nullIf(log_attributes['level'], '') AS l FROM logs ORDER BY l DESC, id LIMIT 30",
    "SELECT id, toFloat64OrNull(log_attributes['odd']) AS n FROM logs WHERE source = 'postgres_logs' AND n < 100 ORDER BY n DESC, id",
    "SELECT arrayJoin(['a', 'b']) AS x, id FROM logs WHERE source = 'edge_logs' ORDER BY id, x LIMIT 6",
    "SELECT arrayJoin([1, 2, 3]) AS x, count() AS c FROM logs GROUP BY x ORDER BY x",
    (
        "SELECT arrayJoin(splitByChar('/', log_attributes['request.path'])) AS part, count() AS c FROM logs"
        " WHERE source = 'edge_logs' AND part != '' GROUP BY part ORDER BY c DESC, part"
    ),
    "SELECT arrayJoin(mapKeys(log_attributes)) AS k FROM logs WHERE source = 'postgres_logs' AND k LIKE 'parsed%' ORDER BY k LIMIT 4",
    "SELECT m, c FROM (SELECT log_attributes['request.method'] AS m, count() AS c FROM logs GROUP BY m) WHERE c > 3 ORDER BY m",
    "SELECT sum(c) AS total, max(m) AS last FROM (SELECT log_attributes['request.method'] AS m, count() AS c FROM logs GROUP BY m)",
    "SELECT 1 AS one, 'x' AS two, count() AS c FROM logs",
    "SELECT countIf(severity_text = 'ERROR') AS errors, countIf(severity_text = 'WARNING') AS warnings FROM logs",
    "SELECT any(severity_text) AS s, count() AS c FROM logs WHERE severity_text = 'FATAL'",
    (
        "(SELECT source AS v, count() AS c FROM logs WHERE source = 'edge_logs' GROUP BY v) UNION ALL"
        " (SELECT id, 1 FROM logs WHERE source = 'my.app' ORDER BY id LIMIT 2)"
    ),
    "SELECT id, if(source = 'edge_logs', log_attributes['request.path'], event_message) AS text FROM logs ORDER BY id LIMIT 60",
    "SELECT source, argMax(id, timestamp) AS newest, min(timestamp) AS first FROM logs GROUP BY source ORDER BY source",
    "SELECT source, quantile(0.9)(toFloat64OrZero(log_attributes['execution_time_ms'])) AS q FROM logs GROUP BY source ORDER BY source",
    "SELECT source, uniq(log_attributes['level']) AS u FROM logs GROUP BY source ORDER BY source",
    (
        "SELECT log_attributes['response.cached'] = 'true' AS cached, avg(toFloat64OrZero(log_attributes['response.origin_time'])) AS a"
        " FROM logs WHERE source = 'edge_logs' GROUP BY cached ORDER BY cached"
    ),
)


def queries() -> list[str]:
    return [
        *_row_queries(),
        *_group_queries(),
        *_STATEMENTS,
        *DETAILS,
        *COLUMN_QUERIES,
        *NULL_QUERIES,
        *FUNCTION_QUERIES,
    ]
